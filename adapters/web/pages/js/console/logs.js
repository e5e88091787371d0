// Log: the last lines of the process, live, with filters for level and text; the newest first.

import { usePages } from "../api.js";
import { formatFull, formatTime } from "../format.js";
import { html, useEffect, useRef, useState } from "../lib.js";
import { Empty, ListState, More } from "../lists.js";
import { setQuery } from "../router.js";
import { useStream } from "../stream.js";
import { Button, Card, PageBody, Search, Select } from "../ui.js";
import { OperatorOnly } from "./plugins.js";
import "./styles.js";

const LEVELS = ["DEBUG", "INFO", "WARNING", "ERROR"];
const MAX_LINES = 1000;
const TONES = { ERROR: "bad", CRITICAL: "bad", WARNING: "warn" };

function Line({ line }) {
  return html`<li><time datetime=${line.at} title=${formatFull(line.at)}>${formatTime(line.at, "second")}</time>
    <span class=${TONES[line.level] ?? "q"}>${line.level}</span><span class="q cut" title=${line.logger}>${line.logger}</span>
    <span>${line.text}${line.error && html`<details><summary>Traceback</summary><pre>${line.error}</pre></details>`}</span></li>`;
}

function Lines({ query }) {
  const level = LEVELS.includes(query.level) ? query.level : "INFO";
  const words = (query.q ?? "").toLowerCase();
  const list = usePages("api/logs", { level, q: query.q, limit: 200 }, "lines");
  const [isPaused, setPaused] = useState(false);
  const waiting = useRef([]);
  const drawing = useRef(0);
  const show = () => {
    drawing.current = 0;
    const lines = waiting.current.splice(0);
    list.change((rows) => {
      const known = new Set(rows.map((row) => row.id));
      return [...lines.filter((line) => !known.has(line.id)).reverse(), ...rows].slice(0, MAX_LINES);
    });
  };
  useStream([{ kind: "log", level: level.toLowerCase() }], (frame) => {
    if (frame.type === "reset") return void (isPaused || list.reload());
    if (words && !`${frame.text}\n${frame.logger}`.toLowerCase().includes(words)) return;
    waiting.current = [...waiting.current, { error: "", ...frame, id: String(frame.id), level: frame.level.toUpperCase() }].slice(-MAX_LINES);
    if (!isPaused && list.rows) drawing.current ||= setTimeout(show, 500);
  });
  useEffect(() => () => clearTimeout(drawing.current), []);
  useEffect(() => {
    if (!isPaused && waiting.current.length) show();
  }, [isPaused]);
  const clear = () => setQuery({ q: undefined, level: undefined });
  const actions = html`<${Search} label="Text in the log" placeholder="Text" value=${query.q ?? ""} shortcut="search"
      onSearch=${(q) => setQuery({ q })} />
    <${Select} label="From which level" value=${level} options=${LEVELS.map((name) => [name, `${name} and above`])}
      onChange=${(value) => setQuery({ level: value })} />
    <${Button} icon=${isPaused ? "play" : "pause"} aria-pressed=${String(isPaused)} onClick=${() => setPaused(!isPaused)}>
      ${isPaused ? "Continue" : "Pause"}</${Button}>`;
  const empty = html`<${Empty} title="Nothing was logged yet" />`;
  return html`<${PageBody} title="Log" actions=${actions}>
    <${ListState} list=${list} empty=${empty} isFiltered=${Boolean(query.q) || level !== "INFO"} onClear=${clear} />
    ${list.rows?.length > 0 && html`<${Card} aria-label="Log" footer=${html`Newest first. Prompts and messages are never logged;
      why a message was not answered stands in its receipt.`}>
      <div role="log" aria-label="Log lines" aria-live="off" tabindex="0"><ol class="loglines pad-y">
        ${list.rows.map((line) => html`<${Line} key=${line.id} line=${line} />`)}</ol></div></${Card}>`}
    <${More} list=${list} /></${PageBody}>`;
}

export default function Page({ session, query }) {
  if (session.role !== "operator") return html`<${OperatorOnly} title="Log" />`;
  return html`<${Lines} key=${`${query.level} ${query.q}`} query=${query} />`;
}
