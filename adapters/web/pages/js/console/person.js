// One person: what they told, accounts, roles, contacts, with whom they talk; correct and delete facts, export, forget.

import { address, patch, post, remove, useLoad, usePages } from "../api.js";
import { confirm } from "../dialogs.js";
import { countOf, formatCount, Time } from "../format.js";
import { html, useState } from "../lib.js";
import { Empty, ErrorNote, ListState, More, Skeleton } from "../lists.js";
import { toast } from "../overlay.js";
import { link, setQuery } from "../router.js";
import { Button, Card, Chip, Face, Icon, IconButton, Search, Select } from "../ui.js";

const AUDIENCES = [["", "Any audience"], ["room", "One room"], ["world", "A whole server"], ["everyone", "Everyone"]];
const MAX_LENGTH = 1000;
const NOTICE_STATES = {
  sent: "It has arrived", pending: "It waits to be sent", attempting: "It is being sent", failed: "It could not be sent",
  unknown: "It is not known whether it has arrived", cancelled: "It was withdrawn",
};
const ICONS = new Set(["discord", "telegram", "x", "web"]);

/** The page of a person. */
export function PersonPage({ id, session, query, navigate }) {
  const { agent } = query;
  const path = `api/people/${encodeURIComponent(id)}`;
  const { value: person, error, reload } = useLoad(path, { agent });
  const isOperator = session.role === "operator";
  const back = () => navigate("console/people", { query: agent ? { agent } : {} });
  const name = person?.name || "No name";
  return html`<div class="page"><div class="in"><header class="page-head">
      <nav class="crumbs" aria-label="Where this is"><a href=${link("console/people", { agent })}>People</a>
        <${Icon} name="right" size="s" /><span>${person ? name : "…"}</span></nav>
      ${person && isOperator && html`<${Actions} ...${{ path, agent, person, name, back }} onChange=${reload} />`}</header>
    ${error && html`<${ErrorNote} error=${error} onRetry=${reload} />`}
    ${!person && !error && html`<${Skeleton} />`}
    ${person && html`<${Head} ...${{ person, name }} /><div class="person-grid">
      <${Facts} ...${{ path, person, query, isOperator }} />
      <div class="stack"><${Accounts} person=${person} /><${Notice} notice=${person.notice} /><${Roles} person=${person} /><${Contacts} person=${person} />
        <${Relationships} person=${person} agent=${agent} /></div></div>`}</div></div>`;
}

function Actions({ path, agent, person, name, back, onChange }) {
  const [error, setError] = useState(null);
  const forget = async () => {
    const text = "Their messages, the replies to them, and all that was learnt from them are deleted. This cannot be undone.";
    if (!(await confirm({ title: `Forget ${name}?`, text, action: "Forget", typed: person.name || undefined }))) return;
    try {
      const counts = await post(`${path}/forget`, undefined, { query: { agent } });
      toast(`Forgotten: ${countOf(counts.messages, "message")}`);
      back();
    } catch (failure) {
      setError(failure);
    }
  };
  const mute = () => post(`${path}/${person.is_muted ? "unmute" : "mute"}`, undefined, { query: { agent } }).then((changed) => {
    toast(changed.is_muted ? "Muted: messages are stored and not answered" : "Answered again");
    return onChange();
  }, setError);
  const markMinor = () => post(`${path}/${person.is_minor ? "unmark" : "mark"}-minor`, undefined, { query: { agent } }).then((changed) => {
    toast(changed.is_minor ? "Marked as a minor" : "Not marked as a minor any more");
    return onChange();
  }, setError);
  const isIgnored = person.ignored_by.includes("operator");
  const ignore = () => post(`${path}/${isIgnored ? "read" : "ignore"}`, undefined, { query: { agent } }).then((changed) => {
    toast(changed.ignored_by.length ? "Not read: nothing that they write is stored" : "Read again");
    return onChange();
  }, setError);
  return html`<${Button} icon=${person.is_muted ? "sound" : "silent"} onClick=${mute}>${person.is_muted ? "Unmute" : "Mute"}</${Button}>
    <${Button} onClick=${markMinor}>${person.is_minor ? "Unmark as a minor" : "Mark as a minor"}</${Button}>
    <${Button} onClick=${ignore}>${isIgnored ? "Read again" : "Do not read"}</${Button}>
    <${Button} icon="down" href=${address(`${path}/export`, { agent }).href} download>Export</${Button}>
    <${Button} kind="danger" icon="trash" onClick=${forget}>Forget</${Button}>${error && html`<${ErrorNote} error=${error} />`}`;
}

