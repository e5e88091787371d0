// One message of the thread, with what stands under it.

import { formatCost, formatDuration, formatSize, Time, useNow } from "../format.js";
import { classes, html, useEffect, useLayoutEffect, useRef, useState } from "../lib.js";
import { copyText } from "../overlay.js";
import { parseAddress, setQuery } from "../router.js";
import { Button, Face, Icon, IconButton } from "../ui.js";
import { OPEN } from "./room.js";

let renderer = null; // the Markdown module, loaded with the first reply
const loadRenderer = () => (renderer ? Promise.resolve(renderer) : import("./markdown.js").then((module) => (renderer = module)));

/** A text as Markdown; plain until the renderer is there. */
function Markdown({ text, isStreaming }) {
  const box = useRef(null);
  const [isLoaded, setLoaded] = useState(!!renderer);
  useEffect(() => {
    let isShown = true;
    if (!renderer) loadRenderer().then(() => isShown && setLoaded(true), () => {});
    return () => void (isShown = false);
  }, []);
  useLayoutEffect(() => {
    if (isLoaded) renderer.renderMarkdown(box.current, text, { isStreaming });
  }, [text, isStreaming, isLoaded]);
  return isLoaded ? html`<div key="md" class="body md" dir="auto" ref=${box}></div>`
    : html`<div key="plain" class="body plain" dir="auto">${text}</div>`;
}

/** The files of a message: pictures and recordings in place, others as a link. */
function Files({ files }) {
  const [isLoaded, setLoaded] = useState(!!renderer);
  useEffect(() => void loadRenderer().then(() => setLoaded(true), () => {}), []);
  if (!isLoaded) return null;
  return html`<div class="files">${files.map((file, index) => html`<${File} key=${index} file=${file} />`)}</div>`;
}

function File({ file }) {
  const [isBroken, setBroken] = useState(false);
  const own = file.isOfCommand ? file.url : renderer.ownFile(file.url);
  const name = file.title || file.description || file.url || file.kind.toLowerCase();
  if (own && file.kind === "IMAGE" && !isBroken) {
    return html`<a href=${own} target="_blank"><img class="pic" src=${own} alt=${file.description || name}
      onError=${() => setBroken(true)} /></a>`;
  }
  if (own && file.kind === "AUDIO") {
    return html`<div class="sound"><audio class="player" src=${own} controls aria-label=${name}></audio>
      ${file.text && html`<p class="q2" dir="auto">${file.text}</p>`}${file.problem && html`<p class="q">${file.problem}</p>`}</div>`;
  }
  if (own && file.kind === "VIDEO") return html`<video class="pic" src=${own} controls aria-label=${name}></video>`;
  const label = html`<${Icon} name="file" /><span>${name}${(file.problem || file.bytes) && html`<small>${
    file.bytes ? formatSize(file.bytes) : ""}${file.bytes && file.problem ? ", " : ""}${file.problem}</small>`}</span>`;
  const isWeb = /^https?:/.test(file.url);
  return own || isWeb
    ? html`<a class="file" href=${own ?? file.url} download=${file.isOfCommand && name} target="_blank" rel="noopener noreferrer nofollow">${label}</a>`
    : html`<span class="file">${label}</span>`;
}

/** Return the sentence about a message without a reply, or "" while it is open or the reply says it. */
function outcomeText({ id, outcome }, room) {
  return !outcome || OPEN.has(outcome.outcome) || room.hasReply(id) ? "" : outcome.headline || "Not answered";
}

function Writing({ since, text = "Writing" }) {
  const now = useNow();
  return html`<span aria-hidden="true">${text} · ${formatDuration(Math.max(0, now - since)).replace(/\.\d+ s/, " s")}</span>`;
}

/** What stands under an own message: its time, or that it waits, or why it was not sent. */
function UnderOwn({ message, room, onEdit }) {
  if (message.state === "failed") {
    return html`<span class="bad">Not sent: ${message.problem}</span>
      <${Button} kind="bare" onClick=${() => room.sendAgain(message.id)}>Send again</${Button}>
      <${Button} kind="bare" onClick=${() => room.discard(message.id)}>Discard</${Button}>`;
  }
  if (message.state === "waiting" && !room.isReady) {
    return html`<${Icon} name="clock" size="s" /><span>Waits for the connection</span>`;
  }
  const text = outcomeText(message, room);
  const canEdit = message.state === "sent" && !isReadOnly(room) && message.text && !message.text.startsWith("/");
  return html`<${Time} at=${message.created_at} as="minute" />${message.edited_at && html`<span>edited</span>`}
    ${text && html`<span class=${classes("said", message.outcome.outcome === "failed" && "bad")}>${text}</span>
    <${WhyButton} id=${message.id} />`}
    ${canEdit && html`<${IconButton} icon="edit" label="Edit and resend" onClick=${onEdit} />`}`;
}

const isReadOnly = (room) => room.session.role === "read_only";

/** "Why?": opens the receipt of a message beside the thread. */
function WhyButton({ id }) {
  const isOpen = parseAddress().query.why === id;
  return html`<button type="button" class="btn bare why" aria-haspopup="dialog" aria-expanded=${String(isOpen)}
    onClick=${() => setQuery({ why: isOpen ? "" : id }, { replace: false })}>Why?</button>`;
}

/** The earlier and later texts of a reply. */
function Versions({ count, at, onShow }) {
  if (count < 2) return null;
  return html`<span class="row" role="group" aria-label="Versions">
    <${IconButton} icon="left" label="Earlier version" onClick=${() => onShow(Math.max(0, at - 1))} />
    <span>${at + 1} of ${count}</span>
    <${IconButton} icon="right" label="Later version" onClick=${() => onShow(Math.min(count - 1, at + 1))} /></span>`;
}

