// Overview: is all well, what needs attention, the accounts, open work, how it has been, models and silences.

import { useLoad } from "../api.js";
import { countOf, formatCost, formatCount, formatDuration, formatTime, Time, useNow } from "../format.js";
import { html, useEffect, useRef, useState } from "../lib.js";
import { ErrorNote, Skeleton, Table } from "../lists.js";
import { Meter, Strip } from "../plot.js";
import { Link, link, setQuery } from "../router.js";
import { useConnection, useStream } from "../stream.js";
import { Button, Card, Dot, Icon, PageBody, Segmented, State } from "../ui.js";
import { Plots, Votes } from "./overview_plots.js";

const RANGES = [["hour", "Hour"], ["day", "Day"], ["month", "Month"]];
const STATE_DELAY = 1000; // numbers change at most once a second
const FIGURES_DELAY = 5000;
const REPEAT = 30_000; // lateness comes without an event
const PLATFORMS = { telegram: "Telegram", discord: "Discord", x: "X", web: "The page and the API" };
const STATES = { connected: ["good", "Connected"], connecting: ["off", "Connecting"], degraded: ["warn", "Cut off"],
  off: ["bad", "Off"] };
const HALF_HOUR = 1_800_000;
const MAX_RULES = 8; // of the silences, until all are asked for

export default function Page({ query }) {
  const agent = query.agent;
  const range = RANGES.some(([key]) => key === query.range) ? query.range : "hour";
  const overview = useLoad("api/overview", { agent });
  const isReady = overview.value !== null; // the first paint needs this answer only
  const metrics = useLoad(isReady ? "api/metrics" : null, { agent, range });
  const models = useLoad(isReady ? "api/models" : null, { agent });
  const silences = useLoad(isReady ? "api/receipts/counts" : null, { agent });
  const votes = useLoad(isReady ? "api/votes" : null, { agent });
  useUpdates(agent, [[STATE_DELAY, [overview]], [FIGURES_DELAY, [metrics, models, silences, votes]]]);
  const choice = html`<${Segmented} name="How far back" options=${RANGES} value=${range}
    onChange=${(key) => setQuery({ range: key === "hour" ? null : key })} />`;
  return html`<${PageBody} title="Overview" actions=${choice}>
    ${overview.error && html`<${ErrorNote} error=${overview.error} onRetry=${overview.reload} />`}
    ${!isReady && !overview.error && html`<${Skeleton} rows=${8} label="Loading the overview" />`}
    ${isReady && html`<${Shown} ...${{ overview: overview.value, error: overview.error, metrics, models, silences, votes, range, agent }} />`}</${PageBody}>`;
}

function Shown({ overview, error, metrics, models, silences, votes, range, agent }) {
  return html`<${Headline} ...${{ overview, agent, error }} />
    <${Accounts} accounts=${overview.accounts} startedAt=${overview.started_at} />
    <${Numbers} overview=${overview} agent=${agent} />
    ${metrics.error && html`<${ErrorNote} error=${metrics.error} onRetry=${metrics.reload} />`}
    ${metrics.value && html`<${Plots} metrics=${metrics.value} range=${range} />`}
    ${votes.value?.days.length > 0 && html`<${Votes} days=${votes.value.days} />`}
    <div class="grid-main"><${Models} list=${models} />
      <${Silences} list=${silences} /></div>`;
}

/** Load lists again after events, each group at most once in its time, and now and then; not while the tab is hidden. */
function useUpdates(agent, groups) {
  const latest = useRef(groups);
  const timers = useRef([]);
  latest.current = groups;
  const reload = (index) => latest.current[index][1].forEach((list) => list.reload());
  const request = () => latest.current.forEach(([delay], index) => {
    timers.current[index] ??= setTimeout(() => {
      timers.current[index] = null;
      if (document.visibilityState === "visible") reload(index);
    }, delay);
  });
  const kinds = ["receipt", "delivery", "account", "model", "spending", "task"];
  useStream(kinds.map((kind) => ({ kind, is_summary: true, ...(agent && { agent }) })), request);
  useEffect(() => {
    const repeat = setInterval(request, REPEAT);
    addEventListener("visibilitychange", request);
    return () => {
      clearInterval(repeat);
      removeEventListener("visibilitychange", request);
      timers.current.forEach(clearTimeout);
      timers.current = [];
    };
  }, []);
}