function Head({ person, name }) {
  const seen = person.last_at
    ? html`First wrote <${Time} at=${person.first_at} as="date" /> · last wrote <${Time} at=${person.last_at} /> ·
        ${" "}${countOf(person.messages, "message")}, ${formatCount(person.answered)} answered`
    : "Has not written yet";
  return html`<section class="card" aria-label=${name}><div class="pad person-head"><${Face} name=${name} size="l" isPerson />
    <div class="grow"><h1>${name}${person.is_muted && html`${" "}<${Chip} tone="warn" icon="silent">muted</${Chip}>`}${person.is_minor && html`${" "}<${Chip}>minor</${Chip}>`}${person.ignored_by.length > 0 && html`${" "}<${Chip} tone="warn">not read (${person.ignored_by.join(", ")})</${Chip}>`}</h1><p class="q2">${seen}</p></div></div></section>`;
}

function Facts({ path, person, query, isOperator }) {
  const { agent, q = "", audience = "" } = query;
  const list = usePages(`${path}/facts`, { agent, q, audience }, "facts");
  const replace = (fact) => list.change((rows) => rows.map((row) => (row.id === fact.id ? fact : row)));
  const drop = (id) => list.change((rows) => rows.filter((row) => row.id !== id));
  const isFiltered = Boolean(q || audience);
  const filters = (person.facts > 5 || isFiltered) && html`<${Select} label="Audience" options=${AUDIENCES} value=${audience}
      onChange=${(value) => setQuery({ audience: value })} />
    <${Search} label="Search facts" value=${q} onSearch=${(text) => setQuery({ q: text })} />`;
  return html`<${Card} title="What is known" note=${countOf(person.facts, "fact")} actions=${filters}>
    <${ListState} list=${list} isFiltered=${isFiltered} onClear=${() => setQuery({ q: "", audience: "" })}
      empty=${html`<${Empty} title="Nothing yet">Facts are noted from what a person says of themselves.</${Empty}>`} />
    <ul class="facts-list">${list.rows?.map((fact) => html`<${Fact} key=${fact.id} ...${{ fact, isOperator }}
      onChange=${replace} onDelete=${drop} />`)}</ul><${More} list=${list} /></${Card}>`;
}

function Fact({ fact, isOperator, onChange, onDelete }) {
  const [draft, setDraft] = useState(null);
  const [error, setError] = useState("");
  const act = async (send, done) => {
    setError("");
    try {
      done(await send());
    } catch (failure) {
      setError(failure.message);
    }
  };
  const save = () => act(() => patch(`api/facts/${fact.id}`, { text: draft }), (changed) => {
    onChange(changed);
    setDraft(null);
    toast("Corrected");
  });
  const drop = async () => {
    if (!(await confirm({ title: "Delete this fact?", text: `“${fact.text}” is not told to the model again.`, action: "Delete" }))) return;
    await act(() => remove(`api/facts/${fact.id}`), () => onDelete(fact.id));
  };
  if (draft !== null) {
    return html`<li><form class="stack tight grow" onSubmit=${(event) => (event.preventDefault(), save())}>
      <label class="field"><span>The fact</span><textarea class="input" value=${draft} maxlength=${MAX_LENGTH} rows="2"
        ref=${(node) => node && !node.dataset.seen && (node.dataset.seen = "1", node.focus())}
        onInput=${(event) => setDraft(event.target.value)}></textarea></label>
      ${error && html`<p class="bad" role="alert">${error}</p>`}
      <span class="row"><button type="submit" class="btn primary">Save</button>
        <${Button} onClick=${() => setDraft(null)}>Cancel</${Button}></span></form></li>`;
  }
  const where = html`<${Time} at=${fact.at} as="date" />${fact.room && `, ${fact.room}`}`;
  return html`<li><div class="grow"><p>${fact.text}</p><p class="q">Said by ${fact.author.name || "a person"} · ${" "}
      ${fact.source_message_id ? html`<a href=${link(`console/receipts/${fact.source_message_id}`)}>${where}</a>` : where}</p>
      ${error && html`<p class="bad" role="alert">${error}</p>`}</div>
    <${Chip} icon="eye"><span class="vh">Audience: </span>${describeAudience(fact)}</${Chip}>
    ${isOperator && html`<span class="row act"><${IconButton} icon="edit" label=${`Correct: ${fact.text}`}
      onClick=${() => setDraft(fact.text)} /><${IconButton} icon="trash" label=${`Delete: ${fact.text}`} onClick=${drop} /></span>`}</li>`;
}

