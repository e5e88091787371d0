// Settings: every variable with its value, where that stands, and what it means. Secrets are never shown.

import { useLoad } from "../api.js";
import { html } from "../lib.js";
import { Table } from "../lists.js";
import { Link, setQuery } from "../router.js";
import { Chip, Note, PageBody, Search, ToggleChip } from "../ui.js";
import { OperatorOnly } from "./plugins.js";

function Value({ setting }) {
  if (setting.is_secret) return html`<span class="q">${setting.is_set ? "set, not shown" : "not set"}</span>`;
  if (setting.value === null) return html`<span class="q">not set</span>`;
  return html`<span class="mono wrap">${setting.value}</span>`;
}

/** A text with what stands between backticks as code. */
const withCode = (text) => text.split("`").map((part, index) => (index % 2 ? html`<code>${part}</code>` : part));

const COLUMNS = [
  { key: "name", title: "Variable", isFull: true, cell: (row) => html`<span class="mono word">${row.name}</span>` },
  { key: "value", title: "Value", cell: (row) => html`<${Value} setting=${row} />` },
  { key: "origin", title: "From", cell: (row) => row.origin && html`<${Chip}>${row.origin}</${Chip}>` },
  { key: "meaning", title: "Meaning", isFull: true, cell: (row) => html`<span class="q2 wrap">${withCode(row.meaning)}</span>` },
];

export default function Page({ session, query }) {
  const isOperator = session.role === "operator";
  const onlySet = query.set === "true";
  const selection = { agent: query.agent, q: query.q, is_set: onlySet ? "true" : undefined };
  const list = useLoad(isOperator ? "api/settings" : null, selection);
  if (!isOperator) return html`<${OperatorOnly} title="Settings" />`;
  const rows = list.value?.settings.map((setting) => ({ ...setting, id: `${setting.part} ${setting.name}` }));
  const actions = html`<${Search} label="Search variables" value=${query.q ?? ""} shortcut="search"
      onSearch=${(q) => setQuery({ q })} />
    <${ToggleChip} isOn=${onlySet} onChange=${(isOn) => setQuery({ set: isOn ? "true" : undefined })}>Only what is set</${ToggleChip}>`;
  return html`<${PageBody} title="Settings" actions=${actions}>
    <${Note} icon="key">Read from the character's file, then the environment, then <code>.env</code>. This page shows them and
      changes none; limits are changed under <${Link} to="console/costs">Costs</${Link}>. Secrets are never shown.</${Note}>
    <section class="card variables" aria-label="Variables"><${Table} label="Table of variables" columns=${COLUMNS} rows=${rows} list=${{ ...list, rows }}
      isFiltered=${Boolean(query.q) || onlySet} onClear=${() => setQuery({ q: undefined, set: undefined })} /></section></${PageBody}>`;
}