function Headline({ overview, agent, error }) {
  const { isLost } = useConnection();
  const { problems } = overview;
  const headline = isLost || error ? { level: "bad", text: isLost ? "Not connected to the bot" : "The state is unknown",
    summary: html`What you see is from <${Time} at=${overview.at} as="second" />.` } : overview.headline;
  const isWell = headline.level === "good";
  return html`<section class="card" aria-label="State"><div class="well"><span class=${`big ${isWell ? "" : headline.level}`}>
      <${Icon} name=${isWell ? "check" : "warn"} /></span><p>${headline.text}</p><p class="q2">${headline.summary}</p></div>
    <p class="vh" role="status">${headline.text}</p>
    ${problems.length > 0 && html`<ul class="needs" aria-label="What needs attention">${problems.map((problem, index) => html`
      <li key=${`${problem.kind}${index}`}><${Dot} tone=${problem.level} /><span><b>${problem.text}</b>${" "}
        <span class="q2">${problem.why}${problem.since && html`${" "}Since <${Time} at=${problem.since} as="date" />.`}</span></span>
        <a class="btn" href=${link(problem.href, { agent })} aria-label=${`${problem.action}: ${problem.text}`}
          ><span>${problem.action}</span><${Icon} name="right" /></a></li>`)}</ul>`}</section>`;
}

function Accounts({ accounts, startedAt }) {
  const rows = accounts.map((account, index) => ({ ...account, id: `${account.platform}${index}` }));
  const columns = [
    { key: "name", title: "Account", cell: (row) => html`<${AccountName} account=${row} />` },
    { key: "state", title: "State", cell: (row) => html`<${AccountState} account=${row} />` },
    { key: "in", title: "Last event in", label: "in", isNumber: true, cell: (row) => html`<${Time} at=${row.last_in_at} />` },
    { key: "out", title: "Last sent", label: "sent", isNumber: true, cell: (row) => html`<${Time} at=${row.last_out_at} />` },
    { key: "history", title: "Connected", isFull: true, cell: (row) => html`<${History} account=${row} />` },
  ];
  const note = html`last 24 hours<span class="only-wide">, known since <${Time} at=${startedAt} as="date" /></span>`;
  return html`<${Card} class="accounts" title="Accounts" note=${note}><${Table} label="Table of accounts" columns=${columns} rows=${rows} /></${Card}>`;
}

function AccountName({ account }) {
  const platform = PLATFORMS[account.platform] ?? account.platform;
  const icon = PLATFORMS[account.platform] ? account.platform : "plug";
  const late = account.late_since && html`nothing for longer than usual${account.usual_gap_s && `: a message every ${formatDuration(account.usual_gap_s * 1000)}`}`;
  const why = late || (account.state !== "connected" && account.why);
  return html`<span class="row"><${Icon} name=${icon} /><span class="cut">
    <${Link} to="console/rooms" query=${{ platform: account.platform }}>${account.agent_id ? account.name : platform}</${Link}>
    ${account.agent_id && html`${" "}<span class="q only-wide">${account.account || platform}</span>`}
    ${why && html`${" "}<span class="warn">${why}</span>`}</span></span>`;
}

function AccountState({ account }) {
  const [tone, word] = STATES[account.state];
  if (account.state === "degraded" && account.cause === "rate_limited") return html`<${State} tone="warn">Rate limited</${State}>`;
  return html`<${State} tone=${account.late_since ? "warn" : tone}>${account.late_since ? "Late" : word}</${State}>`;
}

function History({ account }) {
  const end = Math.floor(Date.now() / HALF_HOUR) * HALF_HOUR;
  const states = account.history.map((item) => item.state);
  const titles = account.history.map(({ state, cause }, index) => {
    const from = end - (account.history.length - 1 - index) * HALF_HOUR;
    return `${formatTime(from)} to ${formatTime(from + HALF_HOUR)}: ${state}${cause ? ` (${cause.replaceAll("_", " ")})` : ""}`;
  });
  const known = states.filter((state) => state !== "unknown");
  const troubled = known.filter((state) => state === "degraded" || state === "off").length;
  const course = troubled ? `interrupted in ${troubled} of ${countOf(known.length, "half hour")}` : "without interruption";
  const label = `${account.name} on ${account.platform}: ${course} in ${countOf(known.length, "known half hour")} of 48`;
  return html`<${Strip} states=${states} titles=${titles} label=${label} />`;
}

