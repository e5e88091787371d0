// Where the thread is scrolled: it follows new messages only while it is at its end.

import { useEffect, useLayoutEffect, useRef, useState } from "../lib.js";

const NEAR = 80;

/** Return `{ box, missed, toEnd }`: the scrolling element's ref, how many messages came meanwhile, and a way down. */
export function useThread(room) {
  const box = useRef(null);
  const isAtEnd = useRef(true);
  const seen = useRef(0);
  const [missed, setMissed] = useState(0);
  const count = room?.messages.length ?? 0;
  const toEnd = () => {
    box.current.scrollTop = box.current.scrollHeight;
    isAtEnd.current = true;
    setMissed(0);
  };
  useEffect(() => {
    const node = box.current;
    const onScroll = () => {
      isAtEnd.current = node.scrollHeight - node.scrollTop - node.clientHeight < NEAR;
      if (isAtEnd.current) setMissed(0);
    };
    // Pictures, highlighted code and the growing composer change heights without a message.
    const observer = new ResizeObserver(() => isAtEnd.current && (node.scrollTop = node.scrollHeight));
    observer.observe(node);
    const content = new MutationObserver(() => {
      observer.disconnect();
      observer.observe(node);
      if (node.firstElementChild) observer.observe(node.firstElementChild);
    });
    content.observe(node, { childList: true });
    if (node.firstElementChild) observer.observe(node.firstElementChild);
    node.addEventListener("scroll", onScroll, { passive: true });
    return () => {
      observer.disconnect();
      content.disconnect();
      node.removeEventListener("scroll", onScroll);
    };
  }, []);
  useLayoutEffect(() => {
    const added = count - seen.current;
    seen.current = count;
    const isOwn = room?.messages.at(-1)?.state === "waiting";
    if (isAtEnd.current || (added > 0 && isOwn)) toEnd();
    else if (added > 0) setMissed((old) => old + added);
  }, [count]);
  return { box, missed, toEnd };
}
