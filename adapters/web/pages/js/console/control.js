// People in control: drafts that wait and were decided, take-overs, filtered texts, and steps of DEGRADE.

import { post, useLoad } from "../api.js";
import { formatDuration, Time, useNow } from "../format.js";
import { classes, html, randomId, useEffect, useLayoutEffect, useRef, useState } from "../lib.js";
import { Empty, ErrorNote, ListState } from "../lists.js";
import { Menu, toast } from "../overlay.js";
import { Link } from "../router.js";
import { useConnection, useStream } from "../stream.js";
import { Button, Card, Chip, Field, Icon, Note, PageBody } from "../ui.js";
import { Degraded } from "./costs.js";
import "./styles.js";

const REFRESH_MS = 10_000; // of what no event tells: take-overs and steps of DEGRADE
const KEPT_MS = 15_000; // how long a decided draft stays in its place, so that no button moves under a finger
const LATE_MS = 15 * 60_000;
const SHOWN_DAYS = 3;
const TONES = { stopped: "bad", replaced: "", held: "warn", failed: "bad" };
const ENDS = { sent: "good", dropped: "", expired: "warn", withdrawn: "", replaced: "" };
const FILTERED = /^filter (\S+) (stopped|replaced|held|failed)(?: the text:? ?| )?(.*)$/s;

const endOf = ({ state, action, decided_by: name, replaced_by: newer }) => ({
  sent: `Already decided by ${name}: ${action ? "approved" : "sent"}`,
  dropped: `Already decided by ${name}: dropped`,
  expired: "Dropped: nobody decided about it in time",
  withdrawn: "Withdrawn: the message that led to it is gone",
  replaced: `Replaced by draft ${newer}, the answer to a newer message`,
}[state]);

export default function Page({ session, query }) {
  const scope = { agent: query.agent };
  const since = useRef(new Date(Date.now() - SHOWN_DAYS * 86_400_000).toISOString()).current;
  const waiting = useLoad("api/drafts", { ...scope, limit: 500 });
  const latest = useLoad("api/drafts", { ...scope, state: "all", limit: 500 });
  const takeOvers = useLoad("api/take-overs", scope);
  const filtered = useLoad("api/receipts", { ...scope, filtered: true, from: since, limit: 20 });
  const degraded = useLoad("api/receipts", { ...scope, degraded: true, from: since, limit: 10 });
  const costs = useLoad("api/costs", { ...scope, days: 1 });
  const reload = (...loads) => loads.forEach((load) => load.reload());
  useStream([{ kind: "proposal", agent: query.agent, is_summary: true }, { kind: "receipt", agent: query.agent, is_summary: true }],
    ({ type, topic }) => {
      if (type === "reset" || topic === "proposal") reload(waiting, latest, takeOvers);
      if (type === "reset" || topic === "receipt") reload(filtered, degraded);
    });
  useEffect(() => {
    const timer = setInterval(() => document.visibilityState === "visible" && reload(takeOvers, costs), REFRESH_MS);
    return () => clearInterval(timer);
  }, [query.agent]);
  const drafts = useKept(waiting.value?.drafts, latest.value?.drafts);
  const decided = latest.value?.drafts.filter((draft) => !["waiting", "replaced"].includes(draft.state) && draft.created_at >= since)
    .sort((one, other) => other.decided_at.localeCompare(one.decided_at));
  const common = { session, onChange: () => reload(waiting, latest, takeOvers) };
  return html`<${PageBody} title="People in control">
    <${Card} title="Waiting drafts" note=${waiting.value && (waiting.value.waiting ? `${waiting.value.waiting} waiting, oldest first` : "none waiting")}>
      <${ListState} list=${waiting} rows=${drafts} empty=${html`<${Empty} title="No drafts are waiting">Replies wait here where${" "}
        <code>APPROVAL</code> or a filter says so.</${Empty}>`} />
      ${drafts?.length > 0 && html`<ol class="drafts">${drafts.map((draft) => html`<${Draft} key=${draft.id} draft=${draft} ...${common} />`)}</ol>`}</${Card}>
    <${Card} title="Take-overs" note="the character reads on">
      <${ListState} list=${takeOvers} rows=${takeOvers.value?.take_overs} height=${2} empty=${html`<${Empty}
        title="Nothing is taken over">Take a room over here from a draft, or on the page <${Link} to="console/rooms">Rooms</${Link}>.</${Empty}>`} />
      <ol class="drafts">${takeOvers.value?.take_overs.map((item) => html`<${TakeOver} key=${`${item.room_id} ${item.person_id}`} item=${item} ...${common} />`)}</ol></${Card}>
    <div class="grid2"><${Card} title="Filtered texts" note="of the last days">
        <${Receipts} list=${filtered} empty="No filter stopped, replaced or held a text" describe=${describeFiltered} /></${Card}>
      <${Card} title="Degraded answers" note="by DEGRADE"><div class="pad stack tight">
        ${costs.error && !costs.value && html`<${ErrorNote} error=${costs.error} onRetry=${costs.reload} />`}
        ${costs.value && (costs.value.degraded.length ? html`<${Degraded} items=${costs.value.degraded} agents=${session.agents} />`
          : html`<p class="q2">No step of <code>DEGRADE</code> is in effect now.</p>`)}</div>
        <${Receipts} list=${degraded} empty="No answer was degraded in the last days" describe=${describeDegraded} /></${Card}></div>
    <${Card} title="Decided drafts" note="of the last days">
      <${ListState} list=${latest} rows=${decided} height=${3} empty=${html`<${Empty} title="No draft was decided yet" />`} />
      ${decided?.length > 0 && html`<ol class="drafts">${decided.map((draft) => html`<${Decided} key=${draft.id} draft=${draft} />`)}</ol>`}</${Card}>
  </${PageBody}>`;
}

