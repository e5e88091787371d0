// How costs, tokens, sizes, durations and times are written; unknown is "–", never 0.

import { html, language, t, useNow } from "./lib.js";

export { useNow };

const LOCALE = language;
const DAY = 86_400_000;
const clock = (options) => new Intl.DateTimeFormat(LOCALE, { hourCycle: "h23", ...options });
const TIME = clock({ hour: "2-digit", minute: "2-digit" });
const SECONDS = clock({ hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DATE = clock({ day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const FULL = clock({ dateStyle: "full", timeStyle: "long" });
const isUnknown = (value) => value === null || value === undefined || Number.isNaN(value);

/** Return an amount in dollars: four digits below $0.10, never rounded to nothing. Unknown is "price unknown". */
export function formatCost(value) {
  if (isUnknown(value)) return t("price unknown");
  const amount = Number(value);
  if (amount === 0) return "$0";
  if (amount < 0.0001) return "< $0.0001";
  if (amount < 0.1) return `$${amount.toFixed(4)}`;
  return `$${amount.toLocaleString(LOCALE, { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
}

/** Return a sum of costs, with the number of calls whose price is unknown. */
export function formatCostSum(value, unpricedCalls = 0) {
  if (!unpricedCalls) return formatCost(value);
  const calls = `${formatCount(unpricedCalls)} ${unpricedCalls === 1 ? "call" : "calls"} without a price`;
  return Number(value) ? `${formatCost(value)} and ${calls}` : calls;
}

/** Return a number of messages, tokens or calls with separators. */
export function formatCount(value) {
  return isUnknown(value) ? "–" : Number(value).toLocaleString(LOCALE);
}

/** Return a size: 973 B, 18 KB, 1.2 MB. */
export function formatSize(bytes) {
  if (isUnknown(bytes)) return "–";
  if (bytes < 1000) return `${bytes} B`;
  const power = Math.min(3, Math.floor(Math.log10(Math.max(bytes, 1000)) / 3));
  const value = bytes / 1000 ** power;
  return `${value < 10 && power > 1 ? value.toFixed(1) : Math.round(value)} ${["B", "KB", "MB", "GB"][power]}`;
}

/** Return a duration: 6 ms, 2.84 s, 38.2 s, 3 min 20 s, 2 h 5 min. */
export function formatDuration(ms) {
  if (isUnknown(ms)) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 9995) return `${(ms / 1000).toFixed(2)} s`;
  if (ms < 59_950) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 2880) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return t("{count} days", { count: Math.round(minutes / 1440) });
}

/** Return how long ago a time is, or the date from one day on; a coming time is "in 4 min". */
export function formatAge(at, now = Date.now()) {
  if (isUnknown(at)) return "–";
  const time = new Date(at).getTime();
  const seconds = Math.round(Math.abs(now - time) / 1000);
  if (Math.abs(now - time) >= DAY) return DATE.format(time);
  if (seconds < 2) return t(time > now ? "now" : "just now");
  const length = seconds < 60 ? `${seconds} s` : seconds < 3600 ? `${Math.floor(seconds / 60)} min`
    : `${Math.floor(seconds / 3600)} h`;
  return t(time > now ? "in {length}" : "{length} ago", { length });
}

/** Return a time of day in the browser's zone: "minute", "second" or "date" (21 Nov, 18:02). */
export function formatTime(at, precision = "minute") {
  if (isUnknown(at)) return "–";
  return { minute: TIME, second: SECONDS, date: DATE }[precision].format(new Date(at));
}

/** Return a time with date, seconds and zone, for titles. */
export function formatFull(at) {
  return isUnknown(at) ? "" : FULL.format(new Date(at));
}

/** Return a share between 0 and 1 as percent. */
export function formatPercent(share) {
  return isUnknown(share) ? "–" : `${formatCount(Math.round(share * 100))} %`;
}

/** Return a count with its noun: "1 room", "3 rooms". */
export function countOf(number, singular, plural = `${singular}s`) {
  return `${formatCount(number)} ${number === 1 ? singular : plural}`;
}

/** A point in time as `<time>`: its age, or the time of day with `as="minute"`, `"second"` or `"date"`. */
export function Time({ at, as = "age", ...rest }) {
  const now = useNow(as === "age");
  if (isUnknown(at)) return html`<span ...${rest}>–</span>`;
  const text = as === "age" ? formatAge(at, now) : formatTime(at, as);
  return html`<time datetime=${new Date(at).toISOString()} title=${formatFull(at)} ...${rest}>${text}</time>`;
}

const PURPOSES = { reply: "Reply", shouldRespond: "Should it answer", embedding: "Vector", summary: "Summary", repair: "Repair" };

/** Return what a model call is for, as people say it. */
export const purposeOf = (purpose) => t(PURPOSES[purpose] ?? purpose);
