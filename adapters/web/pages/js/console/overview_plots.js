// The plots of the overview: messages, times to the reply, failures by cause, and what was spent today.

import { countOf, formatCost, formatDuration, formatTime } from "../format.js";
import { html } from "../lib.js";
import { Plot } from "../plot.js";
import { Card } from "../ui.js";

const NOW = { hour: "this minute", day: "these 10 min", month: "these 6 h" };
const FAILURE_STEPS = { hour: 5, day: 6, month: 4 }; // so many steps in a bar: 5 minutes, an hour, a day
// In a fixed order, so that a cause keeps its colour.
const CAUSES = { ModelUnavailable: "No model answered", ModelBusy: "Model busy", RESPONSE_TIMEOUT: "Took too long",
  ModelRefused: "Model refused", PromptTooLong: "Prompt too long", NoAnswer: "Empty answer", "internal error": "Fault of the bot",
  shouldRespond: "No decision" };
const FILLS = ["f3", "f2", "f4", "f1"];
const DAY_MS = 86_400_000;

export function Plots({ metrics, range }) {
  const start = new Date(metrics.from).getTime();
  const precision = range === "month" ? "date" : "minute";
  const labels = metrics.in.map((_, index) => formatTime(start + index * metrics.step_s * 1000, precision));
  const shared = { labels, now: NOW[range] };
  return html`<div class="grid2">
    <${Card}><${Traffic} ...${{ metrics, shared, range }} /></${Card}><${Card}><${Speed} ...${{ metrics, shared }} /></${Card}>
    <${Card}><${Failures} ...${{ metrics, labels, range }} /></${Card}><${Card}><${Spent} spent=${metrics.spent} /></${Card}></div>`;
}

function Traffic({ metrics, shared, range }) {
  const minutes = metrics.step_s / 60;
  const perMinute = (values) => values.map((value) => value / minutes);
  const total = (values) => values.reduce((sum, value) => sum + value, 0);
  const series = [
    { name: "In", values: perMinute(metrics.in), line: "c1", fill: "f1", hasArea: true },
    { name: "Replies", values: perMinute(metrics.replies), line: "c2", isDashed: true },
  ];
  const summary = `${countOf(total(metrics.in), "message")} came in within this ${range}, ${total(metrics.replies)} were answered.`;
  const format = (value) => (Number.isInteger(value) ? String(value) : value.toFixed(value < 1 ? 2 : 1));
  return html`<${Plot} title="Messages and replies a minute" ...${{ ...shared, series, summary, format }}
    wholeNumbers=${range === "hour"} emptyText=${`No messages in this ${range}`} />`;
}

function Speed({ metrics, shared }) {
  const series = [
    { name: "p50", values: metrics.p50_ms, line: "c1", fill: "f1" },
    { name: "p95", values: metrics.p95_ms, line: "c3", fill: "f3", isDashed: true },
  ];
  const known = metrics.p50_ms.filter((value) => value !== null);
  const summary = known.length ? `The median lay between ${formatDuration(Math.min(...known))} and ${formatDuration(Math.max(...known))}.`
    : "No message was answered.";
  const format = (value) => (value === 0 ? "0 s" : formatDuration(value));
  const current = metrics.p50_ms.findLastIndex((value) => value !== null); // the latest answer is what counts
  const now = current >= 0 ? shared.labels[current] : shared.now;
  return html`<${Plot} title="Time to the reply" ...${{ ...shared, series, summary, format, now, current }} emptyText="No replies in this time" />`;
}

function Failures({ metrics, labels, range }) {
  const size = FAILURE_STEPS[range];
  const sum = (values) => labels.reduce((groups, _, index) => {
    const group = Math.floor(index / size);
    groups[group] = (groups[group] ?? 0) + (values[index] ?? 0);
    return groups;
  }, []);
  const order = [...Object.keys(CAUSES), ...Object.keys(metrics.failures).sort()];
  const causes = [...new Set(order)].filter((cause) => metrics.failures[cause]);
  const series = causes.slice(0, FILLS.length).map((cause, index) => ({ name: CAUSES[cause] ?? cause, fill: FILLS[index],
    values: sum(metrics.failures[cause]) }));
  const others = causes.slice(FILLS.length).map((cause) => sum(metrics.failures[cause]));
  if (others.length) series.push({ name: "Others", fill: "f5", values: others[0].map((_, index) => others.reduce((all, item) => all + item[index], 0)) });
  const total = series.reduce((all, item) => all + item.values.reduce((one, value) => one + value, 0), 0);
  const grouped = labels.filter((_, index) => index % size === 0);
  return html`<${Plot} title="Failures by cause" kind="bars" labels=${grouped} series=${series} format=${(value) => String(Math.round(value))}
    summary=${`${countOf(total, "message")} failed within this ${range}.`} wholeNumbers=${true} emptyText=${`No failures in this ${range}`} />`;
}

/** How many people liked replies by a reaction, and how many did not, on each of the last fourteen days (UTC). */
export function Votes({ days }) {
  const labels = Array.from({ length: 14 }, (_, index) => new Date(Date.now() - (13 - index) * DAY_MS).toISOString().slice(0, 10));
  const of = (name) => labels.map((day) => days.find((item) => item.day === day)?.[name] ?? 0);
  const series = [{ name: "Liked", fill: "f1", values: of("liked") }, { name: "Disliked", fill: "f2", values: of("disliked") }];
  const [liked, disliked] = series.map(({ values }) => values.reduce((sum, value) => sum + value, 0));
  return html`<${Card}><${Plot} title="Reactions to replies by day (UTC)" kind="bars" labels=${labels} series=${series} format=${String}
    wholeNumbers=${true} summary=${`${liked} liked and ${disliked} disliked a reply within 14 days.`} emptyText="No reactions" /></${Card}>`;
}

/** The sums of today by time: known since the start of the bot, so the line may begin later than the day. */
function Spent({ spent }) {
  const start = new Date(spent.from).getTime();
  const count = spent.usd.length;
  const labels = spent.usd.map((_, index) => `${String(Math.floor((index * 24) / count)).padStart(2, "0")}:${
    String(((index * 1440) / count) % 60).padStart(2, "0")}`);
  const current = Math.max(0, Math.min(count - 1, Math.floor(((Date.now() - start) / DAY_MS) * count)));
  const sum = spent.usd[current];
  const expected = spent.usd.map((_, index) => (spent.expected === null || sum === null || index < current ? null
    : sum + ((spent.expected - sum) * (index - current)) / Math.max(1, count - 1 - current)));
  const series = [{ name: "So far", values: spent.usd, line: "c1", fill: "f1", hasArea: true }];
  if (spent.expected !== null) series.push({ name: "Expected", values: expected, line: "c5", isDashed: true });
  const limit = spent.limit ? { value: spent.limit, label: `${formatCost(spent.limit)} a day` } : undefined;
  const forecast = spent.expected === null ? "" : `, about ${formatCost(spent.expected)} by midnight`;
  return html`<${Plot} title="Spent today (UTC)" ...${{ labels, series, limit, current }} format=${formatCost} now="now"
    summary=${`${formatCost(sum)} spent so far${forecast}.`} emptyText="Nothing spent today" />`;
}