/**
 * Return the drafts that wait, and for some seconds, in their places, those that were decided while they were shown.
 * A draft that replaces another is in its place.
 */
function useKept(waiting, latest) {
  const kept = useRef(new Map()).current;
  const [, draw] = useState(0);
  const now = Date.now();
  waiting?.forEach((draft) => kept.set(draft.id, { draft, until: Infinity }));
  const ids = new Set(waiting?.map((draft) => draft.id));
  const known = new Map(latest?.map((draft) => [draft.id, draft]));
  for (const [id, item] of waiting ? kept : []) {
    if (ids.has(id)) continue;
    if (known.get(id)) item.draft = known.get(id);
    if (item.draft.state === "replaced") {
      if (!kept.has(findNewest(item.draft, known).id)) kept.delete(id);
    } else if (item.until === Infinity) item.until = now + KEPT_MS;
    else if (item.until <= now) kept.delete(id);
  }
  const next = Math.min(...[...kept.values()].map((item) => item.until));
  useEffect(() => {
    if (next === Infinity) return undefined;
    const timer = setTimeout(() => draw((count) => count + 1), next - Date.now() + 50);
    return () => clearTimeout(timer);
  }, [next]);
  return waiting && [...new Map([...kept.values()].map(({ draft }) => {
    const newest = findNewest(draft, known);
    return [newest.id, kept.get(newest.id)?.draft ?? newest];
  })).values()];
}

/** Return the draft at the end of a chain of replacements, as far as they are known. */
function findNewest(draft, known) {
  let newest = draft;
  while (newest.state === "replaced" && known.has(newest.replaced_by)) newest = known.get(newest.replaced_by);
  return newest;
}

const Place = ({ item }) => html`<span class="row"><${Icon} name=${item.platform} size="s" />
  <${Link} to=${`console/rooms/${item.room_id}`}>${item.room}</${Link}></span>`;

function Question({ draft }) {
  const author = draft.author_id && html`<${Link} to=${`console/people/${draft.author_id}`}>${draft.author || "unknown"}</${Link}>`;
  if (draft.question === null) return html`<p class="q2">${draft.receipt_id ? "The message was deleted." : "A post: it answers no message."}</p>`;
  return html`<div class="quote"><span class="who">${author}</span>${draft.question || "(no text)"}</div>`;
}

