// Current problems in one line: the store is unavailable, or platforms are disconnected.

const INTERVAL = 60_000;
const WORDS = { degraded: "is disconnected", off: "is off" };

export function watchHealth(line) {
  const refresh = async () => {
    if (document.visibilityState === "hidden") return;
    try {
      const response = await fetch("/healthz", { cache: "no-store" });
      const text = describe(await response.json());
      if (line.textContent !== text) line.textContent = text; // a screen reader reads it once, not every minute
      line.hidden = !text;
    } catch {
      // no connection: the page shows that elsewhere
    }
  };
  refresh();
  setInterval(refresh, INTERVAL);
}

function describe({ status, cause, platforms }) {
  const disconnected = Object.entries(platforms)
    .filter(([, platform]) => platform.state in WORDS)
    .map(([name, platform]) => `${name} ${WORDS[platform.state]}${reason(platform.cause)}`);
  const store = status === "unavailable" ? [`messages cannot be stored${reason(cause)}`] : [];
  return [...store, ...disconnected].join(", ");
}

function reason(cause) {
  return cause ? ` (${cause.replaceAll("_", " ")})` : "";
}
