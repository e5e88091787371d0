// Applies the chosen theme before the first paint; without a choice the system's applies.
try {
  const theme = JSON.parse(localStorage.getItem("greenroom.theme"));
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // no storage: the system's theme
}