function Draft({ draft, session, onChange }) {
  const now = useNow();
  const { isLost } = useConnection();
  const [text, setText] = useState(null); // while it is edited
  const [problem, setProblem] = useState("");
  const field = useFocus(text !== null);
  const path = `api/drafts/${draft.id}`;
  const isWaiting = draft.state === "waiting";
  const isReserved = isWaiting && draft.edited_until && new Date(draft.edited_until) > now;
  const age = now - new Date(draft.created_at);
  const reason = isLost ? "Not connected to the bot" : "";
  const act = (send, done) => {
    setProblem("");
    return send().then((answer) => (done?.(answer), onChange()), (error) => {
      setProblem(error.message);
      onChange();
    });
  };
  const decide = (decision, body = {}) => post(`${path}/${decision}`, { revision: draft.revision, ...body });
  const verb = draft.action ? "Run" : "Send";
  const send = () => act(() => decide("send"), () => toast(draft.action ? "It runs" : "Sent"));
  const drop = () => act(() => decide("drop"), () => toast("Dropped"));
  const edit = () => act(() => decide("edit"), (answer) => setText(answer.text));
  const save = (isSent) => act(async () => {
    const answer = await decide("edit", { text });
    if (isSent) await post(`${path}/send`, { revision: answer.revision });
  }, () => (setText(null), toast(isSent ? "Sent with your text" : "Saved; it still waits")));
  const cancel = () => act(() => decide("edit", { text: draft.text }), () => setText(null)); // it is free for others again
  const takeOver = (person) => act(() => post(`api/rooms/${draft.room_id}/take-over`, { person, name: session.name, reason: `draft ${draft.id}` }),
    () => toast("Taken over; the draft is dropped"));
  const choices = [{ text: "The room", icon: "rooms", onChoose: () => takeOver(null) }];
  if (draft.author_id) choices.push({ text: `Only ${draft.author || "this person"}`, icon: "people", onChoose: () => takeOver(draft.author_id) });
  return html`<li class=${classes("draft", !isWaiting && "over")} data-row=${draft.id} tabindex="-1" aria-label=${`Draft ${draft.id}`}>
    <div class="meta"><${Place} item=${draft} />
      ${draft.action && html`<${Chip} icon="bolt">action</${Chip}>`}
      ${draft.revision > 1 && html`<${Chip} icon="edit">${`revision ${draft.revision}`}</${Chip}>`}
      ${isWaiting && age > LATE_MS && html`<${Chip} tone="warn" icon="clock">late: marked when sent</${Chip}>`}
      <span class="q2"><${Time} at=${draft.created_at} />${isWaiting && html` · ${formatDuration(new Date(draft.expires_at) - now)} left`}</span></div>
    <${Question} draft=${draft} />
    ${text === null ? html`<p class="said">${draft.text || "(files without a text)"}</p>` : html`<${Field} label="The text that is sent" multiline=${true}
      rows="4" value=${text} onInput=${setText} inputRef=${field} />`}
    ${draft.text !== draft.proposed && html`<details><summary>What the character wrote</summary><p class="said q2">${draft.proposed}</p></details>`}
    ${isReserved && text === null && html`<${Note} icon="edit">${draft.editor} is writing another text.</${Note}>`}
    ${problem && html`<div role="alert"><${Note} tone="warn"><span class="said">${problem}</span></${Note}></div>`}
    ${!isWaiting && html`<p class="row" role="status"><${Chip} tone=${ENDS[draft.state]}>${draft.state}</${Chip}>${endOf(draft)}</p>`}
    ${isWaiting && session.role === "operator" && html`<div class="acts" key=${text === null ? "decide" : "edit"}>${text === null ? html`
      <${Button} kind="primary" icon="up" reason=${reason} onRefused=${toast} label=${`${verb} draft ${draft.id}`} onClick=${send}>${verb}</${Button}>
      ${!draft.action && html`<${Button} icon="edit" reason=${reason} onRefused=${toast} label=${`Edit draft ${draft.id}`} onClick=${edit}>Edit</${Button}>`}
      <${Button} kind="danger" icon="trash" reason=${reason} onRefused=${toast} label=${`Drop draft ${draft.id}`} onClick=${drop}>Drop</${Button}>
      <${Menu} label=${`Take over instead of draft ${draft.id}`} kind="" items=${choices}>Take over</${Menu}>` : html`
      <${Button} kind="primary" icon="up" reason=${reason || (text.trim() ? "" : "Write a text first")} onRefused=${toast} onClick=${() => save(true)}>Send</${Button}>
      <${Button} reason=${reason || (text.trim() ? "" : "Write a text first")} onRefused=${toast} onClick=${() => save(false)}>Save</${Button}>
      <${Button} onClick=${cancel}>Cancel</${Button}>`}</div>`}
    <p class="q2">Draft <code>${draft.id}</code> ${isWaiting ? "waits" : "waited"} because ${explain(draft.reason)}${draft.receipt_id && html` · <${Link}
      to=${`console/receipts/${draft.receipt_id}`}>Receipt</${Link}>`}</p></li>`;
}

const explain = (reason) => reason.replace(/^APPROVAL=(\w+)$/, "of APPROVAL=$1");

