// The thread of a conversation, loaded when one is opened: its messages, and what is said of them.

import { html, useEffect, useRef, useState } from "../lib.js";
import { Link } from "../router.js";
import { Message, TypingLine } from "./message.js";
import { useThread } from "./scrolling.js";

export { Room } from "./room.js";

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
  const isWriting = !!room.typing;
  useEffect(() => {
    const replies = room.messages.filter((message) => message.author.is_agent && message.state !== "streaming");
    const isNew = heard.current !== null && replies.length > heard.current;
    if (room.isReady) heard.current = replies.length;
    if (isNew) setText(`${room.agent.name}: ${replies.at(-1).text}`);
  }, [room.messages]);
  useEffect(() => {
    if (isWriting) setText(`${room.agent.name} is writing`);
  }, [isWriting]);
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

/** The messages of a room; `children` are shown while there are none. */
export function Thread({ room, children }) {
  const { box, missed, toEnd } = useThread(room);
  const onKeyDown = (event) => {
    const step = event.altKey && { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const nodes = [...box.current.querySelectorAll(".msg[id]")];
    const at = nodes.indexOf(document.activeElement.closest(".msg"));
    const next = at < 0 ? nodes.at(step < 0 ? -1 : 0) : nodes[at + step];
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  };
  const isEmpty = room.isReady && room.messages.length === 0;
  return html`<div class="log" ref=${box} tabindex="0" role="log" aria-live="off" onKeyDown=${onKeyDown}
      aria-label=${`Conversation with ${room.agent.name}`}>
      ${isEmpty ? children : html`<${Messages} room=${room} />`}</div><${Announcer} room=${room} />
    ${missed > 0 && html`<button type="button" class="btn latest" onClick=${toEnd}>${missed} new
      ${missed === 1 ? "message" : "messages"} ↓</button>`}`;
}