/** The field in which an own message is written anew. */
function EditField({ text, onDone }) {
  const [value, setValue] = useState(text);
  const field = useRef(null);
  useEffect(() => field.current.focus(), []);
  const onKeyDown = (event) => event.key === "Escape" && (event.preventDefault(), onDone(""));
  return html`<form class="stack tight edit" onSubmit=${(event) => (event.preventDefault(), onDone(value.trim()))}>
    <textarea class="input" ref=${field} rows="3" aria-label="Edit the message" value=${value} onKeyDown=${onKeyDown}
      onInput=${(event) => setValue(event.target.value)}></textarea>
    <div class="row end"><${Button} onClick=${() => onDone("")}>Cancel</${Button}>
      <button type="submit" class="btn primary">Send</button></div></form>`;
}

function UnderReply({ message, room, version, onVersion }) {
  if (message.state === "streaming" && !room.isReady) return html`<span>Interrupted; waits for the connection</span>`;
  if (message.state === "streaming") return html`<${Writing} since=${room.typing?.since ?? Date.parse(message.created_at)} />`;
  if (message.state === "shown") {
    return html`<span>Only you see this</span>${message.choices.map((choice) => html`<${Button} key=${choice.value}
      onClick=${() => room.press(message.id, choice.value)}>${choice.label}</${Button}>`)}`;
  }
  if (!message.author.is_agent) {
    const text = outcomeText(message, room);
    return text && html`<span class="said">${text}</span><${WhyButton} id=${message.id} />`;
  }
  const outcome = room.answered(message);
  const figures = outcome?.took_ms ? `Answered in ${formatDuration(outcome.took_ms)}${
    outcome.cost === null ? "" : ` · ${formatCost(outcome.cost)}`}` : "";
  const said = message.is_complete === false ? "Stopped by you; the reply is incomplete" : figures;
  return html`${said && html`<span class="said">${said}</span>`}
    ${outcome && html`<${WhyButton} id=${message.in_reply_to} />`}
    <${IconButton} icon="copy" label="Copy" onClick=${() => copyText(message.text)} />
    ${outcome && !isReadOnly(room) && html`<${IconButton} icon="again" label="Regenerate"
      onClick=${() => room.repeat(message)} />`}
    <${Versions} count=${message.versions?.length ?? 0} at=${version} onShow=${onVersion} />`;
}

/** A message of the thread. */
export function Message({ message, room }) {
  const { author, attachments = [], versions = [] } = message;
  const [isEditing, setEditing] = useState(false);
  const [chosen, setChosen] = useState(null);
  useEffect(() => setChosen(null), [versions.length]);
  const version = chosen ?? versions.length - 1;
  const isStreaming = message.state === "streaming";
  const text = isStreaming ? message.text : (versions[version]?.text ?? message.text);
  const finishEdit = (changed) => {
    const isKept = changed && changed !== message.text && !room.rewrite(message.id, changed);
    if (!isKept) setEditing(false);
  };
  const isMine = message.isOwn || (!author.is_agent && author.id === room.me?.id);
  const files = attachments.length > 0 && html`<${Files} files=${attachments} />`;
  if (isMine) {
    return html`<li class=${classes("msg me", message.state)} id=${`m-${message.id}`} tabindex="-1">
      <span class="vh">You wrote:</span>${files}
      ${isEditing ? html`<${EditField} text=${message.text} onDone=${finishEdit} />`
        : message.text && html`<div class="body plain" dir="auto">${message.text}</div>`}
      <div class="under"><${UnderOwn} message=${message} room=${room} onEdit=${() => setEditing(true)} /></div></li>`;
  }
  return html`<li class=${classes("msg bot", message.state)} id=${`m-${message.id}`} tabindex="-1"
    aria-hidden=${isStreaming ? "true" : undefined}>
    <${Face} name=${author.name} picture=${author.is_agent ? room.agent.face : undefined} isPerson=${!author.is_agent} />
    <p class="who">${author.name}<${Time} at=${message.created_at} as="minute" /></p>
    ${files}${text && html`<${Markdown} text=${text} isStreaming=${isStreaming} />`}
    <div class="under"><${UnderReply} ...${{ message, room, version }} onVersion=${setChosen} /></div></li>`;
}

/** What the character says before the first message; it is not stored. */
export function Greeting({ agent, session }) {
  const text = agent.greeting?.replaceAll("{{user}}", session.name || "you");
  return text && html`<div class="msg bot greeting"><${Face} name=${agent.name} picture=${agent.face} />
    <p class="who">${agent.name}</p><${Markdown} text=${text} /></div>`;
}

/** "The model is busy …" counting down in place, or that the agent writes. */
export function TypingLine({ room }) {
  const now = useNow(!!room.typing?.retryAt);
  if (!room.typing || room.messages.some((message) => message.state === "streaming")) return null;
  const { isBusy, retryAt, since } = room.typing;
  const left = retryAt ? Math.ceil((retryAt - now) / 1000) : 0;
  const text = `The model is busy, trying again${left > 0 ? ` in ${left} s` : ""}`;
  return html`<li class="msg bot typing"><${Face} name=${room.agent.name} picture=${room.agent.face} />
    <p class="who">${room.agent.name}</p><p class="status"><span class="spin" aria-hidden="true"></span>
      ${isBusy ? html`<span>${text}</span>` : html`<${Writing} since=${since} />`}</p></li>`;
}