/** Return a ref for a field, which has the focus when it appears. */
function useFocus(isShown) {
  const field = useRef(null);
  useLayoutEffect(() => void (isShown && field.current.focus()), [isShown]);
  return field;
}

function Decided({ draft }) {
  const isEdited = draft.text !== draft.proposed;
  return html`<li class="draft"><div class="meta"><${Chip} tone=${ENDS[draft.state]}>${draft.state}</${Chip}><${Place} item=${draft} />
      <span class="q2"><${Time} at=${draft.decided_at ?? draft.created_at} /></span></div>
    <${Question} draft=${draft} />
    ${isEdited && html`<p class="q2">The character wrote</p><p class="said q2">${draft.proposed}</p><p class="q2">A person wrote</p>`}
    <p class="said">${draft.text || "(files without a text)"}</p>
    <p class="q2">${endOf(draft)}${draft.receipt_id && html` · <${Link} to=${`console/receipts/${draft.receipt_id}`}>Receipt</${Link}>`}</p></li>`;
}

function TakeOver({ item, session, onChange }) {
  const [isWriting, setWriting] = useState(false);
  const [text, setText] = useState("");
  const field = useFocus(isWriting);
  const [problem, setProblem] = useState("");
  const key = useRef(randomId()); // the same until it is sent: a repeated attempt sends it once
  const name = session.name || "An operator";
  const fail = (error) => setProblem(error.message);
  const giveBack = () => post(`api/rooms/${item.room_id}/give-back`, { person: item.person_id }).then(() => {
    toast("Given back: the character answers here again");
    onChange();
  }, fail);
  const write = () => post(`api/rooms/${item.room_id}/write`, { text, name: session.name }, { key: key.current }).then(() => {
    key.current = randomId();
    setText("");
    setProblem("");
    setWriting(false);
    toast("Sent as the bot, marked as written by a person");
  }, fail);
  return html`<li class="draft"><div class="meta"><${Place} item=${item} />
      ${item.person_id && html`<span class="row">only <${Link} to=${`console/people/${item.person_id}`}>${item.person || "a person"}</${Link}></span>`}
      <span class="q2"><${Time} at=${item.since} /></span></div>
    <p>Taken over by <b>${item.name || "a person"}</b>${item.reason && `: ${item.reason}`} <span class="q2">(${item.origin})</span></p>
    ${problem && html`<div role="alert"><${Note} tone="warn">${problem}</${Note}></div>`}
    ${isWriting && html`<${Field} label="Message as the bot" multiline=${true} rows="3" value=${text} onInput=${setText} inputRef=${field}
      hint=${`It begins with “${name} (a person) writes:”.`} />`}
    ${session.role === "operator" && html`<div class="acts" key=${isWriting ? "write" : "decide"}>${isWriting ? html`
      <${Button} kind="primary" icon="up" reason=${text.trim() ? "" : "Write a text first"} onRefused=${toast} onClick=${write}>Send</${Button}>
      <${Button} onClick=${() => setWriting(false)}>Cancel</${Button}>` : html`
      <${Button} icon="again" label=${`Give back ${item.room}`} onClick=${giveBack}>Give back</${Button}>
      <${Button} icon="edit" label=${`Write as the bot in ${item.room}`} onClick=${() => setWriting(true)}>Write as the bot</${Button}>`}</div>`}</li>`;
}

/** Receipts with what is told of each; never the texts, which a filter may have stopped. */
function Receipts({ list, empty, describe }) {
  const rows = list.value?.receipts;
  return html`<${ListState} list=${list} rows=${rows} height=${3} empty=${html`<${Empty} title=${empty} />`} />
    ${rows?.length > 0 && html`<ol class="drafts">${rows.map((row) => html`<li class="draft" key=${row.id}>
      <div class="meta"><${Place} item=${row} /><span class="q2"><${Time} at=${row.received_at} /></span></div>
      ${describe(row)}<p><${Link} to=${`console/receipts/${row.id}`}>Receipt</${Link}></p></li>`)}</ol>`}`;
}

function describeFiltered(row) {
  const causes = [...new Set([row.rule === "filter" ? row.reason : "", ...row.notes])].map((text) => FILTERED.exec(text)).filter(Boolean);
  return causes.map(([, name, verb, why]) => html`<p class="row"><${Chip} tone=${TONES[verb]}>${verb}</${Chip}><span><code>${name}</code>${why && `: ${why}`}</span></p>`);
}

const describeDegraded = (row) => row.notes.filter((note) => note.includes(" % of BUDGET_")).map((note) => html`<p>${note}</p>`);
