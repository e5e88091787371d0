// Character: the file with errors as it is typed, the prompt that results, a trial message, versions, and Save.

import { get, post, put, useLoad } from "../api.js";
import { confirm } from "../dialogs.js";
import { countOf, formatCost, formatDuration, formatSize, Time } from "../format.js";
import { html, useEffect, useRef, useState } from "../lib.js";
import { ErrorNote, Skeleton } from "../lists.js";
import { Button, Card, Chip, Field, Icon, Note, PageBody } from "../ui.js";
import { OperatorOnly } from "./plugins.js";
import "./styles.js";

const CHECK_DELAY = 400;
const KINDS = { character: "Character", actions: "Actions", rules: "Rules of answering", providers: "Providers" };

/** The text with line numbers; `onChange(text)`. Lines with an error are marked in the numbers and listed below. */
function Editor({ text, errors, label, isReadOnly, onChange, inputRef }) {
  const wrong = new Set(errors.map((error) => error.line));
  const lines = text.split("\n");
  return html`<div class="editor"><div class="ln-no" aria-hidden="true">${lines.map((_, index) => html`<span key=${index}
      class=${wrong.has(index + 1) ? "bad" : ""}>${index + 1}${"\n"}</span>`)}</div>
    <textarea ref=${inputRef} class="code-text" aria-label=${label} rows=${lines.length + 1} wrap="off" spellcheck="false"
      autocapitalize="off" readonly=${isReadOnly} aria-invalid=${errors.length ? "true" : undefined}
      aria-describedby=${errors.length ? "file-errors" : undefined} value=${text}
      onInput=${(event) => onChange(event.target.value)}></textarea></div>`;
}

function Problem({ problem, onGo }) {
  const place = problem.line ? `Line ${problem.line}` : "File";
  return html`<li>${problem.line
    ? html`<button type="button" class="btn bare" onClick=${() => onGo(problem)}>${place}</button>` : place}${" "}
    ${problem.path && html`<code>${problem.path}</code>`} ${problem.message}</li>`;
}

/** The parts of a prompt by kind, with their sizes. */
function Prompt({ preview }) {
  const groups = Object.keys(KINDS).map((kind, index) => {
    const parts = preview.sections.filter((section) => section.kind === kind);
    return { kind, index: index + 1, parts, size: parts.reduce((sum, part) => sum + part.size, 0) };
  });
  let start = 0;
  const bars = groups.map((group) => {
    const width = (group.size / Math.max(preview.size, 1)) * 100;
    start += width;
    return html`<rect key=${group.kind} class=${`f${group.index}`} x=${`${start - width}%`} width=${`${Math.max(width - 0.3, 0)}%`} height="10" />`;
  });
  return html`<div class="sections"><svg aria-hidden="true">${bars}</svg>${groups.map((group) => html`<details key=${group.kind}>
    <summary><svg class="sw" aria-hidden="true"><rect class=${`f${group.index}`} width="100%" height="100%" /></svg>
      <${Icon} name="right" size="s" tone="turn" /><span>${KINDS[group.kind]}</span><span class="q2">${formatSize(group.size)}</span></summary>
    <pre tabindex="0" role="region" aria-label=${KINDS[group.kind]}>${group.parts.map((part) => `${part.name}\n${part.text}`).join("\n\n")}</pre>
  </details>`)}</div>`;
}

/** The prompt of the text as it was checked last, and a message to try it with. */
function Trial({ path, text, name, isValid }) {
  const [message, setMessage] = useState("Hi, who are you?");
  const [preview, setPreview] = useState(null);
  const [reply, setReply] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    if (!isValid || text === null) return undefined;
    const stop = new AbortController();
    post(`${path}/preview`, { text }, { signal: stop.signal }).then(setPreview, (cause) => cause.status && setError(cause));
    return () => stop.abort();
  }, [path, text, isValid]);
  const send = () => post(`${path}/try`, { text, message }).then((answer) => (setReply(answer), setError(null)), setError);
  const note = preview && `${formatSize(preview.size)}, about ${Math.round(preview.size / 4).toLocaleString("en")} tokens`;
  return html`<${Card} title="Resulting prompt" note=${note} padded=${true}><div class="stack">
    ${preview ? html`<${Prompt} preview=${preview} />` : html`<p class="q">The prompt is shown for a file without errors.</p>`}
    <${Field} label="Try it with a message" value=${message} onInput=${setMessage} maxlength="4000" />
    <div><${Button} onClick=${send} reason=${isValid && message.trim() ? "" : "Correct the file and write a message first"}>Try</${Button}></div>
    ${error && html`<${ErrorNote} error=${error} />`}
    ${reply && html`<p class="quote" role="status"><span class="who">${name}, with this file, not saved ·
      ${" "}${formatDuration(reply.seconds * 1000)} · ${formatCost(reply.cost)}${reply.actions.length > 0 && ` · would do ${reply.actions.join(", ")}`}</span>
      ${reply.text || "(no text)"}</p>`}</div></${Card}>`;
}

function Versions({ path, onOpen }) {
  const list = useLoad(`${path}/versions`);
  if (!list.value) return list.error ? html`<${ErrorNote} error=${list.error} onRetry=${list.reload} />` : html`<${Skeleton} rows=${3} />`;
  if (!list.value.versions.length) return html`<p class="pad q">No version before this one was saved here.</p>`;
  return html`<ul class="facts-list">${list.value.versions.map((version) => html`<li key=${version.id}>
    <span class="grow">replaced <${Time} at=${version.replaced_at} />, ${formatSize(version.bytes)}</span>
    <${Button} onClick=${() => onOpen(version)}>Open</${Button}></li>`)}</ul>`;
}

