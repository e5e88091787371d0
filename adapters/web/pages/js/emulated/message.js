// One message of an emulated room: what people see of it, and below it what the characters made of it.

import { address } from "../api.js";
import { formatCost, formatDuration, formatSize, Time } from "../format.js";
import { classes, html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { Menu, toast } from "../overlay.js";
import { parseAddress, setQuery } from "../router.js";
import { lazy, Markdown, Replied } from "../thread.js";
import { Button, Face, Icon, IconButton } from "../ui.js";
import { OutcomeMark } from "../why.js";

const text = lazy(() => import("./text.js")); // formats texts; loaded with the first message
const drawText = (module, box, _, { message, dialect }) => module.renderText(box, message, dialect);

/** A text as the platform shows it. */
function Text({ message, dialect }) {
  const detail = useMemo(() => ({ message, dialect }), [message.text, message.spans, dialect]);
  return html`<${Markdown} text=${message.text} detail=${detail} part=${text} draw=${drawText} />`;
}

function File({ file }) {
  const url = address("page/file", { id: file.id }).href;
  if (file.content_type.startsWith("image/") && file.content_type !== "image/svg+xml") {
    return html`<a href=${url} target="_blank"><img class="pic" src=${url} alt=${file.name} /></a>`;
  }
  if (file.content_type.startsWith("audio/")) return html`<audio class="player" src=${url} controls aria-label=${file.name}></audio>`;
  if (file.content_type.startsWith("video/")) return html`<video class="pic" src=${url} controls aria-label=${file.name}></video>`;
  return html`<a class="file" href=${url} download=${file.name}><${Icon} name="file" /><span>${file.name}
    <small>${formatSize(file.size)}</small></span></a>`;
}

/** What a character made of the message, with "Why?". */
function Outcome({ outcome, isNamed }) {
  const isOpen = parseAddress().query.why === outcome.receipt_id;
  const figures = [outcome.took_ms && formatDuration(outcome.took_ms), outcome.cost !== null && formatCost(outcome.cost)];
  return html`<p class="outcome"><${OutcomeMark} outcome=${outcome.outcome} />
    <span class="said">${isNamed && `${outcome.agent}: `}${[outcome.headline, ...figures].filter(Boolean).join(" · ")}</span>
    <button type="button" class="btn bare why" aria-haspopup="dialog" aria-expanded=${String(isOpen)}
      aria-label=${isNamed ? `Why, of ${outcome.agent}?` : undefined}
      onClick=${() => setQuery({ why: isOpen ? "" : outcome.receipt_id }, { replace: false })}>Why?</button></p>`;
}

function Reactions({ message, person, onReact }) {
  return message.reactions.map(([emoji, users]) => html`<button type="button" class="chip" key=${emoji}
    aria-pressed=${String(users.includes(person))} aria-label=${`${emoji}, ${users.length}`}
    onClick=${() => onReact(emoji)}>${emoji} ${users.length}</button>`);
}

function EditField({ text, onDone }) {
  const [value, setValue] = useState(text);
  const field = useRef(null);
  useEffect(() => field.current.focus(), []);
  return html`<form class="stack tight edit" onSubmit=${(event) => (event.preventDefault(), onDone(value.trim()))}>
    <textarea class="input" ref=${field} rows="3" aria-label="Edit the message" value=${value}
      onKeyDown=${(event) => event.key === "Escape" && onDone("")} onInput=${(event) => setValue(event.target.value)}></textarea>
    <div class="row end"><${Button} onClick=${() => onDone("")}>Cancel</${Button}>
      <button type="submit" class="btn primary">Save</button></div></form>`;
}

/** The message that this one answers. */
function Question({ message, platform }) {
  const replied = message.reply_to && platform.messages.find((other) => other.id === message.reply_to);
  if (!replied) return message.note ? html`<p class="replied q cut">${message.note}</p>` : null;
  return html`<${Replied} by=${replied.by} text=${replied.text || replied.files[0]?.name || "a message"} />`;
}

/** A message; `person` is who writes on this page, `onReply(message)` answers it. */
export function Message({ message, platform, person, onReply }) {
  const [isEditing, setEditing] = useState(false);
  const tell = (promise) => promise.catch((error) => toast(error.message));
  const react = (emoji) => tell(platform.react(person, message.id, emoji));
  const isPerson = !message.is_bot;
  const finishEdit = (text) => {
    setEditing(false);
    if (text && text !== message.text) tell(platform.edit(message.user_id, message.id, text));
  };
  const remove = async () => {
    const { confirm } = await import("../dialogs.js");
    const text = `${message.by} takes it back, as ${platform.name} shows it to the others.`;
    if (await confirm({ title: "Delete this message?", text, action: "Delete" })) tell(platform.remove(message.user_id, message.id));
  };
  const add = platform.emojis.length === 1
    ? html`<${IconButton} icon="smile" label=${`React with ${platform.emojis[0]}`} onClick=${() => react(platform.emojis[0])} />`
    : html`<${Menu} label="React" icon="smile" items=${platform.emojis.map((emoji) => ({ text: emoji, onChoose: () => react(emoji) }))} />`;
  return html`<li class=${classes("msg bot", isPerson && "theirs")} id=${`m-${message.id}`} tabindex="-1">
    <${Face} name=${message.by} isPerson=${isPerson} />
    <p class="who">${message.by}${message.at && html`<${Time} at=${message.at} as="minute" />`}${message.is_edited
      && html` <span class="q edited">edited</span>`}</p>
    <${Question} ...${{ message, platform }} />
    ${message.files.length > 0 && html`<div class="files">${message.files.map((file) => html`<${File} key=${file.id} file=${file} />`)}</div>`}
    ${isEditing ? html`<${EditField} text=${message.text} onDone=${finishEdit} />`
      : message.text && html`<${Text} message=${message} dialect=${platform.dialect} />`}
    ${message.buttons.length > 0 && html`<div class="row wrap choices">${message.buttons.map(([id, label]) => html`<${Button}
      key=${id} onClick=${() => tell(platform.press(person, message.id, id))}>${label}</${Button}>`)}</div>`}
    <div class="under"><${Reactions} message=${message} person=${person} onReact=${react} />
      <${IconButton} icon="reply" label=${`Reply to ${message.by}`} onClick=${() => onReply(message)} />
      ${platform.can("react") && add}
      ${isPerson && platform.can("edit") && html`<${IconButton} icon="edit" label="Edit" onClick=${() => setEditing(true)} />`}
      ${isPerson && platform.can("delete") && html`<${IconButton} icon="trash" label="Delete" onClick=${remove} />`}</div>
    ${message.outcomes.map((outcome) => html`<${Outcome} key=${outcome.agent} outcome=${outcome}
      isNamed=${platform.bots.length > 1 || message.outcomes.length > 1} />`)}</li>`;
}
