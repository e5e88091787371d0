// Receipts: those that a filter selects, newest first; with an id, one of them.

import { useLoad, usePages } from "../api.js";
import { Time } from "../format.js";
import { html, useState } from "../lib.js";
import { Empty, NewRows, Table } from "../lists.js";
import { Link, navigate, setQuery } from "../router.js";
import { useStream } from "../stream.js";
import { Card, PageBody, Select } from "../ui.js";
import { OUTCOMES, OutcomeMark, TIMES, useSince } from "../why.js";
import Receipt from "./receipt.js";

const COLUMNS = [
  { key: "outcome", title: "What became of it", isFull: true, cell: (row) => html`<span class="row"><${OutcomeMark} outcome=${row.outcome} />
    <${Link} to=${`console/receipts/${row.id}`}>${row.headline}</${Link}></span>` },
  { key: "text", title: "Message", isFull: true, cell: (row) => html`<span class="cut clip">${row.author ?? "A person"}: ${row.text
    ?? html`<span class="q">${row.rule.startsWith("command") ? "command" : "deleted"}</span>`}</span>` },
  { key: "room", title: "Room", cell: (row) => html`<${Link} class="nw" to=${`console/rooms/${row.room_id}`}>${row.room ?? "a room"}</${Link}>` },
  { key: "at", title: "Came in", label: "came in", isNumber: true, cell: (row) => html`<span class="nw q2"><${Time} at=${row.received_at} /></span>` },
];

export default function Page(props) {
  return props.params[0] ? html`<${Receipt} ...${props} />` : html`<${List} query=${props.query} />`;
}

function List({ query }) {
  const since = useSince(query.hours);
  const filters = { outcome: query.outcome, rule: query.rule, room: query.room, from: since };
  const isFiltered = Object.values(filters).some(Boolean);
  const list = usePages("api/receipts", { ...filters, agent: query.agent }, "receipts");
  const counts = useLoad("api/receipts/counts", { agent: query.agent });
  const [waiting, setWaiting] = useState(0);
  useStream([{ kind: "receipt", agent: query.agent }], (frame) => {
    if (frame.type === "reset") return reload();
    const isWanted = frame.receipt_id && (!query.outcome || frame.outcome === query.outcome)
      && (!query.rule || frame.rule === query.rule) && (!query.room || frame.room_id === query.room);
    return isWanted && setWaiting((count) => count + 1);
  });
  const reload = () => {
    setWaiting(0);
    list.reload();
  };
  const rules = [...new Set([query.rule, ...(counts.value?.counts ?? []).map((item) => item.rule)].filter(Boolean))];
  const filter = (changes) => setQuery(changes, { replace: false });
  const actions = html`<${Select} label="Outcome" options=${OUTCOMES} value=${query.outcome ?? ""} onChange=${(outcome) => filter({ outcome })} />
    <${Select} label="Rule" options=${[["", "Rule"], ...rules.map((rule) => [rule, rule])]} value=${query.rule ?? ""} onChange=${(rule) => filter({ rule })} />
    <${Select} label="Time" options=${TIMES} value=${query.hours ?? ""} onChange=${(hours) => filter({ hours })} />`;
  return html`<${PageBody} title="Receipts" actions=${actions}><${NewRows} count=${waiting} onShow=${reload} />
    <${Card} aria-label="Receipts"><${Table} label="Table of receipts" columns=${COLUMNS} list=${list} isFiltered=${isFiltered}
      onOpen=${(row) => navigate(`console/receipts/${row.id}`)} onClear=${() => filter({ outcome: "", rule: "", room: "", hours: "" })}
      empty=${html`<${Empty} title="No messages yet">Each message gets a receipt that says what became of it.</${Empty}>`} /></${Card}></${PageBody}>`;
}
