// Costs: how much so far and by the end of the month, on what, and the limits of a day.

import { get, put, useLoad } from "../api.js";
import { formatCost, formatCount, formatPercent } from "../format.js";
import { html, useEffect, useState } from "../lib.js";
import { Empty, ErrorNote, Skeleton } from "../lists.js";
import { toast } from "../overlay.js";
import { Meter, Plot } from "../plot.js";
import { Link, link, setQuery } from "../router.js";
import { useConnection, useStream } from "../stream.js";
import { Button, Card, Note, PageBody, Segmented } from "../ui.js";

const PURPOSES = {
  reply: "Writing replies", should_respond: "Deciding whether to answer", step: "Next steps of a turn", summary: "Summaries",
  repair: "Repairing answers", post: "Posts", reflection: "Learning from messages", description: "Pictures and recordings",
  image: "Painting pictures", speech: "Speaking", embedding: "Vectors", check: "Checks", inline: "Inline answers",
  room_summary: "Summaries of rooms", care: "Recognizing distress", moderation: "Moderation", rehearsal: "Rehearsals", other: "Other", "": "Before purposes were counted",
};
const FILLS = ["f1", "f2", "f3", "f4"];
const LIMITS = { BUDGET_USD: "In all", BUDGET_USD_PER_ROOM: "Each room", BUDGET_USD_PER_PERSON: "Each person",
  BUDGET_TOKENS: "In all", BUDGET_TOKENS_PER_ROOM: "Each room", BUDGET_TOKENS_PER_PERSON: "Each person" };
const REFRESH_MS = 10_000;
const dayText = (at) => at.toISOString().slice(0, 10);
const named = (day, options) => new Intl.DateTimeFormat("en", { timeZone: "UTC", ...options }).format(new Date(`${day}T00:00:00Z`));

/** Return the first day of the period and the day after its last; days are those of UTC. */
function readPeriod(query) {
  const today = new Date();
  const tomorrow = dayText(new Date(Date.now() + 86_400_000));
  const month = `${dayText(today).slice(0, 8)}01`;
  const week = dayText(new Date(Date.now() - 6 * 86_400_000));
  const from = query.from ?? month;
  return { from, to: query.to ?? tomorrow, today: dayText(today), month, week };
}

export default function Page({ session, query }) {
  const period = readPeriod(query);
  const scope = { agent: query.agent, from: period.from, to: period.to };
  const days = useLoad("api/costs", { ...scope, by: ["day", "model"], expected: true });
  const purposes = useLoad("api/costs", { ...scope, by: "purpose" });
  const rooms = useLoad("api/costs", { ...scope, by: "room", limit: 4 });
  const people = useLoad("api/costs", { ...scope, by: "person", limit: 4 });
  const limits = useLoad("api/limits", { agent: query.agent });
  const answers = useLoad("api/receipts", { agent: query.agent, outcome: "answered", limit: 200 });
  const all = [days, purposes, rooms, people, limits];
  const [isStale, setStale] = useState(false);
  useStream([{ kind: "spending", agent: query.agent, is_summary: true }], () => setStale(true));
  useEffect(() => {
    if (!isStale) return undefined;
    const timer = setTimeout(() => (setStale(false), all.forEach((load) => load.reload())), REFRESH_MS);
    return () => clearTimeout(timer);
  }, [isStale]);
  const monthName = named(period.month, { month: "long" });
  const choices = [[period.today, "Today"], [period.week, "7 days"], [period.month, monthName]];
  const choose = (from) => setQuery({ from: from === period.month ? "" : from, to: "" }, { replace: false });
  const actions = html`<${Segmented} name="Period" options=${choices.filter(([value], index) => choices.findIndex(([other]) => other === value) === index)}
      value=${query.to ? "" : period.from} onChange=${choose} />
    <${Button} icon="down" onClick=${() => download(scope)}>CSV</${Button}>`;
  const limit = limits.value?.limits.find((item) => item.name === "BUDGET_USD" && item.value);
  const error = days.error && !days.value;
  return html`<${PageBody} title="Costs" actions=${actions}>
    ${error && html`<${ErrorNote} error=${days.error} onRetry=${days.reload} />`}
    ${!days.value && !error && html`<${Skeleton} rows=${12} />`}
    ${days.value && html`<${Numbers} ...${{ days: days.value, period, limit, answers: answers.value, limits: limits.value }} />
      <section class="card"><${Days} ...${{ days: days.value, period, limit, isOne: (limits.value?.limits.length ?? 0) <= 6 }} /></section>
      <${Degraded} items=${days.value.degraded} agents=${session.agents} /><${Unpriced} days=${days.value} />`}
    <div class="grid2"><${Bars} title="By purpose" load=${purposes} text=${(item) => PURPOSES[item.key] ?? item.key} />
      <${Bars} title="By room" load=${rooms} none="No room: posts, tasks and rehearsals" to=${(item) => `console/rooms/${item.key}`} rest="other rooms" />
      <${Bars} title="By person" load=${people} none="No person: posts, tasks and rehearsals" to=${(item) => `console/people/${item.key}`} rest="other people" />
      <${LimitCard} ...${{ limits, session, agents: session.agents }} />
      ${days.value && html`<${Bars} title="By model" load=${{ value: { sums: byModel(days.value), others_count: 0 } }} />`}</div></${PageBody}>`;
}

