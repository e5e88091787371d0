// The files of a draft: uploaded at once, shown as chips, and kept until the message is sent. Loaded with the first file.

import { address, ApiError, toSignIn } from "../api.js";
import { formatCount, formatSize } from "../format.js";
import { classes, html, randomId, readStored, t, useEffect, useRef, useState, writeStored } from "../lib.js";
import { Button, Icon, IconButton } from "../ui.js";

const LIFETIME = 23 * 3_600_000; // the server removes after a day what was not sent
const PICTURE = /^image\/(png|jpeg|gif|webp|avif)$/;
const drafts = new Map(); // uploads go on while another conversation is shown

/** Return the kind of a file as the server names it. */
function kindOf(type) {
  if (PICTURE.test(type)) return "IMAGE";
  return /^(audio|video)\//.exec(type)?.[1].toUpperCase() ?? "DOCUMENT";
}

/** Return the files of a draft. */
export function filesOf(key, limits) {
  if (!drafts.has(key)) drafts.set(key, new Files(key, limits));
  return drafts.get(key);
}

/**
 * The files of one draft. An item is `{ key, name, size, type, state, progress, problem, id, text }`; its state is
 * "uploading", "ready", "failed" (it can be tried again) or "refused"; `text` is that of a pasted text.
 */
export class Files {
  constructor(key, limits) {
    Object.assign(this, { key, limits, items: [], refused: "", listeners: new Set() });
    const isFresh = (item) => Date.now() - item.at < LIFETIME;
    this.items = readStored(`files.${key}`, []).filter(isFresh).map((item) => ({ ...item, state: "ready" }));
  }

