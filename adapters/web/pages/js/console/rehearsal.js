// Rehearsal: a report of `bot rehearse --json`. It is read here and sent nowhere; what is in it people wrote.

import { countOf, formatCost, formatCount, formatDuration, formatTime } from "../format.js";
import { html, useState } from "../lib.js";
import { Empty, Table } from "../lists.js";
import { Card, Chip, Note, PageBody, Select, ToggleChip } from "../ui.js";

const FORMAT = "greenroom-rehearsal-1";
const SHOWN = 200;
const TONES = { answered: "good", failed: "bad" };
const FLIPS = { speaks: "Answered now", silent: "In silence now" };

const Details = ({ decision, rule }) => html`<span class="row"><${Chip} tone=${TONES[decision] ?? ""}>${decision ?? "unknown"}</${Chip}
  ><span class="q">${rule}</span></span>`;
const Texts = ({ texts }) => texts.map((text, index) => html`<div key=${index} class="md"><p class="live">${text}</p></div>`);

const COLUMNS = [
  { key: "message", title: "Message", isFull: true, cell: (row) => html`<p class="q">${row.author}${row.is_bot && " (bot)"}, ${formatTime(row.at)}</p>
    <${Texts} texts=${[row.text, ...row.attachments.map((name) => `[${name}]`)].filter(Boolean)} />` },
  { key: "before", title: "Before", label: "before", isFull: true, cell: (row) => html`<${Details} decision=${row.before} rule=${row.before_rule} />
    <${Texts} texts=${row.before_replies} />` },
  { key: "after", title: "Rehearsed", label: "rehearsed", isFull: true, cell: (row) => html`<${Details} decision=${row.after} rule=${row.rule} />
    ${row.flip && html`<${Chip} tone="warn">${FLIPS[row.flip]}</${Chip}>`}<${Texts} texts=${row.replies} />
    <p class="q">${[row.reason, row.calls > 0 && formatDuration(1000 * row.seconds), row.cost !== null && formatCost(row.cost)].filter(Boolean).join(", ")}</p>` },
];

function Voice({ name, voice }) {
  if (!voice?.texts) return null;
  const share = (value) => value === null ? "-" : `${Math.round(100 * value)} %`;
  return html`<dt>${name}</dt><dd>${countOf(voice.texts, "reply", "replies")}; style rules kept: ${share(voice.kept)}, repetition:
    ${share(voice.repetition)}, distance of function words: ${voice.distance?.toFixed(2) ?? "-"}</dd>`;
}

function Summary({ report }) {
  return html`<${Card} title=${`${report.character} in ${report.room} (${report.platform})`} padded><dl class="kv">
    <dt>Messages</dt><dd>${formatCount(report.messages.length)}: ${formatCount(report.answered)} answered, ${formatCount(report.silent)} in silence,
      ${formatCount(report.undecided)} for the model to decide, ${formatCount(report.failed)} failed</dd>
    <dt>Changed</dt><dd>${formatCount(report.begins_to_speak)} answered now, ${formatCount(report.falls_silent)} in silence now</dd>
    <dt>Cost</dt><dd>${report.has_model ? formatCost(report.cost) : "no model was asked"}</dd>
    ${report.typical_seconds !== null && report.has_model && html`<dt>An answer took</dt><dd>${formatDuration(1000 * report.typical_seconds)}</dd>`}
    <${Voice} name="Voice before" voice=${report.voice_before} /><${Voice} name="Voice" voice=${report.voice} />
    ${Object.entries(report.omitted).map(([what, count]) => html`<dt key=${what}>Left out</dt><dd>${formatCount(count)} ${what}</dd>`)}</dl>
    ${report.stopped && html`<${Note} tone="warn">Stopped: ${report.stopped}</${Note}>`}</${Card}>`;
}

function Messages({ report }) {
  const [filter, setFilter] = useState({ flips: false, answered: false, rule: "" });
  const change = (changes) => setFilter({ ...filter, ...changes });
  const rows = report.messages.map((message, index) => ({ ...message, id: index })).filter((row) => (!filter.flips || row.flip)
    && (!filter.answered || row.after === "answered") && (!filter.rule || row.rule === filter.rule));
  const rules = Object.entries(report.rules).map(([rule, count]) => [rule, `${rule} (${count})`]);
  const actions = html`<${ToggleChip} isOn=${filter.flips} onChange=${(flips) => change({ flips })}>Changed</${ToggleChip}>
    <${ToggleChip} isOn=${filter.answered} onChange=${(answered) => change({ answered })}>Answered</${ToggleChip}>
    <${Select} label="Rule" options=${[["", "Rule"], ...rules]} value=${filter.rule} onChange=${(rule) => change({ rule })} />`;
  return html`<${Card} title=${countOf(rows.length, "message")} actions=${actions}>
    <${Table} label="Rehearsed messages" columns=${COLUMNS} rows=${rows.slice(0, SHOWN)}
      empty=${html`<${Empty} title="Nothing matches">No message has all that the filters ask for.</${Empty}>`} />
    ${rows.length > SHOWN && html`<p class="q pad">The first ${SHOWN} are shown; the filters reach the others.</p>`}</${Card}>`;
}

export default function Page() {
  const [report, setReport] = useState(null);
  const [problem, setProblem] = useState("");
  const open = async (event) => {
    const [file] = event.target.files;
    if (!file) return;
    const read = await file.text().then(JSON.parse).catch(() => null);
    setReport(read?.format === FORMAT ? read : null);
    setProblem(read?.format === FORMAT ? "" : `${file.name} is no report of bot rehearse --json.`);
  };
  return html`<${PageBody} title="Rehearsal"><div class="stack">
    <${Note}>Choose a report that <span class="mono">bot rehearse NEW.json --room R --json > report.json</span> has written. It stays on this computer.</${Note}>
    <input class="input" type="file" accept=".json,application/json" aria-label="Report" onChange=${open} />
    ${problem && html`<${Note} tone="bad">${problem}</${Note}>`}
    ${report && html`<${Summary} report=${report} /><${Messages} key=${`${report.room} ${report.messages.length} ${report.cost}`} report=${report} />`}</div></${PageBody}>`;
}
