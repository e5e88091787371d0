// The field to write in: draft kept, grows with its text, Enter sends (with a coarse pointer it breaks the line).

import { html, readStored, useEffect, useLayoutEffect, useRef, useState, writeStored } from "../lib.js";
import { useMedia } from "../overlay.js";
import { Button, Icon, Note } from "../ui.js";

const LONGEST = 32_000; // characters of a message; said before it is sent

/** Return `[text, setText]` of the draft of a conversation, kept in this browser. */
function useDraft(key) {
  const [draft, setDraft] = useState({ key, text: readStored(`draft.${key}`, "") });
  const current = draft.key === key ? draft : { key, text: readStored(`draft.${key}`, "") };
  const change = (text) => {
    writeStored(`draft.${key}`, text || undefined);
    setDraft({ key, text });
  };
  return [current.text, change];
}

/**
 * The composer of a conversation. `onSend(text)`; `onStop()` is given while a reply is written; `blocked` is a reason why nothing can be written now, `isReadOnly`
 * shows a note instead.
 */
export function Composer({ agent, draftKey, blocked = "", isReadOnly = false, onSend, onStop }) {
  const [text, setText] = useDraft(draftKey);
  const field = useRef(null);
  const isCoarse = useMedia("(pointer: coarse)");
  useLayoutEffect(() => {
    const node = field.current;
    if (!node) return;
    node.style.height = "auto";
    node.style.height = `${node.scrollHeight + 2}px`;
  }, [text, draftKey]);
  useEffect(() => {
    if (!isCoarse) field.current?.focus();
  }, [draftKey]);
  if (isReadOnly) {
    return html`<div class="composer"><div id="say" tabindex="-1"><${Note} icon="eye"
      >This token is read-only: you can see this conversation and change nothing.</${Note}></div></div>`;
  }
  const tooLong = text.length > LONGEST && `${text.length.toLocaleString("en")} characters; the limit is 32,000`;
  const canSend = text.trim() && !blocked && !tooLong;
  const send = (event) => {
    event.preventDefault();
    field.current.focus();
    if (!canSend) return;
    setText("");
    onSend(text.trim());
  };
  const onKeyDown = (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || isCoarse) return;
    send(event);
  };
  const placeholder = blocked || (agent.name.length > 24 ? "Write a message" : `Write to ${agent.name}`);
  return html`<div class="composer"><form onSubmit=${send}>
    <textarea id="say" ref=${field} rows="1" aria-label=${`Message to ${agent.name}`} placeholder=${placeholder} value=${text}
      disabled=${!!blocked} aria-describedby="hint" aria-invalid=${tooLong ? "true" : undefined} onKeyDown=${onKeyDown}
      enterkeyhint=${isCoarse ? "enter" : "send"} onInput=${(event) => setText(event.target.value)}></textarea>
    <div class="row"><span class="grow">${tooLong && html`<span class="bad" role="status">${tooLong}</span>`}</span>
      ${onStop && html`<${Button} icon="stop" onClick=${onStop}>Stop</${Button}>`}
      <button type="submit" class="btn primary icon" aria-label="Send" title="Send" aria-disabled=${canSend ? undefined : "true"}>
        <${Icon} name="up" /></button></div></form>
    <p class="hint" id="hint">${!isCoarse && html`<span class="only-wide">Enter sends, Shift + Enter begins a new line, </span>`}
      /help lists the commands. ${agent.name} is a program and can be wrong.</p></div>`;
}