function Figure({ label, value, detail, to = "console/costs", query }) {
  return html`<li><a href=${link(to, query)}><span class="l">${label}</span><span class="v">${value}</span><span class="d">${detail}</span></a></li>`;
}

function Numbers({ days, period, limit, limits, answers }) {
  const { total, expected } = days;
  const spent = limits?.limits.filter((item) => item.name === "BUDGET_USD").reduce((sum, item) => sum + item.spent, 0);
  const costs = (answers?.receipts ?? []).map((item) => item.cost).filter((cost) => cost !== null).sort((a, b) => a - b);
  const middle = costs.length ? costs[Math.floor(costs.length / 2)] : null;
  const name = period.from === period.month ? `${named(period.month, { month: "long" })} so far`
    : period.from === period.today ? "Today" : `Since ${named(period.from, { day: "numeric", month: "short" })}`;
  return html`<ul class="card numbers four">
    <${Figure} label=${name} value=${formatCost(total.usd)} detail=${`${formatCount(total.calls)} calls, ${formatCount(total.failed_calls)} failed`} />
    <${Figure} label=${expected ? `Expected by ${named(expected.day, { day: "numeric", month: "short" })}` : "Expected this month"}
      value=${expected ? formatCost(expected.usd) : "–"} detail=${expected
        ? `${formatCost(expected.low)} to ${formatCost(expected.high)}, from the last ${expected.days} days` : "known after three days"} />
    <${Figure} label="Today" query=${{ from: period.today }} value=${spent === undefined ? "–" : formatCost(spent)} detail=${limit && spent !== undefined
      ? `${formatPercent(spent / limit.value)} of ${formatCost(limit.value)}` : "no limit in dollars"} />
    <${Figure} label="Cost of a reply" to="console/rooms" value=${middle === null ? "–" : formatCost(middle)} detail=${middle === null
      ? "no reply with a known price" : `half of the last ${formatCount(costs.length)} cost less`} /></ul>`;
}

/** Return the sums of each model, the highest first. */
function byModel(days) {
  const sums = new Map();
  for (const item of days.sums) {
    const model = item.keys[1] ?? "";
    const sum = sums.get(model) ?? { key: model, names: [model], usd: 0, unpriced_calls: 0 };
    sums.set(model, { ...sum, usd: sum.usd + item.usd, unpriced_calls: sum.unpriced_calls + item.unpriced_calls });
  }
  return [...sums.values()].sort((a, b) => b.usd - a.usd);
}