function describeAudience({ audience, room }) {
  if (audience === "everyone") return "everyone";
  return audience === "world" ? "this server" : `only ${room || "this room"}`;
}

function Accounts({ person }) {
  return html`<${Card} title="Accounts"><ul class="facts-list">${person.accounts.map((account) => html`
    <li key=${account.platform}><span class="grow"><${Platform} name=${account.platform} />
      <span class="q">${[account.external_id, ...account.names.slice(1)].filter(Boolean).join(", ")}</span></span></li>`)}</ul></${Card}>`;
}

function Notice({ notice }) {
  const told = notice && html`<p>Told <${Time} at=${notice.at} /> in <a href=${link(`console/rooms/${notice.room_id}`)}>${notice.room || "a room"}</a></p>
    <p class="q">${NOTICE_STATES[notice.state] ?? "Its delivery is not stored any more"}</p>`;
  return html`<${Card} title="AI notice" padded>${told || html`<p class="q">Not told yet</p>`}</${Card}>`;
}

function Roles({ person }) {
  if (!person.roles.length) return null;
  return html`<${Card} title="Roles"><ul class="facts-list">${person.roles.map((role) => html`<li key=${role.world_id}>
    <div class="grow"><p>${role.world || "A server without a name"} <span class="q">${role.platform}</span></p>
      <p class="q">${role.rooms.slice(0, 5).map((room, index) => html`${index > 0 && ", "}
        <a href=${link(`console/rooms/${room.id}`)}>${room.name}</a>`)}${role.rooms.length > 5 && ` and ${role.rooms.length - 5} more`}</p>
    </div><${Chip}>${role.role.toLowerCase()}</${Chip}></li>`)}</ul></${Card}>`;
}

function Contacts({ person }) {
  if (!person.contacts.length) return null;
  return html`<${Card} title="How to reach them" padded>${person.contacts.map((contact, index) => html`
    <dl class="kv" key=${index}>${Object.entries(contact.details).map(([key, value]) => html`<dt>${key}</dt><dd>${value}</dd>`)}</dl>
    ${contact.stated_by && html`<p class="hint">Stated by ${contact.stated_by}</p>`}`)}</${Card}>`;
}

function Relationships({ person, agent }) {
  if (!person.relationships.length) return null;
  const most = Math.max(...person.relationships.map((other) => other.interactions), 1);
  return html`<${Card} title="Talks with"><ul class="bars pad-y">${person.relationships.slice(0, 10).map((other) => html`
    <li key=${other.id}><a href=${link(`console/people/${other.id}`, { agent })}><span class="cut">${other.name || "No name"}</span>
      <svg class="meter" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true"><rect class="track" width="100" height="6" />
        <rect class="fill grey" width=${(100 * other.interactions) / most} height="6" /></svg>
      <span class="n">${formatCount(other.interactions)}</span></a></li>`)}</ul></${Card}>`;
}

/** A platform as its sign with its name. */
export function Platform({ name }) {
  return html`<span class="row">${ICONS.has(name) && html`<${Icon} name=${name} size="s" />`}${name}</span>`;
}
