// The steps of a turn as bars over time; each row opens its details.

import { formatCost, formatCount, formatDuration, purposeOf } from "./format.js";
import { classes, html, randomId, t, useRef, useState } from "./lib.js";

const COLOURS = { provider: "f2", model: "f1", action: "f3", send: "f4" };
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 60_000, 300_000];
const short = (ms) => (ms === 0 ? "0" : ms < 1000 ? `${ms} ms` : `${ms / 1000} s`);

/** Return round times between 0 and `total`, fewer where there is little room. */
export function ticksOf(total, isNarrow = false) {
  const step = STEPS.find((value) => total / value <= (isNarrow ? 3.6 : 4.6)) ?? total;
  const count = Math.floor(total / step) || 0;
  return Array.from({ length: count }, (_, index) => (index + 1) * step).filter((tick) => tick < total * (isNarrow ? 0.82 : 0.92));
}

/** Rows in order: what contains others stands before them; what comes after the answer stands last. */
export function Waterfall({ steps, calls = [], isNarrow = false }) {
  const total = Math.max(1, ...steps.map((step) => step.end_ms ?? step.start_ms));
  const ticks = ticksOf(total, isNarrow);
  const after = steps.findIndex((step) => step.is_after);
  const place = (ms) => `${(ms / total) * 100}%`;
  return html`<ol class="fall"><li class="axis"><span>Step</span><svg width="100%" height="22" aria-hidden="true">
      ${[0, ...ticks].map((tick) => html`<text x=${place(tick)} dx=${tick ? 3 : 0} y="15" key=${tick}>${short(tick)}</text>`)}</svg>
    <span class="dur">took</span></li>
    ${steps.map((step, index) => html`${index === after && html`<li class="after">After the answer; the room is free again</li>`}
      <${Row} key=${index} ...${{ step, ticks, place, total }} call=${calls[step.call]} />`)}</ol>`;
}

function Row({ step, call, ticks, place, total }) {
  const [isOpen, setOpen] = useState(false);
  const id = useRef(`step-${randomId()}`).current;
  const end = step.end_ms ?? step.start_ms;
  const width = Math.max(0.8, ((end - step.start_ms) / total) * 100);
  const colour = step.state === "failed" ? "fbad" : COLOURS[step.kind] ?? "f5";
  return html`<li><button type="button" aria-expanded=${String(isOpen)} aria-controls=${id} onClick=${() => setOpen(!isOpen)}>
      <span class=${classes("lab", step.parent !== null && "sub")}><span>${step.kind === "model" ? purposeOf(step.name) : t(step.name)}
        ${call && html` <span class="q">${call.model}</span>`}</span></span>
      <svg class="lane" aria-hidden="true">${ticks.map((tick) => html`<line class="tick" x1=${place(tick)} x2=${place(tick)}
        y1="0" y2="100%" key=${tick} />`)}<rect class=${colour} x=${place(step.start_ms)} width=${`${width}%`} y="35%" height="30%" rx="2" /></svg>
      <span class="dur">${step.end_ms === null ? "–" : formatDuration(end - step.start_ms)}</span></button>
    <div class="more" id=${id} hidden=${!isOpen}>
      ${step.note ? html`<p>${step.note}</p>` : !call && html`<p class="q">No details.</p>`}
      ${call && html`<p class="q">${t("{read} tokens in ({cached} cached), {written} out, {cost}", {
        read: formatCount(call.tokens_in), cached: formatCount(call.tokens_cached), written: formatCount(call.tokens_out),
        cost: formatCost(call.cost) })}</p>`}</div></li>`;
}
