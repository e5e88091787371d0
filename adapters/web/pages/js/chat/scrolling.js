// Where the thread is scrolled: it follows new messages only while it is at its end, and stays where it is otherwise.

import { useEffect, useLayoutEffect, useRef, useState } from "../lib.js";

const NEAR = 80;
const NEAR_TOP = 600;

/**
 * Return `{ box, missed, toEnd, loadOlder }`: the scrolling element's ref, how many messages came meanwhile, a way down,
 * and a function that loads older messages and keeps what is read in its place.
 */
export function useThread(room) {
  const box = useRef(null);
  const isAtEnd = useRef(true);
  const last = useRef(null);
  const drawn = useRef(0); // messages; the room may have others already that are drawn next
  const anchor = useRef(null);
  const [missed, setMissed] = useState(0);
  const { messages } = room;
  const toEnd = () => {
    box.current.scrollTop = box.current.scrollHeight;
    isAtEnd.current = true;
    setMissed(0);
  };
  const remember = () => {
    const top = box.current?.getBoundingClientRect().top;
    const node = [...(box.current?.querySelectorAll(".msg[id]") ?? [])].find((item) => item.getBoundingClientRect().bottom > top);
    anchor.current = node ? { node, top: node.getBoundingClientRect().top } : null;
  };
  const loadOlder = () => room.loadOlder(remember);
  const loadIfNear = useRef(null);
  loadIfNear.current = () => {
    const isDrawn = drawn.current > 0 && drawn.current === room.messages.length;
    if (isDrawn && !room.history.error && box.current?.scrollTop < NEAR_TOP) loadOlder();
  };
  useEffect(() => {
    const node = box.current;
    const onScroll = () => {
      isAtEnd.current = node.scrollHeight - node.scrollTop - node.clientHeight < NEAR;
      if (isAtEnd.current) setMissed(0);
      loadIfNear.current();
    };
    // Pictures, highlighted code and the growing composer change heights without a message.
    const observer = new ResizeObserver(() => isAtEnd.current && (node.scrollTop = node.scrollHeight));
    observer.observe(node);
    const content = new MutationObserver(() => {
      observer.disconnect();
      observer.observe(node);
      for (const child of node.children) observer.observe(child);
    });
    content.observe(node, { childList: true });
    for (const child of node.children) observer.observe(child);
    node.addEventListener("scroll", onScroll, { passive: true });
    return () => {
      observer.disconnect();
      content.disconnect();
      node.removeEventListener("scroll", onScroll);
    };
  }, []);
  useLayoutEffect(() => {
    if (anchor.current?.node.isConnected) {
      box.current.scrollTop += anchor.current.node.getBoundingClientRect().top - anchor.current.top;
    }
    anchor.current = null;
    drawn.current = messages.length;
    const known = messages.findLastIndex((message) => (message.client_id ?? message.id) === last.current);
    const added = known < 0 ? messages.length : messages.length - 1 - known;
    const latest = messages.at(-1);
    last.current = latest ? (latest.client_id ?? latest.id) : null;
    if (isAtEnd.current || (added > 0 && latest?.state === "waiting")) toEnd();
    else if (added > 0) setMissed((old) => old + added);
  }, [messages.length, messages[0]?.id]);
  useEffect(() => void loadIfNear.current(), [messages.length, room.history.hasMore]); // the box may not be full
  return { box, missed, toEnd, loadOlder };
}