/** Say what came of saving. */
function Saved({ saved }) {
  if (saved.problem) {
    return html`<${Note} tone="warn">Saved, but not taken up: ${saved.problem}</${Note}>`;
  }
  const parts = [saved.changed.length ? `taken up: ${saved.changed.join(", ")}` : saved.running_etag === saved.etag
    ? "the running bot has taken it up" : "the running bot has not taken it up yet"];
  if (saved.needs_restart.length) parts.push(`after the next start: ${saved.needs_restart.join(", ")}`);
  return html`<${Note} tone="good">Saved; ${parts.join("; ")}.</${Note}>`;
}

function CharacterFile({ agent }) {
  const path = `api/agents/${encodeURIComponent(agent.id)}/character`;
  const file = useLoad(path);
  const [text, setText] = useState(null);
  const [base, setBase] = useState(null);
  const [check, setCheck] = useState(null);
  const [saved, setSaved] = useState(null);
  const [error, setError] = useState(null);
  const [showsVersions, setShowsVersions] = useState(false);
  const input = useRef(null);
  const open = (loaded) => (setBase(loaded), setText(loaded.text));
  useEffect(() => void (file.value && base === null && open(file.value)), [file.value]);
  useEffect(() => {
    if (text === null) return undefined;
    const stop = new AbortController();
    const timer = setTimeout(() => post(`${path}/check`, { text }, { signal: stop.signal })
      .then((result) => setCheck({ ...result, text }), (cause) => cause.status && setError(cause)), CHECK_DELAY);
    return () => (clearTimeout(timer), stop.abort());
  }, [path, text]);
  const isChanged = base !== null && text !== base.text;
  useEffect(() => {
    if (!isChanged) return undefined;
    const warn = (event) => event.preventDefault();
    addEventListener("beforeunload", warn);
    return () => removeEventListener("beforeunload", warn);
  }, [isChanged]);
  if (base === null) {
    return html`<${PageBody} title="Character">${file.error ? html`<${ErrorNote} error=${file.error} onRetry=${file.reload} />`
      : html`<${Skeleton} rows=${12} />`}</${PageBody}>`;
  }
  const errors = check?.errors ?? [];
  const isChecked = check?.text === text;
  const refusal = !base.is_writable ? "The file cannot be written by the bot" : !isChanged ? "Nothing has changed"
    : errors.length ? "Correct the errors first" : !isChecked ? "It is being checked" : "";
  const save = () => put(path, { text, etag: base.etag }).then((answer) => {
    open(answer);
    setSaved(answer);
    setError(null);
  }, setError);
  const openVersion = async (version) => {
    const isSure = !isChanged || await confirm({ title: "Open this version", text: "What you have changed here is lost.", action: "Open" });
    if (!isSure) return;
    setText((await get(`${path}/versions/${version.id}`)).text);
    setShowsVersions(false);
  };
  const goTo = ({ line, column }) => {
    const start = text.split("\n").slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0) + Math.max((column ?? 1) - 1, 0);
    input.current.focus();
    input.current.setSelectionRange(start, start + 1);
  };
  const runs = base.running_etag === base.etag ? html`${agent.name} runs this version, read <${Time} at=${base.running_since} />.`
    : html`${agent.name} runs the version read <${Time} at=${base.running_since} />, not this one.`;
  const actions = html`<span class="q mono cut">${base.file}</span>
    <${Button} to="console/rehearsal">Rehearsal</${Button}>
    <${Button} aria-expanded=${String(showsVersions)} onClick=${() => setShowsVersions(!showsVersions)}>Versions</${Button}>
    <${Button} kind="primary" reason=${refusal} onClick=${save}>Save</${Button}>`;
  const state = errors.length ? html`<${Chip} tone="bad" icon="warn">${countOf(errors.length, "error")}</${Chip}>`
    : isChecked && html`<${Chip} tone="good" icon="check">valid</${Chip}>`;
  return html`<${PageBody} title="Character" actions=${actions}>
    ${error && html`<${ErrorNote} error=${error} />`}${saved && html`<${Saved} saved=${saved} />`}
    ${showsVersions && html`<${Card} title="Versions"><${Versions} path=${path} onOpen=${openVersion} /></${Card}>`}
    <div class="char-grid"><${Card} title="File" actions=${state} footer=${html`<p>${runs} Secrets stand as <code>[secret 1]</code>${" "}
        and stay in the file.</p>`}>
      <${Editor} ...${{ text, errors, label: base.file, isReadOnly: !base.is_writable, onChange: setText, inputRef: input }} />
      <div id="file-errors" aria-live="polite">${errors.length > 0 && html`<ul class="problems bad">${errors.map((item, index) =>
        html`<${Problem} key=${index} problem=${item} onGo=${goTo} />`)}</ul>`}</div>
      ${check?.warnings.length > 0 && html`<ul class="problems">${check.warnings.map((item, index) => html`<${Problem} key=${index}
        problem=${item} onGo=${goTo} />`)}</ul>`}
      ${check?.untrusted_code.length > 0 && html`<p class="pad q">Code that waits until <code>bot character trust</code> was run:
        ${" "}${check.untrusted_code.join(", ")}</p>`}</${Card}>
    <${Trial} path=${path} text=${check?.text ?? null} name=${agent.name} isValid=${isChecked && !errors.length} /></div></${PageBody}>`;
}

export default function Page({ session, query }) {
  if (session.role !== "operator") return html`<${OperatorOnly} title="Character" />`;
  const agent = session.agents.find((item) => item.id === query.agent || item.name === query.agent) ?? session.agents[0];
  return html`<${CharacterFile} key=${agent.id} agent=${agent} />`;
}
