// One message of the thread, with what stands under it.

import { formatCost, formatDuration, Time, useNow } from "../format.js";
import { classes, html, t, useEffect, useRef, useState } from "../lib.js";
import { copyText } from "../overlay.js";
import { parseAddress, setQuery } from "../router.js";
import { Files, Markdown } from "../thread.js";
import { Button, Face, Icon, IconButton } from "../ui.js";
import { OPEN } from "./room.js";

/** The sentence about the outcome of a message, or how long its answer took and what it cost; nothing while it is open. */
function Said({ outcome, isComplete = true }) {
  const isOpen = !outcome || OPEN.has(outcome.outcome);
  if (isOpen && isComplete) return null;
  const { outcome: state, headline, took_ms: took, cost, rule = "stopped" } = outcome ?? {};
  const cause = isOpen || rule === "stopped" ? t("Stopped by you") : headline || t("Not answered");
  const answered = took ? `${t("Answered in {time}", { time: formatDuration(took) })}${cost === null ? "" : ` · ${formatCost(cost)}`}` : "";
  const text = !isComplete ? t("{cause}; the reply is incomplete", { cause }) : state === "answered" ? answered : headline || t("Not answered");
  return text && html`<span class=${classes("said", state === "failed" && "bad")}>${text}</span>`;
}

/** The outcome of a message, unless a reply tells it. */
function Told({ message: { id, outcome }, room }) {
  if (!outcome || OPEN.has(outcome.outcome) || room.hasReply(id)) return null;
  return html`<${Said} outcome=${outcome} /><${WhyButton} id=${id} />`;
}

function Writing({ since, text = t("Writing") }) {
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
  const canEdit = message.state === "sent" && !isReadOnly(room) && message.text && !message.text.startsWith("/");
  return html`<${Time} at=${message.created_at} as="minute" />${message.edited_at && html`<span>edited</span>`}
    <${Told} message=${message} room=${room} />
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
    <span>${t("{at} of {count}", { at: at + 1, count })}</span>
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
  if (!message.author.is_agent) return html`<${Told} message=${message} room=${room} />`;
  const outcome = room.answered(message);
  return html`<${Said} outcome=${outcome} isComplete=${message.is_complete !== false} />
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
  if (message.kind === "notice") return html`<li class="msg q" id=${`m-${message.id}`} tabindex="-1">${text}</li>`;
  const isMine = message.isOwn || (!author.is_agent && author.id === room.me?.id);
  const files = html`<${Files} files=${attachments} />`;
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
    ${files}${text && html`<${Markdown} text=${text} detail=${isStreaming} />`}
    <div class="under"><${UnderReply} ...${{ message, room, version }} onVersion=${setChosen} /></div></li>`;
}

/** What the character says before the first message; it is not stored. */
export function Greeting({ agent, session }) {
  const text = agent.greeting?.replaceAll("{{user}}", session.name || t("you"));
  return text && html`<div class="msg bot greeting"><${Face} name=${agent.name} picture=${agent.face} />
    <p class="who">${agent.name}</p><${Markdown} text=${text} /></div>`;
}

/** t("The model is busy …") counting down in place, or that the agent writes. */
export function TypingLine({ room }) {
  const now = useNow(!!room.typing?.retryAt);
  if (!room.typing || room.messages.some((message) => message.state === "streaming")) return null;
  const { isBusy, retryAt, since } = room.typing;
  const left = retryAt ? Math.ceil((retryAt - now) / 1000) : 0;
  const text = t(left > 0 ? "The model is busy, trying again in {left} s" : "The model is busy, trying again", { left });
  return html`<li class="msg bot typing"><${Face} name=${room.agent.name} picture=${room.agent.face} />
    <p class="who">${room.agent.name}</p><p class="status"><span class="spin" aria-hidden="true"></span>
      ${isBusy ? html`<span>${text}</span>` : html`<${Writing} since=${since} />`}</p></li>`;
}
