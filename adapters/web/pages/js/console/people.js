// People: who writes. A person's page with what is known of them is in person.js.

import { usePages } from "../api.js";
import { formatCount, Time } from "../format.js";
import { html } from "../lib.js";
import { Empty, Table } from "../lists.js";
import { link, setQuery } from "../router.js";
import { Card, Face, PageBody, Search, Select } from "../ui.js";
import { PersonPage, Platform } from "./person.js";

const PLATFORMS = [["", "All platforms"], ["discord", "Discord"], ["telegram", "Telegram"], ["x", "X"], ["web", "Web"],
  ["console", "Terminal"]];

export default function Page({ session, query, params, navigate }) {
  if (params.length) return html`<${PersonPage} key=${params[0]} id=${params[0]} ...${{ session, query, navigate }} />`;
  return html`<${PeopleList} ...${{ query, navigate }} />`;
}

function PeopleList({ query, navigate }) {
  const { agent, q = "", platform = "" } = query;
  const list = usePages("api/people", { agent, q, platform }, "people");
  const clear = () => setQuery({ q: "", platform: "" });
  const to = (person) => link(`console/people/${person.id}`, { agent });
  const columns = [
    { key: "name", title: "Name", isFull: true,
      cell: (person) => html`<span class="row"><${Face} name=${person.name} size="s" isPerson />
      <a class="name" dir="auto" href=${to(person)}>${person.name || "No name"}</a>${person.is_bot && html`<span class="q">bot</span>`}</span>` },
    { key: "seen", title: "Seen on", cell: (person) => html`<span class="row q2">${person.accounts.map((account) => html`
      <${Platform} key=${account.platform} name=${account.platform} />`)}</span>` },
    { key: "messages", title: "Messages", isNumber: true, isHidden: true, cell: (person) => formatCount(person.messages) },
    { key: "answered", title: "Answered", isNumber: true, isHidden: true, cell: (person) => formatCount(person.answered) },
    { key: "facts", title: "Facts", isNumber: true, isHidden: true, cell: (person) => formatCount(person.facts) },
    { key: "last", title: "Last wrote", isNumber: true, cell: (person) => html`<${Time} at=${person.last_at} />` },
  ];
  const actions = html`<${Select} label="Platform" options=${PLATFORMS} value=${platform}
      onChange=${(value) => setQuery({ platform: value })} />
    <${Search} label="Search people" value=${q} onSearch=${(text) => setQuery({ q: text })} shortcut="search" />`;
  return html`<${PageBody} title="People" actions=${actions}><${Card} aria-label="People">
    <${Table} label="Table of people" ...${{ list, columns }} isFiltered=${Boolean(q || platform)} onClear=${clear}
      onOpen=${(person) => navigate(`console/people/${person.id}`, { query: agent ? { agent } : {} })}
      empty=${html`<${Empty} title="Nobody has written yet">Write to the character, or connect a platform.</${Empty}>`} />
  </${Card}></${PageBody}>`;
}
