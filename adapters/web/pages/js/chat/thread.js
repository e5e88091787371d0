// The thread of a conversation, loaded when one is opened: its messages, and what is said of them.

import { html, useEffect, useRef, useState } from "../lib.js";
import { Link } from "../router.js";
import { Button } from "../ui.js";
import { Greeting, Message, TypingLine } from "./message.js";
import { useThread } from "./scrolling.js";

export { Greeting } from "./message.js";
export { Room } from "./room.js";

const CONVERSATION = /(^|:)c-/; // rooms that the API names do not begin with a greeting
const DAY = new Intl.DateTimeFormat("en", { weekday: "long", day: "numeric", month: "long" });

function dayName(at) {
  const days = Math.round((new Date().setHours(0, 0, 0, 0) - new Date(at).setHours(0, 0, 0, 0)) / 86_400_000);
  return ["Today", "Yesterday"][days] ?? DAY.format(new Date(at));
}

function Messages({ room }) {
  let day = "";
  const lines = room.messages.flatMap((message) => {
    const line = html`<${Message} key=${message.client_id ?? message.id} message=${message} room=${room} />`;
    const name = dayName(message.created_at);
    if (name === day) return [line];
    day = name;
    return [html`<li key=${name} class="day">${name}</li>`, line];
  });
  return html`<ol aria-label="Messages">${lines}<${TypingLine} key="typing" room=${room} /></ol>`;
}

/** What a screen reader hears: each reply once, when it is complete, and once that one is being written. */
function Announcer({ room }) {
  const [text, setText] = useState("");
  const heard = useRef(null);
  const isWriting = !!room.typing && !room.typing.isBusy;
  const isBusy = !!room.typing?.isBusy;
  useEffect(() => {
    if (!room.isReady) return;
    const reply = room.messages.findLast((message) => message.author.is_agent && message.state !== "streaming");
    const version = reply && `${reply.id} ${reply.versions?.length ?? 0}`;
    if (heard.current !== null && reply && version !== heard.current) setText(`${room.agent.name}: ${reply.text}`);
    heard.current = version ?? "";
  }, [room.messages, room.isReady]);
  useEffect(() => {
    if (isWriting) setText(`${room.agent.name} is writing`);
    if (isBusy) setText("The model is busy and is tried again");
  }, [isWriting, isBusy]);
  return html`<p class="vh" role="status" aria-live="polite">${text}</p>`;
}

/** The receipt of a message in a drawer; its view is loaded when first opened. */
export function WhyDrawer({ id, session, onClose }) {
  const [parts, setParts] = useState(null);
  useEffect(() => void Promise.all([import("../dialogs.js"), import("../why.js")]).then(
    ([{ Drawer }, { Why }]) => setParts({ Drawer, Why })), []);
  if (!parts) return null;
  const open = session.role !== "chat" && html`<${Link} class="btn bare" to=${`console/receipts/${id}`}>Open in Console</${Link}>`;
  return html`<${parts.Drawer} title="Why?" actions=${open} onClose=${onClose}>
    <${parts.Why} key=${id} id=${id} session=${session} isBrief=${true} isNarrow=${true} /></${parts.Drawer}>`;
}

/** What stands above the first message while there are older ones; they are loaded by scrolling up as well. */
function Older({ history, onLoad }) {
  if (!history.hasMore) return null;
  const { error, isLoading } = history;
  return html`<div class="older" aria-busy=${String(isLoading)}>${error && html`<span class="bad" role="alert">${error.message}</span>`}
    <${Button} kind="bare" icon="up" onClick=${onLoad}>${isLoading ? "Loading older messages" : "Show older messages"}</${Button}></div>`;
}

/** Go from message to message with Alt and the arrow keys, and from the last one to the field; not while a text is edited. */
function useArrows(box) {
  useEffect(() => {
    const onKey = (event) => {
      const step = event.altKey && !event.ctrlKey && !event.metaKey && { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step || event.target.value || document.querySelector("dialog[open]")) return;
      event.preventDefault();
      const nodes = [...box.current.querySelectorAll(".msg[id]")];
      const at = nodes.indexOf(document.activeElement.closest(".msg"));
      const next = at < 0 ? (step < 0 ? nodes.at(-1) : null) : nodes[at + step];
      if (!next && step > 0) return void document.getElementById("say")?.focus();
      next?.focus({ preventScroll: true });
      next?.scrollIntoView({ block: "nearest" });
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
}

/** The messages of a room; `children` are shown while there are none. */
export function Thread({ room, children }) {
  const { box, missed, toEnd, loadOlder } = useThread(room);
  useArrows(box);
  const isEmpty = room.isReady && room.messages.length === 0 && !room.typing;
  const isBegin = room.isReady && !room.history.hasMore && CONVERSATION.test(room.name);
  return html`<div class="log" ref=${box} tabindex="0" role="log" aria-live="off"
      aria-label=${`Conversation with ${room.agent.name}`}>
      ${isEmpty ? children : html`<${Older} history=${room.history} onLoad=${loadOlder} />
        ${isBegin && html`<${Greeting} agent=${room.agent} session=${room.session} />`}<${Messages} room=${room} />`}</div>
    <${Announcer} room=${room} />
    ${missed > 0 && html`<button type="button" class="btn latest" onClick=${toEnd}
      >${`${missed} new ${missed === 1 ? "message" : "messages"} ↓`}</button>`}`;
}
