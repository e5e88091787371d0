// The chat page: one agent, one room, one connection.

import { Connection } from "./connection.js";
import { watchHealth } from "./health.js";
import { Log } from "./log.js";
import { Pending } from "./pending.js";
import { randomName, read, write } from "./storage.js";

const ACK_DEADLINE = 8_000;
const NEAR_THE_END = 80;
const COMMAND = /^\/[a-z][\w-]*(\s|$)/i;
const PROBLEM = "This page is no longer signed in. Open the address that the bot printed in the terminal.";

const $ = (id) => document.getElementById(id);
const scroll = $("scroll");
const text = $("text");

let agents = [];
let agent = null;
let room = "main";
let me = null;
let pending = new Pending("");
let pressed = new Set();
let countdown = 0;

const log = new Log($("log"), { me: () => me });
const connection = new Connection({
  hello: () => ({ type: "hello", room, agent: agent.id }),
  onFrame: receive,
  onState: showState,
});

function receive(frame) {
  ({
    ready: () => enter(frame),
    ack: () => acknowledged(frame),
    shown: () => show(frame),
    typing: () => showTyping(frame.active, frame.model_busy),
    control: () => control(frame),
    draft: () => grow(frame),
    message: () => hear(frame),
    outcome: () => log.settle(frame.message_id, frame),
    error: () => refused(frame),
  })[frame.type]?.();
}

// --- incoming frames

function enter(ready) {
  me = ready.user;
  agent = ready.agent;
  const first = !log.last;
  const wasAtEnd = first || isAtEnd();
  $("log").setAttribute("aria-busy", "true");
  log.clear();
  ready.messages.forEach((message) => log.add(message));
  pending.messages.forEach(showPending);
  $("log").removeAttribute("aria-busy");
  showTyping(ready.is_typing);
  control({ action: "enable_input" });
  showWelcome();
  if (wasAtEnd) toEnd();
  pending.messages.filter((message) => !message.failed).forEach(send);
}

// What the agent asks the page for; it lasts until it is taken back or the page is joined anew.
function control({ action, target }) {
  if (action !== "disable_input" && action !== "enable_input") return;
  text.disabled = action === "disable_input";
  if (text.disabled) text.placeholder = target || "Please wait";
  else showPlaceholder();
  fit();
}

// A streamed reply; the complete message replaces it.
function grow({ id, text, anew }) {
  if (log.has(id) && !log.isDraft(id)) return;
  const wasAtEnd = isAtEnd();
  log.grow(id, agent, text, anew);
  showWelcome();
  if (wasAtEnd) toEnd();
}

function hear(message) {
  log.dropDraft(message.id);
  if (log.has(message.id)) return;
  const wasAtEnd = isAtEnd();
  log.add(message);
  showWelcome();
  if (wasAtEnd) toEnd();
  else $("down").hidden = false;
}

function acknowledged({ client_id: id, message_id: messageId }) {
  pending.drop(id);
  if (log.has(messageId)) log.remove(id);
  else log.rename(id, messageId);
}

// The result of a command: it is not stored, so it is lost with the page.
function show({ client_id: id, text: words, choices }) {
  if (!pressed.delete(id) && !pending.get(id)) return; // it belongs to a conversation that was closed
  pending.drop(id);
  log.mark(id, { state: "", text: "" });
  if (!words) return;
  const wasAtEnd = isAtEnd();
  const answer = `${id}.shown`;
  log.add({ id: answer, author: { ...agent, is_agent: true }, text: words, created_at: new Date().toISOString() });
  const buttons = choices.map(({ label, value }) => [label, () => press(answer, value)]);
  log.mark(answer, { state: "", text: "Only you see this", buttons });
  if (wasAtEnd) toEnd();
}

function refused({ client_id: id, code, message }) {
  if (code === "stopping") return; // the message is sent again after the next hello frame
  if (id && pending.fail(id, message)) showFailure(pending.get(id));
  else showNotice(message);
}

// --- outgoing frames

function say(words) {
  const message = pending.add(words);
  showPending(message);
  showWelcome();
  toEnd();
  send(message);
}

function send(message) {
  const type = COMMAND.test(message.text) ? "command" : "message";
  if (!connection.send({ type, text: message.text, client_id: message.id })) return;
  if (type === "command") return; // a command may take a minute
  setTimeout(() => {
    if (pending.get(message.id) && !pending.get(message.id).failed && connection.isReady) connection.lost();
  }, ACK_DEADLINE);
}

function press(answer, value) {
  const id = randomName();
  if (!connection.send({ type: "press", value, client_id: id })) return;
  pressed.add(id);
  log.mark(answer, { state: "", text: "" });
}

function showPending(message) {
  const author = { id: me?.id, name: "you", is_agent: false };
  log.add({ ...message, author: me ?? author });
  if (message.failed) showFailure(message);
  else log.mark(message.id, { state: "waiting", text: connection.isReady ? "" : "Waiting for the connection" });
}

