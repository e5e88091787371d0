// The field to write in: draft kept, grows with its text, Enter sends (with a coarse pointer it breaks the line), and
// takes files by button, paste and drop. What few messages need is loaded when it is first needed.

import { html, language, readStored, t, useEffect, useLayoutEffect, useReducer, useRef, useState, writeStored } from "../lib.js";
import { toast, useMedia } from "../overlay.js";
import { Button, Icon, Note } from "../ui.js";

const LONGEST = 32_000; // characters of a message; said before it is sent
const LONG_PASTE = 4000; // characters; a longer pasted text becomes a file
const BEGINNING = /^\/[\w-]*$/; // of a command

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

/** Return a module once `load` is called, else null: `[module, load]`. */
function useModule(load) {
  const [module, setModule] = useState(null);
  const isAsked = useRef(null);
  const ask = () => {
    isAsked.current ??= load().then((loaded) => {
      setModule(loaded);
      return loaded;
    }, () => {
      isAsked.current = null;
      toast(t("The bot cannot be reached"));
      return null;
    });
    return isAsked.current;
  };
  return [module, ask];
}

/** Return the module of files, loaded after the first paint, and the files of a draft; both are null before. */
function useFiles(key, limits, isOn) {
  const [module, load] = useModule(() => import("./attachments.js"));
  const [, draw] = useReducer((count) => count + 1, 0);
  const files = module?.filesOf(key, limits) ?? null;
  useEffect(() => void (isOn && load()), [isOn]);
  useEffect(() => files?.listen(draw), [files]);
  return [module, files];
}

/**
 * The composer of a conversation. `onSend(text, attachments)`; `onStop()` is given while a reply is written; `blocked` is a
 * reason why nothing can be written now, `isReadOnly` shows a note instead; `limits` are those of files.
 */
export function Composer({ agent, draftKey, limits, blocked = "", isReadOnly = false, onSend, onStop }) {
  const [text, setText] = useDraft(draftKey);
  const canWrite = !isReadOnly && !blocked;
  const [tools, files] = useFiles(draftKey, limits, canWrite);
  const [menu, loadMenu] = useModule(() => import("./commands.js"));
  const [isRecording, setRecording] = useState(false);
  const [isWaiting, setWaiting] = useState(false); // to be sent once its files are uploaded
  const [problem, setProblem] = useState("");
  const field = useRef(null);
  const menuKeys = useRef(null);
  const isCoarse = useMedia("(pointer: coarse)");
  const [isOver, setOver] = useState(false); // files are held over the page
  const isCommand = BEGINNING.test(text);
  useLayoutEffect(() => {
    const node = field.current;
    if (!node) return;
    node.style.height = "auto";
    node.style.height = `${node.scrollHeight + 2}px`;
  }, [text, draftKey]);
  useEffect(() => {
    if (!isCoarse) field.current?.focus();
    setWaiting(false);
    setProblem("");
  }, [draftKey]);
  useEffect(() => void (isCommand && canWrite && loadMenu()), [isCommand]);
  const tooLong = text.length > LONGEST && t("{count} characters; the limit is {limit}", { count: text.length.toLocaleString(language), limit: LONGEST.toLocaleString(language) });
  const isUploading = !!files?.isUploading;
  const refusal = tooLong || files?.problem || "";
  const hasContent = !!text.trim() || !!files?.items.length;
  const canSend = hasContent && !blocked && !refusal && !isRecording;
  const deliver = () => {
    const attachments = files?.take() ?? [];
    setText("");
    onSend(text.trim(), attachments);
  };
  useEffect(() => {
    if (!isWaiting || isUploading) return;
    setWaiting(false);
    if (canSend) deliver();
  }, [isWaiting, isUploading]);
  if (isReadOnly) {
    return html`<div class="composer"><div id="say" tabindex="-1"><${Note} icon="eye"
      >This token is read-only: you can see this conversation and change nothing.</${Note}></div></div>`;
  }
  const send = (event) => {
    event.preventDefault();
    field.current.focus();
    if (!canSend) return;
    setProblem("");
    if (isUploading) setWaiting(true);
    else deliver();
  };
  const insert = (pasted) => {
    const node = field.current;
    node.focus();
    node.setRangeText(pasted, node.selectionStart, node.selectionEnd, "end");
    setText(node.value);
  };
  const onPaste = (event) => {
    const pastedFiles = [...(event.clipboardData?.files ?? [])];
    const pasted = event.clipboardData?.getData("text/plain") ?? "";
    if (!pastedFiles.length && pasted.length <= LONG_PASTE) return;
    if (!files) return;
    event.preventDefault();
    if (pastedFiles.length) files.add(pastedFiles);
    else files.addText(pasted);
  };
  const onKeyDown = (event) => {
    if (event.isComposing) return;
    if (menuKeys.current?.(event)) return void event.preventDefault();
    if (event.key !== "Enter" || event.shiftKey || isCoarse) return;
    send(event);
  };
  const noteRecording = (isOn, reason = "") => {
    setRecording(isOn);
    setProblem(reason);
    if (!isOn) field.current?.focus();
  };
  const said = isWaiting ? t("Sends when the files are uploaded") : refusal || problem;
  const placeholder = blocked || (agent.name.length > 24 ? t("Write a message") : t("Write to {name}", agent));
  return html`<div class="composer"><form class=${isOver ? "over" : ""} onSubmit=${send}>
    ${isCommand && menu && html`<${menu.CommandMenu} agent=${agent} text=${text} field=${field} keys=${menuKeys} onChoose=${setText} />`}
    ${files && html`<${tools.Tray} files=${files} onUndo=${insert} />`}
    <textarea id="say" ref=${field} rows="1" aria-label=${t("Message to {name}", agent)} placeholder=${isOver ? t("Drop the files to attach them") : placeholder}
      value=${text} disabled=${!!blocked} aria-describedby="hint" aria-invalid=${tooLong ? "true" : undefined} onKeyDown=${onKeyDown}
      enterkeyhint=${isCoarse ? "enter" : "send"} onPaste=${onPaste} onInput=${(event) => setText(event.target.value)}></textarea>
    <div class="row">${files && canWrite && html`<${tools.FileTools} agent=${agent} files=${files} isRecording=${isRecording}
        onRecording=${noteRecording} onOver=${setOver} />`}
      <span class="grow said">${said && html`<span class=${isWaiting ? "q" : "bad"} role="status">${said}</span>`}</span>
      ${onStop && html`<${Button} icon="stop" onClick=${onStop}>Stop</${Button}>`}
      <button type="submit" class="btn primary icon" aria-label="Send" title="Send" aria-disabled=${canSend ? undefined : "true"}>
        <${Icon} name="up" /></button></div></form>
    <p class="hint" id="hint">${!isCoarse && html`<span class="only-wide">Enter sends, Shift + Enter begins a new line, </span>`}
      ${t("/ lists the commands. {name} is a program and can be wrong.", agent)}</p></div>`;
}
