// Deliveries: the parts of replies that have not arrived, why, and what to do about each.

import { post, useLoad, usePages } from "../api.js";
import { confirm } from "../dialogs.js";
import { countOf, formatCount, formatFull, Time, useNow } from "../format.js";
import { classes, html, useEffect, useState } from "../lib.js";
import { Empty, ListState, More, NewRows } from "../lists.js";
import { toast } from "../overlay.js";
import { Link, setQuery } from "../router.js";
import { useConnection, useStream } from "../stream.js";
import { Button, Chip, Icon, Note, PageBody, Segmented } from "../ui.js";

const TONES = { held: "warn", failed: "bad", waiting: "", dropped: "" };
const EXPLAINED = {
  held: "A reply is held when it is unknown whether it arrived. Check the room: if it is missing, send it; if it is there, "
    + "drop it. Held replies are never sent again automatically.",
  failed: "The platform refused these replies. Sending again helps only when the cause is gone.",
  waiting: "These replies are sent by themselves, each room's in order.",
};

export default function Page({ session, query }) {
  const state = query.state ?? "";
  const list = usePages("api/outbox", { state, room: query.room, agent: query.agent, limit: 100 }, "parts");
  const [version, setVersion] = useState(0);
  const [selected, setSelected] = useState(new Set());
  const [notes, setNotes] = useState({});
  const [changed, setChanged] = useState(0);
  const { isLost } = useConnection();
  const canChange = session.role === "operator";
  const rows = list.rows && (state ? list.rows : list.rows.filter((row) => row.status !== "dropped" || notes[row.id]));
  const reload = () => {
    setChanged(0);
    setNotes({});
    setSelected(new Set());
    list.reload();
    setVersion((number) => number + 1);
  };
  // A change of a shown part is marked in its row; others are counted, so that no row moves under the pointer.
  useStream([{ kind: "delivery", agent: query.agent }], (frame) => {
    if (frame.type === "reset") return reload();
    if (list.rows?.some((row) => row.id === frame.id)) {
      list.change((old) => old.map((row) => (row.id === frame.id ? update(row, frame) : row)));
    } else if (frame.state === "unknown" || frame.state === "failed") setChanged((count) => count + 1);
  });
  const toggle = (ids, isOn) => setSelected((old) => {
    const next = new Set(old);
    ids.forEach((id) => (isOn ? next.add(id) : next.delete(id)));
    return next;
  });
  const decide = async (decision) => {
    const ids = [...selected];
    const isSure = decision === "send" || await confirm({
      title: ids.length === 1 ? "Drop this part?" : `Drop ${ids.length} parts?`,
      text: "It is given up and not sent again. The receipt keeps its text.",
      action: "Drop",
    });
    if (!isSure) return;
    const before = new Set(list.rows);
    try {
      const { results } = await post("api/outbox/decisions", { ids, decision });
      const parts = new Map(results.filter((result) => result.part).map((result) => [result.id, result.part]));
      // What the stream has said meanwhile is newer than this answer: a part may have arrived already.
      const isNewer = (row) => decision === "send" && !before.has(row);
      list.change((old) => old.map((row) => (isNewer(row) ? row : parts.get(row.id) ?? row)));
      setNotes((old) => ({ ...old, ...Object.fromEntries(results.map((result) => [result.id, result])) }));
      setSelected(new Set());
      setVersion((number) => number + 1);
      const done = results.filter((result) => result.is_done).length;
      toast(decision === "send" ? `${countOf(done, "part")} queued, sent in order` : `${countOf(done, "part")} dropped`);
    } catch (error) {
      setNotes((old) => ({ ...old, ...Object.fromEntries(ids.map((id) => [id, { note: error.message, is_done: false }])) }));
    }
  };
  const shownIds = (rows ?? []).map((row) => row.id);
  const isAll = shownIds.length > 0 && shownIds.every((id) => selected.has(id));
  const tabs = [["held", "Held"], ["failed", "Failed"], ["waiting", "Waiting"], ["", "All"]];
  return html`<${PageBody} title="Deliveries" actions=${html`<${Counted} query=${query} version=${version}
      tabs=${tabs} state=${state} onChange=${(next) => { setSelected(new Set()); setQuery({ state: next }, { replace: false }); }} />`}>
    <${Note} icon="outbox">${EXPLAINED[state] ?? EXPLAINED.held}</${Note}>
    <${NewRows} count=${changed} onShow=${reload} />
    <section class="card" aria-label="Parts">
      ${canChange && html`<header><label class="row"><input type="checkbox" class="pick" checked=${isAll}
          onChange=${(event) => toggle(shownIds, event.target.checked)} /><span class="q2">${selected.size
            ? `${formatCount(selected.size)} selected` : "None selected"}</span></label><span class="grow"></span>
        ${["send", "drop"].map((decision) => html`<${Button} key=${decision} kind=${decision === "drop" ? "danger" : ""}
          icon=${decision === "drop" ? "trash" : "up"} reason=${isLost ? "Not connected to the bot" : selected.size ? "" : "Select a part first"}
          onRefused=${toast} onClick=${() => decide(decision)}>${decision === "send" ? "Send" : "Drop"}</${Button}>`)}</header>`}
      <${ListState} list=${list} rows=${rows} isFiltered=${Boolean(query.room)} onClear=${() => setQuery({ room: "" })}
        empty=${html`<${Empty} title=${state ? `No ${state} parts` : "Everything has arrived"}>Parts that were sent are listed in
          their receipt.</${Empty}>`} />
      ${rows?.length > 0 && html`<${Parts} ...${{ rows, selected, toggle, notes, canChange }} />`}
      <${More} list=${list} /></section></${PageBody}>`;
}

