// The field to write in, for one of several people: text, files by button, paste and drop, and an answer to a message.

import { formatSize } from "../format.js";
import { html, readStored, useEffect, useLayoutEffect, useRef, useState, writeStored } from "../lib.js";
import { toast, useMedia } from "../overlay.js";
import { Button, Icon, IconButton, Select } from "../ui.js";
import { LONGEST_FILE } from "./platform.js";

/** Return the files of a paste or a drop. */
const filesOf = (transfer) => [...(transfer?.files ?? [])];

function Tray({ files, onRemove }) {
  if (!files.length) return null;
  return html`<ul class="tray" aria-label="Files to send">${files.map((file, index) => html`<li key=${index} class="file">
    <${Icon} name="file" /><span class="cut">${file.name}<small>${formatSize(file.size)}${file.size > LONGEST_FILE
      && html`<span class="bad">, the limit is ${formatSize(LONGEST_FILE)}</span>`}</small></span>
    <${IconButton} icon="close" label=${`Remove ${file.name}`} onClick=${() => onRemove(index)} /></li>`)}</ul>`;
}

/** The composer. `person` is the id of who writes; `reply` is the message that is answered, if any. */
export function Composer({ platform, person, onPerson, reply, onReply }) {
  const { room } = platform;
  const draft = `emulated.${platform.name}.${platform.place}`;
  const [text, setText] = useState(() => readStored(draft, ""));
  const [files, setFiles] = useState([]);
  const [isSending, setSending] = useState(false);
  const [problem, setProblem] = useState("");
  const field = useRef(null);
  const picker = useRef(null);
  const isCoarse = useMedia("(pointer: coarse)");
  const change = (value) => {
    writeStored(draft, value || undefined);
    setText(value);
    setProblem("");
  };
  useLayoutEffect(() => {
    field.current.style.height = "auto";
    field.current.style.height = `${field.current.scrollHeight + 2}px`;
  }, [text]);
  useEffect(() => {
    if (reply || !isCoarse) field.current.focus();
  }, [reply]);
  const isTooLong = text.length > platform.longest;
  const isTooLarge = files.some((file) => file.size > LONGEST_FILE);
  const canSend = (text.trim() || files.length) && !isTooLong && !isTooLarge && !isSending && !platform.isLost;
  const add = (added) => platform.can("files") && added.length && setFiles((old) => [...old, ...added]);
  const send = async (event) => {
    event.preventDefault();
    field.current.focus();
    if (!canSend) return;
    setSending(true);
    try {
      await platform.say({ person, text: text.trim(), replyTo: reply?.id, files });
      change("");
      setFiles([]);
      onReply(null);
    } catch (error) {
      setProblem(error.message);
    }
    setSending(false);
  };
  const mention = (name) => {
    change(`${text}${text && !/\s$/.test(text) ? " " : ""}${name} `);
    field.current.focus();
  };
  const onKeyDown = (event) => {
    if (event.key === "Escape" && reply) onReply(null);
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing && !isCoarse) send(event);
  };
  const onPaste = (event) => {
    const pasted = filesOf(event.clipboardData);
    if (!pasted.length) return;
    event.preventDefault();
    if (platform.can("files")) add(pasted);
    else toast(`${platform.name} takes no files here`);
  };
  const onDrop = (event) => {
    event.preventDefault();
    add(filesOf(event.dataTransfer));
  };
  const label = `Message in ${room.name}`;
  const said = isTooLong ? `${text.length.toLocaleString("en")} characters; ${platform.name} takes ${
    platform.longest.toLocaleString("en")}` : problem;
  return html`<div class="composer"><form onSubmit=${send} onDragOver=${(event) => event.preventDefault()} onDrop=${onDrop}>
    ${reply && html`<p class="row replying"><${Icon} name="reply" size="s" /><span class="cut grow">Reply to ${reply.by}: ${
      reply.text}</span><${IconButton} icon="close" label="Do not reply" onClick=${() => onReply(null)} /></p>`}
    <${Tray} files=${files} onRemove=${(index) => setFiles(files.filter((_, at) => at !== index))} />
    <textarea id="say" ref=${field} rows="1" aria-label=${label} placeholder=${`Write in ${room.name}`} value=${text}
      aria-describedby="hint" aria-invalid=${said ? "true" : undefined} onKeyDown=${onKeyDown} onPaste=${onPaste}
      onInput=${(event) => change(event.target.value)}></textarea>
    ${said && html`<p class="bad said" role="alert">${said}</p>`}
    <div class="row wrap tools">${platform.can("files") && html`<${IconButton} icon="clip" label="Attach files"
        onClick=${() => picker.current.click()} /><input type="file" multiple hidden ref=${picker}
        onChange=${(event) => { add([...event.target.files]); picker.current.value = ""; }} />`}
      <label class="row as"><span>as</span><${Select} label="Who writes" value=${person} onChange=${onPerson}
        options=${room.people.map(({ id, name }) => [id, name])} /></label>
      ${room.people.length > 1 && platform.bots.slice(0, 3).map((bot) => html`<${Button} kind="bare" key=${bot.id}
        onClick=${() => mention(bot.id)}><span class="vh">Mention </span>${bot.id}</${Button}>`)}
      <span class="grow"></span><button type="submit" class="btn primary icon" aria-label="Send" title="Send"
        aria-disabled=${canSend ? undefined : "true"}><${Icon} name="up" /></button></div></form>
    <p class="hint" id="hint">${room.hint}</p></div>`;
}
