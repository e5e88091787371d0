// Knowledge and memory: what would be found for a question in a room, and which documents there are.

import { post, remove, useLoad, usePages } from "../api.js";
import { confirm } from "../dialogs.js";
import { countOf, formatCost, formatDuration, formatSize, Time } from "../format.js";
import { html, useRef, useState } from "../lib.js";
import { Empty, ErrorNote, ListState, More, Skeleton } from "../lists.js";
import { link, setQuery } from "../router.js";
import { Button, Card, Icon, IconButton, PageBody, Search, Select } from "../ui.js";

const DOCUMENTS = "api/documents";
const ACCEPTED = ".txt,.md,.markdown,.csv,.pdf,.docx,.html,.htm";
const MAX_BYTES = 10 * 1024 * 1024;

export default function Page({ session, query }) {
  const agent = session.agents.find((item) => item.id === query.agent) ?? session.agents[0];
  return html`<${PageBody} title="Knowledge and memory"><div class="grid2">
    <${MemorySearch} key=${agent?.id} ...${{ agent, query }} />
    <${Documents} agent=${query.agent} isOperator=${session.role === "operator"} /></div></${PageBody}>`;
}

function MemorySearch({ agent, query }) {
  const { q = "", room } = query;
  const { value: listed, error: roomsError } = useLoad("api/rooms", { agent: agent?.id, limit: 100 });
  const rooms = listed?.rooms ?? [];
  const chosen = room ?? rooms[0]?.id;
  const { value, error, isLoading, reload } = useLoad(q && chosen ? "api/memory/search" : null, { q, room: chosen });
  const options = rooms.map((item) => [item.id, `in ${item.name || "a room without a name"}`]);
  return html`<${Card} title=${`Search as ${agent?.name ?? "the character"} does`} padded><div class="stack">
    <div class="ask"><${Search} label="Question" placeholder="What would a person ask?" value=${q}
        onSearch=${(text) => setQuery({ q: text })} />
      ${options.length > 0 && html`<${Select} label="In which room" options=${options} value=${chosen}
        onChange=${(id) => setQuery({ room: id })} />`}</div>
    ${(error ?? roomsError) && html`<${ErrorNote} error=${error ?? roomsError} onRetry=${reload} />`}
    ${listed && !rooms.length && html`<p class="q2">No rooms yet. What may be told depends on the room.</p>`}
    ${isLoading && !value && html`<${Skeleton} rows=${3} />`}
    ${q && value && html`<${Found} ...${{ value }} />`}</div></${Card}>`;
}

function Found({ value }) {
  if (!value.found.length) return html`<p class="q2">Nothing is found for this question in this room.</p>`;
  return html`<ol class="rail">${value.found.map((item, index) => html`<li class="fact" key=${item.fact_id ?? index}>
      <span class="row"><span class="grow cut q">${describeSource(item)}</span>${item.score !== null
        && html`<b title="How near the meaning is: 1 for the same">${item.score.toFixed(2)}</b>`}</span>
      <span>${item.text}</span>
      ${item.score !== null && html`<svg class="meter" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
        <rect class="track" width="100" height="6" /><rect class="fill" width=${100 * Math.max(0, item.score)} height="6" /></svg>`}
      ${item.message_id && html`<span class="from"><a href=${link(`console/receipts/${item.message_id}`)}>The message</a></span>`}
    </li>`)}</ol><p class="q">${countOf(value.found.length, "result")} in ${formatDuration(value.took_ms)}${
    value.found.every((item) => item.score === null) && "; compared by words"}.</p>`;
}

function describeSource({ kind, source, at }) {
  return kind === "document" ? html`Document ${source}`
    : html`Fact, said by ${source || "a person"}, <${Time} at=${at} as="date" />`;
}