function update(row, frame) {
  const words = { unknown: "held", pending: "waiting", attempting: "waiting", failed: "failed", sent: "sent" };
  const state = frame.state ?? row.state;
  const why = state === "sent" ? "It has arrived" : frame.cause || row.why;
  return { ...row, why, state, status: words[state] ?? state, attempts: frame.attempts, next_attempt_at: null };
}

/** The tabs with their counts, loaded anew with `version`. */
function Counted({ query, version, tabs, state, onChange }) {
  const { value, reload } = useLoad("api/outbox", { agent: query.agent, limit: 1 });
  useEffect(() => void (version && reload()), [version]);
  const counts = value?.counts;
  const total = counts && counts.held + counts.failed + counts.waiting;
  return html`<${Segmented} name="State" value=${state} onChange=${onChange} options=${tabs.map(([value, text]) => ({
    value, text, count: counts ? formatCount(value ? counts[value] : total) : undefined }))} />`;
}

function Parts({ rows, selected, toggle, notes, canChange }) {
  const now = useNow();
  return html`<div class="scroll-x" tabindex="0" role="region" aria-label="Table of parts"><table class="table cards"><thead><tr>
      ${canChange && html`<th scope="col"><span class="vh">Select</span></th>`}<th scope="col">Text</th><th scope="col">Room</th>
      <th scope="col">State</th><th scope="col">Why</th><th scope="col" class="num">Age</th><th scope="col" class="num">Tries</th>
    </tr></thead><tbody>${[...rows].reverse().map((row) => {
      const note = notes[row.id];
      const text = row.text || "A file";
      return html`<tr key=${row.id} data-row=${row.id} class=${classes(selected.has(row.id) && "on")}>
        ${canChange && html`<td class="full"><label class="row"><input type="checkbox" class="pick" checked=${selected.has(row.id)}
          aria-label=${`Select ${text.slice(0, 80)}`} onChange=${(event) => toggle([row.id], event.target.checked)} />
          <span class="only-narrow">${text}</span></label></td>`}
        <td class=${canChange ? "hide" : "full"}>${row.receipt_id
          ? html`<${Link} class="cut clip" to=${`console/receipts/${row.receipt_id}`}>${text}</${Link}>`
          : html`<span class="cut clip">${text}</span>`}</td>
        <td class="nw"><span class="row"><${Icon} name=${row.platform} size="s" />
          <${Link} to=${`console/rooms/${row.room_id}`}>${row.room}</${Link}></span></td>
        <td class="nw"><${Chip} tone=${TONES[row.status]}>${row.status}</${Chip}></td>
        <td class="q2 full">${row.why}${waitText(row, now)}${note && row.state !== "sent" && html`<span class=${note.is_done ? "q" : "bad"}
          role="status"> · ${note.note}</span>`}</td>
        <td class="num q2 start" data-l="age"><${Time} at=${row.created_at} title=${formatFull(row.created_at)} /></td>
        <td class="num q2 hide">${row.attempts}</td></tr>`;
    })}</tbody></table></div>`;
}

function waitText(row, now) {
  if (!row.next_attempt_at) return "";
  const seconds = Math.ceil((new Date(row.next_attempt_at).getTime() - now) / 1000);
  return seconds > 0 ? `: next attempt in ${seconds} s` : ": next attempt now";
}
