// The thread of a conversation, loaded when one is opened: its messages, and what is said of them.

import { html, t, useEffect, useMemo, useRef, useState } from "../lib.js";
import { Link } from "../router.js";
import { arrange, drawByDay, Log } from "../thread.js";
import { Greeting, Message, TypingLine } from "./message.js";

export { Greeting } from "./message.js";
export { Room } from "./room.js";

const CONVERSATION = /(^|:)c-/; // rooms that the API names do not begin with a greeting

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
    if (isWriting) setText(t("{name} is writing", room.agent));
    if (isBusy) setText(t("The model is busy, trying again"));
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

/** The messages of a room; `children` are shown while there are none. */
export function Thread({ room, children }) {
  const { messages, history } = room;
  const arranged = useMemo(() => arrange(messages), [messages]);
  const isEmpty = room.isReady && messages.length === 0 && !room.typing;
  const isBegin = room.isReady && !history.hasMore && CONVERSATION.test(room.name);
  const older = { ...history, load: () => room.loadOlder() };
  return html`<${Log} label=${t("Conversation with {name}", room.agent)} messages=${arranged} history=${older}
      isOwn=${({ state }) => state === "waiting"} empty=${isEmpty && children}
      start=${isBegin && html`<${Greeting} agent=${room.agent} session=${room.session} />`}>
      ${drawByDay(arranged, (message) => html`<${Message} key=${message.client_id ?? message.id} message=${message} room=${room} />`)}
      <${TypingLine} key="typing" room=${room} /></${Log}><${Announcer} room=${room} />`;
}