function Days({ days, period, limit, isOne }) {
  const models = byModel(days).filter((item) => item.usd > 0).map((item) => item.key);
  const shown = models.slice(0, models.length > 4 ? 3 : 4);
  const all = [];
  for (let at = new Date(`${days.first}T00:00:00Z`); dayText(at) <= days.last; at = new Date(at.getTime() + 86_400_000)) all.push(dayText(at));
  const valueOf = (day, accepts) => days.sums.filter((item) => item.keys[0] === day && accepts(item.keys[1]))
    .reduce((sum, item) => sum + item.usd, 0);
  const series = shown.map((model, index) => ({ name: model, fill: FILLS[index], values: all.map((day) => valueOf(day, (key) => key === model)) }));
  if (models.length > shown.length) {
    series.push({ name: "others", fill: "f5", values: all.map((day) => valueOf(day, (key) => !shown.includes(key))) });
  }
  const labels = all.map((day) => named(day, { day: "numeric", month: "short" }));
  const line = isOne && limit ? { value: limit.value, label: `Limit ${formatCost(limit.value)} a day` } : undefined;
  return html`<${Plot} title="By day, US dollars" kind="bars" height=${190} labels=${labels} series=${series} format=${formatCost}
    limit=${line} now=${days.last === period.today ? "today" : ""} emptyText="No costs in this time"
    summary=${`Costs from ${labels[0]} to ${labels.at(-1)} by day and model: ${formatCost(days.total.usd)} in all.`} />`;
}

const STEPS = { history: "shorter history", small: "small model", offline: "phrases without a model", silent: "no answers" };
const MAX_DEGRADED = 5;
const PLACES = { room: ["Room", "console/rooms"], person: ["Person", "console/people"] };

/** How answers degrade now, because little is left of a limit: for all, and the rooms and people of whose limits most is used. */
export function Degraded({ items, agents }) {
  const row = ({ agent_id, scope, id, name, step, limit, share }) => {
    const agent = agents.length > 1 ? ` (${agents.find((item) => item.id === agent_id)?.name ?? ""})` : "";
    const [kind, path] = PLACES[scope] ?? [];
    return html`<${Note} key=${`${agent_id}${limit}${id}`} tone=${step === "silent" ? "warn" : ""} icon="coin">${kind
      ? html`${kind} <${Link} to=${`${path}/${id}`}>${name || "unknown"}</${Link}>` : "Everywhere"}${agent} until midnight UTC: ${STEPS[step]}, since
      ${" "}${formatPercent(share)} of <code>${limit}</code> is used</${Note}>`;
  };
  const others = items.length - MAX_DEGRADED;
  return html`${items.slice(0, MAX_DEGRADED).map(row)}${others > 0 && html`<p class="q">and ${formatCount(others)} more rooms and people</p>`}`;
}

function Unpriced({ days }) {
  const models = byModel(days).filter((item) => item.unpriced_calls);
  if (!models.length) return null;
  const calls = models.reduce((sum, item) => sum + item.unpriced_calls, 0);
  return html`<${Note} icon="coin">${formatCount(calls)} calls of ${models.map((item, index) => html`${index ? ", " : ""}<code
    >${item.key || "unknown models"}</code>`)} have no price and are not in the dollars. Set <code>MODEL_PRICES</code>: ${" "}
    <${Link} to="console/settings">Settings</${Link}></${Note}>`;
}

/** Sums as bars, with the others together. */
function Bars({ title, load, text, to, none = "None", rest = "others" }) {
  const { value, error, reload } = load;
  const sums = value?.sums ?? [];
  const max = Math.max(...sums.map((item) => item.usd), value?.others?.usd ?? 0, 1e-9);
  const line = (item, label, href) => {
    const content = html`<span class="cut">${label}</span><${Meter} share=${item.usd / max} /><span class="n">${formatCost(item.usd)}</span>`;
    return html`<li key=${item.key ?? label}>${href ? html`<a href=${href}>${content}</a>` : html`<div>${content}</div>`}</li>`;
  };
  return html`<${Card} title=${title}>${error && !value && html`<${ErrorNote} error=${error} onRetry=${reload} />`}
    ${!value && !error && html`<${Skeleton} rows=${4} />`}
    ${value && !sums.length && html`<${Empty} title="No costs in this time" />`}
    ${sums.length > 0 && html`<ul class="bars pad-y">${sums.map((item) => line(item, item.key === null ? none
        : text ? text(item) : item.names[0] || "unknown", item.key !== null && to ? link(to(item)) : ""))}
      ${value.others && line(value.others, `${formatCount(value.others_count)} ${rest}`)}</ul>`}</${Card}>`;
}