  listen(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  get isUploading() {
    return this.items.some((item) => item.state === "uploading");
  }

  /** Why the message cannot be sent as it is, or "". */
  get problem() {
    const item = this.items.find(({ state }) => state === "failed" || state === "refused");
    return item ? t(item.state === "failed" ? "Remove {name} or try again: {problem}" : "Remove {name}: {problem}", item) : "";
  }

  /** Add files and upload them; too large ones are shown with the limit, and what is one too many is named. */
  add(files) {
    const free = Math.max(0, this.limits.max_count - this.items.length);
    const extra = files.slice(free).map(({ name }) => name);
    this.refused = extra.length ? t("At most {count} files a message. Not added: {names}", { count: this.limits.max_count, names: extra.join(", ") }) : "";
    for (const file of files.slice(0, free)) this.begin({ key: randomId(), name: file.name, size: file.size, type: file.type, file });
    this.changed();
  }

  /** Add a long text as a file; `text` stays with it, so that it can be put back. */
  addText(text) {
    const file = new File([text], `${t("Pasted text")}.txt`, { type: "text/plain" });
    this.add([file]);
    const item = this.items.at(-1);
    if (item?.file === file) this.edit(item.key, { text, lines: text.split("\n").length });
  }

  begin(item) {
    const { max_bytes: most } = this.limits;
    const refusal = item.size > most ? t("{size}, the limit is {limit}", { size: formatSize(item.size), limit: formatSize(most) })
      : item.size === 0 ? t("it is empty, or a folder") : "";
    const state = refusal ? "refused" : "uploading";
    const known = this.items.some(({ key }) => key === item.key);
    const begun = { ...item, state, problem: refusal, progress: 0 };
    this.items = known ? this.items.map((other) => (other.key === item.key ? begun : other)) : [...this.items, begun];
    if (!refusal) this.upload(begun);
    this.changed();
  }

  upload({ key, file }) {
    const sent = send(file, (progress) => this.edit(key, { progress }));
    this.edit(key, { abort: sent.abort });
    sent.done.then(
      ({ id, name, content_type: type }) => this.edit(key, { id, name, type, state: "ready", at: Date.now() }),
      (error) => this.edit(key, { state: error.status === 413 ? "refused" : "failed", problem: error.message }),
    );
  }

  retry(key) {
    this.begin(this.items.find((item) => item.key === key));
  }

  remove(key) {
    this.items.find((item) => item.key === key)?.abort?.();
    this.items = this.items.filter((item) => item.key !== key);
    this.refused = "";
    this.changed();
  }

  /** Return the files as attachments of a message, and begin anew without them. */
  take() {
    const taken = this.items.filter(({ state }) => state === "ready").map(({ id, name, size, type }) => (
      { file: id, url: `/api/files/${id}`, title: name, bytes: size, content_type: type, kind: kindOf(type) }));
    this.items = [];
    this.refused = "";
    this.changed();
    return taken;
  }

  edit(key, change) {
    this.items = this.items.map((item) => (item.key === key ? { ...item, ...change } : item));
    this.changed();
  }

  changed() {
    const ready = this.items.filter(({ state }) => state === "ready")
      .map(({ key, id, name, size, type, at, lines }) => ({ key, id, name, size, type, at, lines }));
    writeStored(`files.${this.key}`, ready.length ? ready : undefined);
    this.listeners.forEach((listener) => listener());
  }
}

/** Upload a file: `{ done, abort }`; fetch does not tell how far it is. */
function send(file, onProgress) {
  const call = new XMLHttpRequest();
  const done = new Promise((resolve, reject) => {
    const fail = () => reject(new ApiError(t("the connection was lost")));
    call.addEventListener("error", fail);
    call.addEventListener("abort", fail);
    call.upload.addEventListener("progress", (event) => onProgress(event.loaded / event.total));
    call.addEventListener("load", () => {
      if (call.status === 200) return resolve(call.response.files[0]);
      if (call.status === 401) toSignIn();
      return reject(new ApiError(call.response?.error?.message ?? t("The server answered {status}.", call), { status: call.status }));
    });
  });
  const form = new FormData();
  form.append("file", file, file.name);
  call.open("POST", address("api/files"));
  call.responseType = "json";
  call.setRequestHeader("Accept", "application/json");
  call.send(form);
  return { done, abort: () => call.abort() };
}

/** What stands below the name of a file. */
function describe({ state, size, problem, progress }) {
  if (state === "uploading") return t("{size}, {share} % sent", { size: formatSize(size), share: Math.round(progress * 100) });
  return state === "ready" ? formatSize(size) : problem;
}

function Chip({ item, files, onUndo }) {
  const { key, id, name, type, state, progress, lines, text } = item;
  const isBad = state === "failed" || state === "refused";
  const label = lines ? t(lines === 1 ? "Pasted text, 1 line" : "Pasted text, {count} lines", { count: formatCount(lines) }) : name;
  const source = id && address(`api/files/${id}`).href;
  const isPicture = state === "ready" && PICTURE.test(type);
  const remove = () => {
    files.remove(key);
    document.getElementById("say")?.focus();
  };
  const undo = () => {
    files.remove(key);
    onUndo(text);
  };
  return html`<li class=${classes("file", isBad && "refused")}>
    ${isPicture ? html`<img class="thumb" src=${source} alt="" />` : html`<${Icon} name=${isBad ? "warn" : type.startsWith("audio/") ? "sound" : "file"} />`}
    <span class="about"><span class="cut" title=${name}>${label}</span><small class=${isBad ? "bad" : ""}>${describe(item)}</small>
      ${state === "uploading" && html`<progress max="1" value=${progress} aria-label=${t("Uploading {name}", { name })}></progress>`}</span>
    ${state === "ready" && type.startsWith("audio/") && html`<audio class="player" src=${source} controls aria-label=${name}></audio>`}
    ${text && html`<${Button} kind="bare" onClick=${undo}>Undo</${Button}>`}
    ${state === "failed" && html`<${Button} kind="bare" onClick=${() => files.retry(key)}>Try again</${Button}>`}
    <${IconButton} icon="close" label=${t("Remove {name}", { name: label })} onClick=${remove} /></li>`;
}

/** The chips of a draft; `onUndo(text)` puts a pasted text into the field. */
export function Tray({ files, onUndo }) {
  if (!files.items.length && !files.refused) return null;
  return html`<div>${files.items.length > 0 && html`<ul class="tray" aria-label="Files of this message">
      ${files.items.map((item) => html`<${Chip} key=${item.key} ...${{ item, files, onUndo }} />`)}</ul>`}
    <p class="vh" role="status">${files.items.map((item) => `${item.name}: ${item.problem || t(item.state)}`).join(". ")}</p>
    ${files.refused && html`<p class="said bad" role="alert">${files.refused}</p>`}</div>`;
}

/** Call `onDrop(files)` for files that are dropped anywhere on the page, and `onOver` while some are held over it. */
function useDrop(onOver, onDrop) {
  const calls = useRef(null);
  calls.current = { onOver, onDrop };
  useEffect(() => {
    const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
    const over = (event) => hasFiles(event) && (event.preventDefault(), calls.current.onOver(true));
    const leave = (event) => !event.relatedTarget && calls.current.onOver(false);
    const end = (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      calls.current.onOver(false);
      calls.current.onDrop([...event.dataTransfer.files]);
    };
    const listeners = Object.entries({ dragenter: over, dragover: over, dragleave: leave, drop: end });
    listeners.forEach(([name, listener]) => addEventListener(name, listener));
    return () => listeners.forEach(([name, listener]) => removeEventListener(name, listener));
  }, []);
}

/**
 * The buttons that add files, from a dialog or by the microphone where the character understands recordings; files are
 * dropped anywhere. `onRecording(isOn, problem)` is told when a recording begins and ends.
 */
export function FileTools({ agent, files, isRecording, onRecording, onOver }) {
  const [recorder, setRecorder] = useState(null);
  const input = useRef(null);
  const { max_count: count, max_bytes: bytes } = files.limits;
  const add = (added) => files.add(added);
  useDrop(onOver, add);
  const choose = (event) => {
    add([...event.target.files]);
    event.target.value = "";
  };
  const record = () => (recorder ? Promise.resolve() : import("./recorder.js").then(setRecorder)).then(
    () => onRecording(true), () => onRecording(false, t("The bot cannot be reached")));
  if (isRecording && recorder) {
    return html`<${recorder.Recorder} onDone=${(file) => add([file])} onEnd=${(problem) => onRecording(false, problem)} />`;
  }
  return html`<input type="file" multiple hidden ref=${input} onChange=${choose} />
    <${IconButton} icon="clip" label=${t("Add files: up to {count}, {size} each", { count, size: formatSize(bytes) })} onClick=${() => input.current.click()} />
    ${agent.has_transcription && html`<${IconButton} icon="mic" label="Record a voice message" onClick=${record} />`}`;
}
