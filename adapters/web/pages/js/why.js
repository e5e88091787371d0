// The receipt in words: one view for the drawer of Chat, beside a room, and on a page of its own.
//
// `<${Why} id session isBrief isNarrow />` loads it by the id of a message or receipt; `isBrief` leaves out the texts of
// message and replies, `isNarrow` is for a panel. The parts are for the page, which arranges them in two columns.

import { useLoad } from "./api.js";
import { formatCost, formatCostSum, formatCount, formatDuration, formatSize, Time, purposeOf } from "./format.js";
import { classes, html, t, useMemo, useState } from "./lib.js";
import { ErrorNote, Skeleton } from "./lists.js";
import { Dot, Icon, Note } from "./ui.js";
import { Waterfall } from "./waterfall.js";

const MARKS = {
  answered: ["check", "good"],
  ignored: ["silent", "q2"],
  superseded: ["link", "q2"],
  failed: ["warn", "bad"],
  cancelled: ["stop", "q2"],
  expired: ["clock", "warn"],
  parked: ["pause", "warn"],
};
const SWATCHES = ["f1", "f2", "f3", "f4", "f5"];
const DELIVERY = { sent: "good", pending: "off", attempting: "off", unknown: "warn", failed: "bad", cancelled: "off" };

/** Filters of receipts, for a `Select`: by outcome, and by time in hours. */
export const OUTCOMES = [["", "Outcome"], ["answered", "Answered"], ["ignored", "Stayed silent"], ["superseded", "With the next"],
  ["failed", "Failed"], ["cancelled", "Cancelled"], ["expired", "Expired"], ["parked", "Parked"]];
export const TIMES = [["", "Any time"], ["1", "Last hour"], ["24", "Last day"], ["168", "Last week"]];

/** The time so many hours ago, the same until `hours` changes. */
export function useSince(hours) {
  return useMemo(() => hours && new Date(Date.now() - hours * 3_600_000).toISOString(), [hours]);
}

/** The sign of an outcome; the sentence beside it says the same. */
export function OutcomeMark({ outcome }) {
  const [icon, tone] = MARKS[outcome] ?? ["clock", "q2"];
  return html`<span class=${classes("why-mark", tone)}><${Icon} name=${icon} /></span>`;
}

/** Load a receipt by its id or its message's, and show it. */
export function Why({ id, session, isBrief = false, isNarrow = false }) {
  const { value, error, reload } = useLoad(`api/receipts/${id}`);
  if (error && !value) return html`<${ErrorNote} error=${error} onRetry=${reload} />`;
  if (!value) return html`<${Skeleton} rows=${8} label="Loading the receipt" />`;
  return html`<${Receipt} receipt=${value} ...${{ session, isBrief, isNarrow }} />`;
}

/** A whole receipt in one column. */
export function Receipt({ receipt, session, isBrief = false, isNarrow = false }) {
  return html`<div class=${classes("stack wide", isNarrow && "narrow")}>
    <div class="verdict"><${Verdict} receipt=${receipt} />
      ${isBrief && receipt.message && html`<p class="line cut">${receipt.message.text}</p>`}</div>
    <${Figures} receipt=${receipt} />
    ${!isBrief && html`<${Message} receipt=${receipt} />`}
    <${Gate} receipt=${receipt} />
    <${Timing} receipt=${receipt} isNarrow=${isNarrow} />
    <${Calls} receipt=${receipt} />
    <${Prompts} receipt=${receipt} session=${session} />
    <${MemoryUsed} receipt=${receipt} />
    <${Notes} receipt=${receipt} />
    ${!isBrief && html`<${Deliveries} receipt=${receipt} />`}
    <${Ids} receipt=${receipt} /></div>`;
}

/** A part of a receipt under its heading; `level` 2 on the page, 3 in a panel. */
export function Section({ title, small, level = 3, children }) {
  const Heading = `h${level}`;
  return html`<section class="sect"><${Heading}>${title} ${small && html`<small>${small}</small>`}</${Heading}>${children}</section>`;
}

