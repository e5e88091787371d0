// The list of messages, each with author, time and outcome.

import { link, render } from "./markup.js";

const GROUP_WINDOW = 5 * 60_000;
const TIME = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const DATE = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long" });
const FILE = /^\/api\/files\/[0-9a-f]{32}-\d{1,2}$/; // a file that this server serves
const PENDING = new Set(["received", "claimed"]);

export class Log {
  constructor(element, { me }) {
    Object.assign(this, { element, me, byId: new Map(), drafts: new Map(), last: null });
  }

  clear() {
    this.element.replaceChildren();
    this.byId.clear();
    this.drafts.clear();
    this.last = null;
  }

  has(id) {
    return this.byId.has(id);
  }

  // Show a message; `id` is the server's id, or the client's for a pending message.
  add(message) {
    const at = new Date(message.created_at);
    const isMine = !message.author.is_agent && message.author.id === this.me()?.id;
    if (!this.last || this.last.at.toDateString() !== at.toDateString()) {
      this.element.append(make("div", "day", dayName(at)));
      this.last = null;
    }
    const isFirst = !this.last || this.last.author !== message.author.id || at - this.last.at > GROUP_WINDOW;
    const item = make("article", `message ${isMine ? "mine" : "theirs"}${isFirst ? " first" : ""}`);
    const meta = make("div", "meta", isMine ? "" : `${message.author.name} · `);
    const time = make("time", "", TIME.format(at));
    time.dateTime = message.created_at;
    meta.append(time);
    const bubble = make("div", "bubble");
    bubble.dir = "auto";
    render(message.text, bubble);
    for (const item of message.attachments ?? []) bubble.append(attachment(item));
    const note = make("div", "note");
    item.append(meta, bubble, note);
    this.element.append(item);
    this.byId.set(message.id, item);
    this.last = { at, author: message.author.id };
    if (message.outcome) this.settle(message.id, message.outcome);
    return item;
  }

  isDraft(id) {
    return this.byId.get(id)?.classList.contains("draft") ?? false;
  }

  // Show a streamed reply: append the text or, with `isReset`, replace it; without any text remove the draft.
  grow(id, agent, text, isReset) {
    const written = (isReset ? "" : (this.drafts.get(id)?.text ?? "")) + text;
    const created = this.drafts.get(id)?.created ?? new Date().toISOString();
    if (!written) return this.dropDraft(id);
    if (!this.has(id)) {
      const before = this.last;
      const author = { id: agent.id, name: agent.name, is_agent: true };
      const item = this.add({ id, author, text: "", created_at: created });
      item.classList.add("draft");
      item.setAttribute("aria-hidden", "true"); // a screen reader reads it once, when it is complete
      this.drafts.set(id, { created, before });
    }
    this.drafts.get(id).text = written;
    const bubble = this.byId.get(id).querySelector(".bubble");
    bubble.replaceChildren();
    render(written, bubble);
  }

  dropDraft(id) {
    const draft = this.drafts.get(id);
    if (!draft) return;
    const isLast = this.element.lastElementChild === this.byId.get(id);
    if (isLast) this.last = draft.before ?? { at: new Date(draft.created), author: null };
    this.drafts.delete(id);
    this.remove(id);
  }

  remove(id) {
    this.byId.get(id)?.remove();
    this.byId.delete(id);
  }

  // The server has assigned an id to a pending message.
  rename(id, newId) {
    const item = this.byId.get(id);
    if (!item) return;
    this.byId.delete(id);
    this.byId.set(newId, item);
    this.mark(newId, { state: "", text: "" });
  }

  // Show the state below a message; `buttons` are pairs of label and callback.
  mark(id, { state, text, buttons = [] }) {
    const item = this.byId.get(id);
    if (!item) return;
    item.classList.toggle("waiting", state === "waiting");
    item.classList.toggle("unsent", state === "unsent");
    const note = item.querySelector(".note");
    note.classList.toggle("bad", state === "unsent" || state === "bad");
    note.replaceChildren();
    if (text) note.append(make("span", "", text));
    for (const [label, call] of buttons) {
      const button = make("button", "", label);
      button.type = "button";
      button.addEventListener("click", call);
      note.append(button);
    }
  }

  settle(id, { outcome, reason }) {
    if (PENDING.has(outcome)) return;
    const because = reason ? `: ${reason}` : "";
    const notes = {
      answered: "",
      ignored: `Not answered${because}`,
      superseded: "Answered together with a later message",
      failed: `Could not be answered${because}`,
    };
    this.mark(id, { state: outcome === "failed" ? "bad" : "", text: notes[outcome] ?? `Not answered${because}` });
  }
}

function attachment(file) {
  const item = make("span", "attached");
  const isOwn = FILE.test(file.url);
  if (isOwn && file.kind === "IMAGE") {
    const picture = make("img", "picture");
    picture.src = file.url;
    picture.alt = file.description || file.title;
    item.append(picture);
    return item;
  }
  if (isOwn && file.kind === "AUDIO") {
    const player = make("audio", "player");
    player.src = file.url;
    player.controls = true;
    item.append(player);
    return item;
  }
  const label = file.title || file.description || file.url || file.kind.toLowerCase();
  item.append(file.url ? link(file.url, label) : label);
  return item;
}

function dayName(at) {
  const days = Math.round((new Date().setHours(0, 0, 0, 0) - new Date(at).setHours(0, 0, 0, 0)) / 86_400_000);
  return ["Today", "Yesterday"][days] ?? DATE.format(at);
}

function make(tag, name, text = "") {
  const element = document.createElement(tag);
  if (name) element.className = name;
  element.textContent = text;
  return element;
}