function showFailure(message) {
  const retry = () => {
    message.failed = "";
    message.created_at = new Date().toISOString();
    pending.save();
    log.mark(message.id, { state: "waiting", text: connection.isReady ? "" : "Waiting for the connection" });
    send(message);
    text.focus();
  };
  const discard = () => {
    pending.drop(message.id);
    log.remove(message.id);
    showWelcome();
    text.focus();
  };
  const buttons = [["Send again", retry], ["Discard", discard]];
  log.mark(message.id, { state: "unsent", text: `Not sent: ${message.failed}`, buttons });
}

// --- state of the page

function showState(state, retryAt) {
  clearInterval(countdown);
  const words = { connecting: "Connecting", open: "Connected", waiting: "Not connected", refused: "Signed out" };
  $("state").dataset.state = state;
  $("state-text").textContent = words[state];
  $("again").hidden = state !== "waiting";
  if (state === "open") showNotice("");
  if (state === "refused") showNotice(PROBLEM);
  if (state !== "waiting") return;
  showTyping(false);
  for (const message of pending.messages) {
    if (!message.failed) log.mark(message.id, { state: "waiting", text: "Waiting for the connection" });
  }
  const count = () => {
    const seconds = Math.max(1, Math.ceil((retryAt - Date.now()) / 1000));
    showNotice("No connection.", `Next attempt in ${seconds} s.`);
  };
  count();
  countdown = setInterval(count, 1000);
}

function showNotice(words, next = "") {
  const wasAtEnd = isAtEnd();
  $("notice").hidden = !words;
  $("countdown").textContent = next;
  if ($("notice-text").textContent !== words) $("notice-text").textContent = words;
  if (wasAtEnd) toEnd();
}

function showTyping(isActive, isModelBusy = false) {
  const wasAtEnd = isAtEnd();
  $("typing").hidden = !isActive;
  $("typing-text").textContent = !isActive ? "" : isModelBusy ? "The model is busy, trying again" : `${agent.name} is writing`;
  if (isActive && wasAtEnd) toEnd();
}

function showPlaceholder() {
  text.placeholder = agent.name.length > 24 ? "Write a message" : `Write to ${agent.name}`;
}

function showWelcome() {
  $("welcome").hidden = log.byId.size > 0 || !agent;
  if (!agent) return;
  $("welcome-name").textContent = `Say hello to ${agent.name}`;
  $("welcome-bio").textContent = agent.bio[0] ?? "";
}

function isAtEnd() {
  return scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < NEAR_THE_END;
}

function toEnd() {
  scroll.scrollTop = scroll.scrollHeight;
  $("down").hidden = true;
}

// --- agent and room

function choose(selected) {
  agent = selected;
  write("agent", agent.id);
  go(read(`room.${agent.id}`, "main"));
}

function go(name) {
  room = name;
  write(`room.${agent.id}`, room);
  pending = new Pending(`${agent.id}.${room}`);
  pressed = new Set();
  me = null;
  log.clear();
  $("face").textContent = [...agent.name][0]?.toUpperCase() ?? "";
  $("name").textContent = agent.name;
  $("text-label").textContent = `Message to ${agent.name}`;
  showPlaceholder();
  document.title = `${agent.name} · Greenroom`;
  connection.failures = 0;
  connection.open();
}

async function start() {
  try {
    const response = await fetch("/api/agents", { cache: "no-store" });
    if (response.status === 401) return showState("refused");
    if (!response.ok) throw new Error(String(response.status));
    agents = (await response.json()).agents;
  } catch {
    showState("waiting", Date.now() + 2000);
    return setTimeout(start, 2000);
  }
  const list = $("agents");
  list.replaceChildren(...agents.map((item) => new Option(item.name, item.id)));
  $("switch").hidden = agents.length < 2;
  const selected = agents.find((item) => item.id === read("agent", "")) ?? agents[0];
  list.value = selected.id;
  choose(selected);
}

function fit() {
  const wasAtEnd = isAtEnd();
  text.style.height = "auto";
  text.style.height = `${text.scrollHeight + 2}px`;
  $("send").disabled = text.disabled || !text.value.trim();
  if (wasAtEnd) toEnd();
}

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  const words = text.value.trim();
  if (!words || !agent) return;
  text.value = "";
  fit();
  say(words);
});
text.addEventListener("input", fit);
text.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  $("composer").requestSubmit();
});
scroll.addEventListener("scroll", () => {
  if (isAtEnd()) $("down").hidden = true;
});
$("down").addEventListener("click", toEnd);
$("again").addEventListener("click", () => (agent ? connection.open() : start()));
$("agents").addEventListener("change", (event) => choose(agents.find((item) => item.id === event.target.value)));
$("new").addEventListener("click", () => {
  if (!agent) return;
  go(`chat-${randomName()}`);
  text.focus();
});

fit();
start();
watchHealth($("health"));
