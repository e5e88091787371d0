// One conversation: its messages, what is being written, and what waits to be sent. It is joined over the stream.

import { randomId, t, writeStored } from "../lib.js";
import { toast } from "../overlay.js";
import { stream } from "../stream.js";
import { roomKey } from "./conversations.js";
import { History, readWaiting } from "./history.js";

const ACK_DEADLINE = 8000;
const COMMAND = /^\/[a-z][\w-]*(\s|$)/i;
export const OPEN = new Set(["received", "claimed"]); // outcomes of a message that is not decided yet
const DRAW_INTERVAL = 33; // at most 30 times a second while a reply is written

/**
 * The state of a conversation. `messages` are in order, each with `state` "sent", "waiting", "failed", "streaming" or
 * "shown" (the result of a command, for its sender only).
 */
export class Room {
  constructor(agent, name, session) {
    Object.assign(this, { agent, name, session, me: null, messages: [], isReady: false, typing: null, blocked: "", notice: "" });
    Object.assign(this, { listeners: new Set(), pressed: new Map(), undo: new Map(), timer: 0, startedAt: 0, roomId: "" });
    Object.assign(this, { history: new History(), unwatch: () => {} });
    this.key = `pending.${agent.id}.${roomKey(name)}`;
    this.messages = readWaiting(this.key);
  }