function LimitCard({ limits, session, agents }) {
  const [drafts, setDrafts] = useState({});
  const [error, setError] = useState(null);
  const { isLost } = useConnection();
  const rows = limits.value?.limits ?? [];
  const agentIds = [...new Set(rows.map((item) => item.agent_id))];
  const canChange = session.role === "operator" && agentIds.length === 1;
  const save = async () => {
    const values = Object.fromEntries(Object.entries(drafts).map(([name, text]) => [name, text.trim() === "" ? null : parseAmount(text)]));
    setError(null);
    try {
      await put("api/limits", { limits: values }, { query: { agent: agentIds[0] } });
      setDrafts({});
      await limits.reload();
      toast("Saved; the limits count from now on");
    } catch (failure) {
      setError(failure);
    }
  };
  const reason = isLost ? "Not connected to the bot" : Object.keys(drafts).length ? "" : "Nothing has been changed";
  return html`<${Card} title="Limits a day (UTC)" actions=${canChange && html`<${Button} onClick=${save} reason=${reason}
      onRefused=${toast}>Save</${Button}>`}><div class="pad stack">
    ${limits.error && html`<${ErrorNote} error=${limits.error} onRetry=${limits.reload} />`}
    ${error && html`<${ErrorNote} error=${error} />`}
    ${!limits.value && !limits.error && html`<${Skeleton} rows=${6} />`}
    <div class="limits">${rows.map((row) => html`<${LimitRow} key=${`${row.agent_id}${row.name}`} row=${row} canChange=${canChange} draft=${drafts[row.name]}
      agent=${agentIds.length > 1 ? agents.find((item) => item.id === row.agent_id)?.name : ""}
      onInput=${(text) => setDrafts((old) => ({ ...old, [row.name]: text }))} />`)}</div>
    <p class="q">0 is no limit. An empty field brings the value of the variable back.${agentIds.length > 1
      ? " Choose a character to change its limits." : ""}</p></div></${Card}>`;
}

const parseAmount = (text) => Number(text.trim().replace(/[$,\s]/g, ""));

function LimitRow({ row, canChange, draft, agent, onInput }) {
  const isMoney = row.unit === "usd";
  const write = (amount) => (isMoney ? formatCost(amount) : `${formatCount(amount)} tokens`);
  const label = `${LIMITS[row.name] ?? row.name}, ${isMoney ? "dollars" : "tokens"}${agent ? `, ${agent}` : ""}`;
  const origin = row.origin === "stored" ? `set here; the variable says ${row.variable ? write(row.variable) : "no limit"}` : "";
  const most = row.highest ? `most: ${row.highest.name || "unknown"}` : "";
  const share = row.value ? row.spent / row.value : 0;
  const name = row.name.split(/(?<=_)/).map((part) => html`<wbr />${part}`);
  return html`<div class="limit-row"><span>${label}<br /><span class="q">${name}${[most, origin].filter(Boolean).map((note) => `; ${note}`)}</span></span>
    <span class="meter-wrap"><${Meter} share=${share} tone=${share >= 1 ? "warn" : ""} /><span class="q2">${write(row.spent)} used</span></span>
    ${canChange ? html`<label class="row"><span class="q">${isMoney ? "$" : ""}</span><input class="input short" inputmode="decimal"
      value=${draft ?? String(row.value)} aria-label=${`${label}, limit a day`} onInput=${(event) => onInput(event.target.value)} /></label>`
      : html`<span class="num">${row.value ? write(row.value) : "no limit"}</span>`}</div>`;
}

/** Save what is shown as a file: the costs by day and model of the period. */
async function download(scope) {
  try {
    const table = await get("api/costs", { ...scope, by: ["day", "model"] }, { headers: { Accept: "text/csv" } });
    const url = URL.createObjectURL(new Blob([table], { type: "text/csv" }));
    const anchor = Object.assign(document.createElement("a"), { href: url, download: `costs-${scope.from}.csv` });
    anchor.click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  } catch (error) {
    toast(error.message);
  }
}