/** The sentence and the rule that decided; as `h1` on the page. */
export function Verdict({ receipt, isPage = false, children }) {
  const Head = isPage ? "h1" : "p";
  return html`<${Head} class="head"><${OutcomeMark} outcome=${receipt.outcome} />${receipt.headline}</${Head}>
    <p class="q2">${receipt.rule ? html`Decided by <code>${receipt.rule}</code>` : t("Not decided yet")}${children}</p>`;
}

/** Duration, cost and tokens. */
export function Figures({ receipt }) {
  const unpriced = receipt.model_calls.filter((call) => call.cost === null).length;
  const cost = receipt.model_calls.length ? formatCostSum(receipt.cost ?? 0, unpriced) : formatCost(0);
  const values = [
    ["Took", formatDuration(receipt.seconds === null ? null : receipt.seconds * 1000)],
    ["Cost", cost],
    ["Tokens in", formatCount(receipt.tokens_in)],
    ["Tokens out", formatCount(receipt.tokens_out)],
  ];
  return html`<dl class="facts">${values.map(([name, value]) => html`<div key=${name}><dt>${t(name)}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/** The message and what was answered. */
export function Message({ receipt, level }) {
  const texts = [receipt.message, ...receipt.replies].filter(Boolean);
  return html`<${Section} title="The message" level=${level}>
    ${!receipt.message && !receipt.rule.startsWith("command") && html`<p class="q2">The message was deleted.</p>`}
    ${texts.map((message) => html`<div class="quote" key=${message.id}><span class="who">${message.author.name}
      ${message === receipt.message && receipt.room ? ` in ${receipt.room}` : ""} · <${Time} at=${message.created_at} as="second" /></span>
      ${message.text}</div>`)}</${Section}>`;
}

/** The checks in their order, with the one that decided. */
export function Gate({ receipt, level }) {
  if (!receipt.gate?.length) return null;
  return html`<${Section} title="How it was decided" small="checked in this order; the first match decides" level=${level}>
    <ol class="ladder">${receipt.gate.map((item) => html`<li class=${item.decided ? "on" : ""} key=${item.check}
      aria-current=${item.decided ? "step" : undefined}>
      ${item.decided ? html`<${Icon} name="right" size="s" />` : html`<span></span>`}
      <span>${item.check}</span><span>${item.result}</span></li>`)}</ol></${Section}>`;
}

/** The waterfall of the turn. */
export function Timing({ receipt, isNarrow, level }) {
  if (!receipt.steps?.length) return null;
  const took = receipt.seconds === null ? "" : t("{time} until it was closed", { time: formatDuration(receipt.seconds * 1000) });
  return html`<${Section} title="Time" small=${took} level=${level}>
    <${Waterfall} steps=${receipt.steps} calls=${receipt.model_calls} isNarrow=${isNarrow} /></${Section}>`;
}

/** Tokens and cost of each model call. */
export function Calls({ receipt, level }) {
  const calls = receipt.model_calls;
  if (!calls.length) {
    return html`<${Section} title="Tokens and cost" level=${level}><p class="q2">No model was asked. This cost nothing.</p></${Section}>`;
  }
  return html`<${Section} title="Tokens and cost" small=${formatCost(receipt.cost)} level=${level}>
    <div class="card scroll-x" tabindex="0" role="region" aria-label="Model calls"><table class="table"><thead><tr>
      <th scope="col">Call</th>${["In", "Cached", "Out", "Cost"].map((name) => html`<th scope="col" class="num" key=${name}>${t(name)}</th>`)}
    </tr></thead><tbody>${calls.map((call, index) => html`<tr key=${index}>
      <td><span class="call">${purposeOf(call.purpose)} <span class="q">${call.model}</span></span>
        ${call.error && html`<span class="q bad"> ${call.error === "cancelled" ? t("cancelled") : t("failed: {cause}", { cause: call.error })}</span>`}</td>
      <td class="num">${call.is_estimate ? t("about ") : ""}${formatCount(call.tokens_in)}</td>
      <td class="num q2">${formatCount(call.tokens_cached)}</td><td class="num">${formatCount(call.tokens_out)}</td>
      <td class="num">${formatCost(call.cost)}</td></tr>`)}</tbody></table></div></${Section}>`;
}

/** The prompts as they were sent, loaded when they are asked for; for operators only. */
export function Prompts({ receipt, session, level }) {
  const [isOpen, setOpen] = useState(false);
  const { value, error, reload } = useLoad(isOpen ? `api/receipts/${receipt.id}/prompts` : null);
  if (session?.role !== "operator" || !receipt.has_prompts) return null;
  return html`<${Section} title="The prompt as it was sent" small="operators only" level=${level}>
    ${!isOpen && html`<button type="button" class="btn" onClick=${() => setOpen(true)}>Show the prompt</button>`}
    ${isOpen && error && html`<${ErrorNote} error=${error} onRetry=${reload} />`}
    ${isOpen && !error && !value && html`<${Skeleton} rows=${4} label="Loading the prompt" />`}
    ${value?.prompts.map((prompt) => html`<${PromptSections} key=${prompt.call} prompt=${prompt} />`)}
    ${value && !value.prompts.length && html`<p class="q2">The prompt is no longer stored.</p>`}</${Section}>`;
}

/** One prompt: a bar of its sections, and each section to be opened. */
function PromptSections({ prompt }) {
  const total = prompt.sections.reduce((sum, section) => sum + section.bytes, 0) || 1;
  let x = 0;
  const blocks = prompt.sections.map((section, index) => {
    const start = x;
    x += (section.bytes / total) * 100;
    return html`<rect class=${SWATCHES[index % 5]} x=${`${start}%`} width=${`${Math.max(x - start - 0.3, 0.1)}%`} height="10" key=${index} />`;
  });
  return html`<p class="q">${purposeOf(prompt.purpose)}, ${formatSize(total)}</p><div class="sections">
    <svg aria-hidden="true">${blocks}</svg>${prompt.sections.map((section, index) => html`<details key=${index}><summary>
      <svg class="sw" aria-hidden="true"><rect class=${SWATCHES[index % 5]} width="100%" height="100%" /></svg>
      <${Icon} name="right" size="s turn" /><span class="cut">${section.name}</span>
      <span class="q2">${formatSize(section.bytes)}</span></summary>
      <pre tabindex="0" role="region" aria-label=${section.name}>${section.text}</pre></details>`)}</div>`;
}

/** What was taken from memory, and from whom. */
export function MemoryUsed({ receipt, level }) {
  if (!receipt.memory?.length) return null;
  return html`<${Section} title="Used from memory" level=${level}><ul class="rail">${receipt.memory.map((item) => html`
    <li class="fact" key=${item.id}><span>${item.text}</span><span class="from">${[item.document ?? item.author,
      item.score === null ? null : t("score {score}", { score: item.score.toFixed(2) })].filter(Boolean).join(", ")} · ${t("audience: {audience}", { audience: item.audience })}</span>
    </li>`)}</ul></${Section}>`;
}

/** What else happened. */
export function Notes({ receipt, level }) {
  if (!receipt.notes.length) return null;
  return html`<${Section} title="Notes" level=${level}>${receipt.notes.map((note) => html`<${Note} icon="warn" key=${note}>${note}</${Note}>`)}</${Section}>`;
}

/** The parts that were sent, each with its state. */
export function Deliveries({ receipt, level }) {
  const parts = receipt.deliveries;
  return html`<${Section} title="Deliveries" level=${level}>${parts.length ? html`<ul class="rail">${parts.map((part) => html`
    <li class="fact" key=${part.id}><span class="row"><${Dot} tone=${DELIVERY[part.state] ?? "off"} />Part ${part.part + 1} of
      ${" "}${parts.length}: ${part.state === "unknown" ? "held" : part.state}${part.cause ? `, ${part.cause}` : ""}</span>
      <span class="from mono">${part.id}</span></li>`)}</ul>` : html`<p class="q2">Nothing was sent.</p>`}</${Section}>`;
}

/** The ids, for commands and other tools. */
export function Ids({ receipt, level }) {
  const ids = { Receipt: receipt.id, Message: receipt.message_id };
  return html`<${Section} title="Ids" level=${level}><dl class="kv">${Object.entries(ids).map(([name, id]) => html`
    <dt>${t(name)}</dt><dd class="mono">${id}</dd>`)}</dl></${Section}>`;
}