/** The documents of the first character that has any, or of the chosen one. */
function Documents({ agent, isOperator }) {
  const list = usePages(DOCUMENTS, { agent, limit: 100 }, "documents");
  const { answer } = list;
  const isOff = answer?.is_available === false;
  const [failure, setFailure] = useState("");
  const [busy, setBusy] = useState("");
  const files = useRef(null);
  const act = async (what, send) => {
    setFailure("");
    setBusy(what);
    try {
      await send();
      await list.reload();
    } catch (problem) {
      setFailure(problem.message);
    }
    setBusy("");
  };
  const upload = (chosen) => {
    const large = chosen.find((file) => file.size > MAX_BYTES);
    if (large) return setFailure(`${large.name} is ${Math.ceil(large.size / 1024 / 1024)} MB, the limit is 10 MB.`);
    const form = new FormData();
    chosen.forEach((file) => form.append("file", file, file.name));
    return act(`Reading ${chosen.map((file) => file.name).join(", ")}`, () => post(DOCUMENTS, form, { query: { agent } }));
  };
  const drop = async (document) => {
    const text = "It is not found any more, with all that was read from it.";
    if (!(await confirm({ title: `Delete ${document.name}?`, text, action: "Delete" }))) return;
    await act("Deleting", () => remove(`${DOCUMENTS}/${document.id}`, { query: { agent } }));
  };
  const onDrop = (event) => {
    event.preventDefault();
    const chosen = [...event.dataTransfer.files];
    if (isOperator && !isOff && chosen.length) upload(chosen);
  };
  const readAgain = (document) => act(`Reading ${document.name}`, () => post(`${DOCUMENTS}/${document.id}/read`, undefined, { query: { agent } }));
  const add = isOperator && answer && !isOff && html`<${Button} kind="primary" icon="plus" onClick=${() => files.current.click()}>Add</${Button}>
    <input type="file" hidden multiple accept=${ACCEPTED} ref=${files} aria-label="Files to add" onChange=${(event) => {
      const chosen = [...event.target.files];
      event.target.value = "";
      if (chosen.length) upload(chosen);
    }} />`;
  return html`<section class="card" aria-label="Documents" onDragOver=${(event) => event.preventDefault()} onDrop=${onDrop}>
    <header><h2>Documents</h2>${answer && !isOff && html`<span class="q">${countOf(answer.count, "document")}, ${countOf(answer.parts, "part")}</span>`}${add}</header>
    ${isOff ? html`<${Empty} title="No documents">${sentence(answer.why)}</${Empty}>` : html`<${ListState} list=${list}
      empty=${html`<${Empty} title="No documents yet">Add files, or name them in the character's file.</${Empty}>`} />`}
    <ul class="facts-list">${list.rows?.map((document) => html`<${Document} key=${document.id ?? document.name}
      ...${{ document, isOperator, readAgain, drop }} />`)}</ul><${More} list=${list} />
    <footer><p role="status">${failure ? html`<span class="bad">${failure}</span>` : busy ? `${busy} …`
    : isOperator && answer && !isOff && "Drop files here: text, Markdown, CSV, PDF, DOCX, HTML; up to 10 MB each."}</p></footer></section>`;
}

function Document({ document, isOperator, readAgain, drop }) {
  const { name, url, is_added: isAdded } = document;
  const facts = [document.bytes !== null && formatSize(document.bytes), document.id && countOf(document.parts, "part"),
    document.read_at && html`read <${Time} at=${document.read_at} />`, document.usd !== null && formatCost(document.usd),
    !isAdded && "of the character's file", document.world && "told in one server only"].filter(Boolean);
  return html`<li><${Icon} name="file" /><div class="grow"><p>${name}</p>
      <p class="q">${facts.map((fact, index) => html`${index > 0 && ", "}${fact}`)}</p>
      ${document.problem && html`<p class="warn">${sentence(document.problem)}</p>`}</div>
    ${isOperator && document.id && html`<span class="row act">
      ${(!isAdded || url) && html`<${IconButton} icon="again" label=${`Read ${name} again`} onClick=${() => readAgain(document)} />`}
      ${isAdded && html`<${IconButton} icon="trash" label=${`Delete ${name}`} onClick=${() => drop(document)} />`}</span>`}</li>`;
}

const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${text.endsWith(".") ? "" : "."}`;