function Numbers({ overview: { open, tasks }, agent }) {
  const oldest = ({ count, oldest_at: at }, none) => (count ? html`oldest <${Time} at=${at} />` : none);
  const items = [
    ["Open turns", open.turns, "console/rooms", "none", false],
    ["Waiting to be sent", open.waiting, "console/deliveries?state=waiting", "nothing waits", false],
    ["Held", open.held, "console/deliveries?state=held", "nothing held", true],
    ["Failed to send", open.failed, "console/deliveries?state=failed", "none", true],
    ["Tasks late", tasks.late, "console/tasks", tasks.next_at ? html`next <${Time} at=${tasks.next_at} />` : "none due", true],
    ["Parked", open.parked, "console/receipts?outcome=parked", "none", true],
  ];
  return html`<ul class="card numbers" aria-label="Open work">${items.map(([name, backlog, to, none, isProblem]) => html`
      <li key=${name}><a href=${link(to, { agent })}><span class="l">${name}</span>
        <span class=${`v ${isProblem && backlog.count ? "warn" : ""}`}>${formatCount(backlog.count)}</span>
        <span class="d">${oldest(backlog, none)}</span></a></li>`)}</ul>`;
}

function Models({ list }) {
  const rows = list.value?.models.map((model) => ({ ...model, id: `${model.provider}/${model.name}/${model.why}` })) ?? null;
  const columns = [
    { key: "name", title: "Model", cell: (row) => html`<${Link} class="nw" to="console/costs" query=${{ by: "model" }}>${row.name}</${Link}>` },
    { key: "work", title: "Work", isHidden: true, cell: (row) => html`<span class="q2">${row.work.map(workText).join(", ")}</span>` },
    { key: "state", title: "State", cell: (row) => html`<${ModelState} model=${row} />` },
    { key: "calls", title: "Calls", label: "calls", isNumber: true, cell: (row) => formatCount(row.calls) },
    { key: "p50", title: "p50", isNumber: true, isHidden: true, cell: (row) => formatDuration(row.p50_ms) },
    { key: "failed", title: "Failed", isNumber: true, isHidden: true, cell: (row) => formatCount(row.failed) },
    { key: "usd", title: "Cost today", label: "today", isNumber: true, cell: (row) => (row.usd === null ? "–" : formatCost(row.usd)) },
  ];
  const note = list.value && html`since <${Time} at=${list.value.since} as="date" />`;
  return html`<${Card} title="Models" note=${note}><${Table} label="Table of models" columns=${columns} rows=${rows}
    list=${{ ...list, rows }} empty=${html`<p class="pad q2">No plugin brings a model.</p>`} /></${Card}>`;
}

const workText = (type) => type.toLowerCase().replaceAll("_", " ");

function ModelState({ model }) {
  const now = useNow(model.rests_until !== null);
  const left = model.rests_until ? Math.ceil((new Date(model.rests_until).getTime() - now) / 1000) : 0;
  if (left > 0) return html`<span title=${model.why}><${State} tone="warn">Rests, ${left} s left</${State}></span>`;
  if (model.state === "fails") return html`<span title=${model.why}><${State} tone="bad">Fails</${State}></span>`;
  if (model.state === "unused") return html`<${State} tone="off">Not called yet</${State}>`;
  return html`<${State}>Answers</${State}>`;
}

/** The part of a headline that differs: "Stayed silent: the room is muted" is "The room is muted". */
function silenceText(headline) {
  const text = headline.replace(/^Stayed silent: /, "");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function Silences({ list }) {
  const [isWhole, setWhole] = useState(false);
  const counts = list.value?.counts.filter((item) => item.outcome !== "answered") ?? [];
  const merged = [...counts.reduce((groups, item) => {
    const known = groups.get(item.headline);
    return groups.set(item.headline, known ? { ...known, count: known.count + item.count } : item);
  }, new Map()).values()];
  const total = counts.reduce((sum, item) => sum + item.count, 0);
  const shown = isWhole ? merged : merged.slice(0, MAX_RULES);
  return html`<${Card} title="Silences by rule" note=${list.value && `last 24 hours, ${formatCount(total)}`}>
    ${list.error && html`<${ErrorNote} error=${list.error} onRetry=${list.reload} />`}
    ${!list.value && !list.error && html`<${Skeleton} rows=${4} />`}
    ${list.value && !total && html`<p class="pad q2">Every message was answered.</p>`}
    ${total > 0 && html`<ul class="bars tight pad-y">${shown.map((item) => html`<li key=${item.headline}>
      <a href=${link(`console/receipts/${item.example_id}`)}><span class="cut" title=${item.headline}>${silenceText(item.headline)}</span>
        <${Meter} share=${item.count / merged[0].count} tone="grey" /><span class="n">${formatCount(item.count)}</span></a></li>`)}</ul>`}
    ${merged.length > shown.length && html`<div class="more-rows"><${Button} onClick=${() => setWhole(true)}>Show all ${merged.length}</${Button}></div>`}</${Card}>`;
}