  listen(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Join over the stream; return a function that leaves. */
  join() {
    const leave = stream.join({ type: "hello", room: this.name, agent: this.agent.id }, (frame) => this.receive(frame));
    const stop = stream.listen(() => this.follow());
    this.follow();
    return () => {
      leave();
      stop();
      this.unwatch();
      clearTimeout(this.timer);
    };
  }

  /** Tell the listeners; soon rather than at once while text streams in. */
  changed(isStreaming = false) {
    if (isStreaming && this.timer) return;
    clearTimeout(this.timer);
    this.timer = 0;
    const tell = () => {
      this.timer = 0;
      this.listeners.forEach((listener) => listener());
    };
    if (isStreaming) this.timer = setTimeout(tell, DRAW_INTERVAL);
    else tell();
  }

  follow() {
    if (stream.status === "open") return;
    this.isReady = false;
    this.typing = null;
    this.changed();
  }

  find(id) {
    return this.messages.find((message) => message.id === id);
  }

  edit(id, change) {
    this.messages = this.messages.map((message) => (message.id === id ? { ...message, ...change } : message));
  }

  // --- frames

  receive(frame) {
    const handlers = {
      ready: () => this.enter(frame),
      ack: () => this.acknowledge(frame),
      shown: () => this.show(frame),
      typing: () => this.type(frame),
      control: () => this.control(frame),
      draft: () => this.grow(frame),
      message: () => this.hear(frame),
      outcome: () => this.close(frame),
      error: () => this.refuse(frame),
    };
    handlers[frame.type]?.();
    this.changed(frame.type === "draft");
  }

  enter({ user, agent, room_id: roomId, messages, is_typing: isTyping }) {
    const waiting = this.messages.filter((message) => message.state === "waiting" || message.state === "failed");
    const kept = this.messages.filter((message) => message.state === "shown");
    if (roomId !== this.roomId) {
      this.unwatch();
      this.unwatch = stream.watch([{ kind: "busy", room: roomId }], (frame) => this.wait(frame));
    }
    Object.assign(this, { me: user, agent: { ...this.agent, ...agent }, roomId, isReady: true, blocked: "", notice: "" });
    this.messages = [...this.history.join(this.messages, messages), ...kept, ...waiting];
    this.type({ active: isTyping });
    waiting.filter((message) => message.state === "waiting").forEach((message) => this.transmit(message));
  }

  /** Load the messages before the first one. */
  async loadOlder() {
    const { history } = this;
    if (!history.hasMore || history.isLoading || !this.roomId) return;
    const loading = history.load(this.roomId, () => this.messages);
    this.changed();
    const older = await loading;
    this.messages = [...(older ?? []), ...this.messages];
    this.changed();
  }

  acknowledge({ client_id: id, message_id: messageId }) {
    this.undo.delete(id);
    if (this.find(messageId)) this.messages = this.messages.filter((message) => message.id !== id);
    else this.edit(id, { id: messageId, state: "sent", client_id: id });
    this.save();
  }

  // The result of a command is not stored, so it is lost with the page.
  show({ client_id: id, text, choices, attachments = [] }) {
    const isOwn = this.find(id) || this.pressed.delete(id);
    if (!isOwn) return;
    this.edit(id, { state: "sent" });
    this.save();
    if (!text && !attachments.length) return;
    const files = attachments.map((file) => ({ ...file, isOfCommand: true }));
    this.messages = [...this.messages, { ...this.agentMessage(`${id}.shown`, text), state: "shown", choices, attachments: files }];
  }

  type({ active, model_busy: isBusy = false }) {
    if (active && !this.typing) this.startedAt = Date.now();
    this.typing = active ? { isBusy, retryAt: isBusy ? this.typing?.retryAt : 0, since: this.startedAt } : null;
  }

  // The model is busy; the time of the next attempt is counted from now, because the clocks may differ.
  wait({ type, room_id: roomId, at, retry_at: retryAt }) {
    if (type !== "busy" || roomId !== this.roomId) return;
    this.startedAt ||= Date.now();
    this.typing = { isBusy: true, retryAt: Date.now() + Date.parse(retryAt) - Date.parse(at), since: this.startedAt };
    this.changed();
  }

  // What the agent asks of the page; it lasts until it is taken back or the room is joined anew.
  control({ action, target }) {
    if (action === "disable_input") this.blocked = target || t("Writing is off for now");
    if (action === "enable_input") this.blocked = "";
  }

  // Text of a reply that is being written; of a known one it is a new version, and the old one stays if that is withdrawn.
  grow({ id, text, anew }) {
    const draft = this.find(id);
    const isVersion = draft?.state === "sent";
    const written = (anew || isVersion ? "" : (draft?.text ?? "")) + text;
    if (isVersion && written) this.edit(id, { text: written, state: "streaming", before: draft });
    else if (!written) this.withdraw(id);
    else if (draft) this.edit(id, { text: written });
    else this.messages = [...this.messages, { ...this.agentMessage(id, written), state: "streaming" }];
  }

  withdraw(id) {
    const draft = this.find(id);
    if (draft?.before) this.messages = this.messages.map((message) => (message === draft ? draft.before : message));
    else if (draft?.state === "streaming") this.messages = this.messages.filter((message) => message !== draft);
  }

  close(outcome) {
    this.edit(outcome.message_id, { outcome });
    for (const { id, state, in_reply_to: question } of this.messages) {
      if (state === "streaming" && question === outcome.message_id) this.withdraw(id);
    }
  }

  hear(message) {
    const heard = { ...message, state: "sent", before: undefined };
    if (this.find(message.id)) this.edit(message.id, heard);
    else this.messages = [...this.messages, heard];
  }

  refuse({ client_id: id, code, message: reason }) {
    if (code === "stopping") return; // what waits is sent again after the next hello frame
    const before = this.undo.get(id);
    if (id && this.find(id)) {
      this.edit(id, { state: "failed", problem: reason });
      this.save();
    } else if (before) {
      this.undo.delete(id);
      this.edit(before.id, before);
      toast(reason);
    } else {
      this.notice = reason;
    }
  }

  agentMessage(id, text) {
    const author = { id: this.agent.id, name: this.agent.name, is_agent: true };
    return { id, author, text, created_at: new Date().toISOString(), attachments: [] };
  }

  // --- what the person does

  /** Send a text and uploaded files; it waits, and is sent again with the same id, until the server has stored it. */
  say(text, attachments = []) {
    const author = this.me ?? { id: "", name: "you", is_agent: false };
    const at = new Date().toISOString();
    const message = { id: randomId(), author, text, created_at: at, attachments, state: "waiting", isOwn: true };
    this.messages = [...this.messages, message];
    this.save();
    this.transmit(message);
    this.changed();
  }

  transmit(message) {
    const files = message.attachments.map(({ file }) => ({ file }));
    const type = COMMAND.test(message.text) && !files.length ? "command" : "message";
    const frame = { type, text: message.text, client_id: message.id, ...(files.length && { attachments: files }) };
    const isSent = this.isReady && stream.send(frame);
    if (!isSent || type === "command") return; // a command may take a minute
    const { id } = message;
    setTimeout(() => this.isReady && this.find(id)?.state === "waiting" && stream.lost(), ACK_DEADLINE);
  }

  sendAgain(id) {
    this.edit(id, { state: "waiting", problem: "", created_at: new Date().toISOString() });
    this.save();
    this.transmit(this.find(id));
    this.changed();
  }

  discard(id) {
    this.messages = this.messages.filter((message) => message.id !== id);
    this.save();
    this.changed();
  }

  /** Choose one of the choices that a command offered. */
  press(id, value) {
    const clientId = randomId();
    if (!stream.send({ type: "press", value, client_id: clientId })) return;
    this.pressed.set(clientId, id);
    this.edit(id, { choices: [] });
    this.changed();
  }

  /** Return the message that is being answered now, or undefined. */
  openMessage() {
    if (!this.isReady || !this.typing) return undefined;
    const isOpen = ({ outcome }) => !outcome || OPEN.has(outcome.outcome);
    return this.messages.findLast((message) => !message.author.is_agent && message.state === "sent" && isOpen(message));
  }

  /** Send a frame that changes messages; `before` is the message as it was, in case the server refuses. */
  change(frame, before) {
    const clientId = randomId();
    const isSent = this.isReady && stream.send({ ...frame, client_id: clientId });
    if (isSent && before) this.undo.set(clientId, before);
    if (!isSent) toast(t("There is no connection; try again when it is back"));
    return isSent;
  }

  /** Stop the answer that is being written. */
  stop() {
    const message = this.openMessage();
    if (message) this.change({ type: "stop", message_id: message.id });
  }

  /** Have a message answered once more; `reply` is the answer that it has. */
  repeat(reply) {
    const question = this.find(reply.in_reply_to);
    if (!this.change({ type: "regenerate", message_id: reply.id }, question)) return;
    this.edit(reply.in_reply_to, { outcome: null });
    this.changed();
  }

  /** Send a message anew with another text; return whether it was sent. */
  rewrite(id, text) {
    const isSent = this.change({ type: "edit", message_id: id, text }, this.find(id));
    if (isSent) this.edit(id, { text, outcome: null });
    this.changed();
    return isSent;
  }

  /** Return whether a message to the agent has a reply here. */
  hasReply(id) {
    return this.messages.some((message) => message.in_reply_to === id && message.kind !== "notice");
  }

  /** Return the outcome of the message that a reply answers, if this is the last reply to it. */
  answered(reply) {
    const replies = this.messages.filter((message) => message.in_reply_to && message.in_reply_to === reply.in_reply_to);
    return replies.at(-1)?.id === reply.id ? this.find(reply.in_reply_to)?.outcome : undefined;
  }

  /** Remove what waits to be sent: the conversation was deleted. */
  forget() {
    this.messages = [];
    this.save();
  }

  save() {
    const waiting = this.messages.filter((message) => message.state === "waiting" || message.state === "failed");
    writeStored(this.key, waiting.length ? waiting : undefined);
  }
}
