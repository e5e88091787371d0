// What is not well just now, in one line: that nothing can be kept, or which platforms are cut off.

const EVERY = 60_000;
const WORDS = { degraded: "is cut off", off: "is off" };

export function watchHealth(line) {
  const look = async () => {
    if (document.visibilityState === "hidden") return;
    try {
      const answer = await fetch("/healthz", { cache: "no-store" });
      const told = inWords(await answer.json());
      if (line.textContent !== told) line.textContent = told; // read aloud once, not every minute
      line.hidden = !told;
    } catch {
      // nobody there: the connection tells
    }
  };
  look();
  setInterval(look, EVERY);
}

function inWords({ status, cause, platforms }) {
  const cut = Object.entries(platforms)
    .filter(([, one]) => one.state in WORDS)
    .map(([name, one]) => `${name} ${WORDS[one.state]}${because(one.cause)}`);
  return [...(status === "unavailable" ? [`nothing can be kept${because(cause)}`] : []), ...cut].join(", ");
}

function because(cause) {
  return cause ? ` (${cause.replaceAll("_", " ")})` : "";
}
