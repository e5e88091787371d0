// The live stream: one WebSocket for a tab, which resumes after a lost connection.

import { BASE, get } from "./api.js";
import { language, useEffect, useRef, useState } from "./lib.js";

const FIRST_DELAY = 1000;
const MAX_DELAY = 30_000;
const OPEN_TIMEOUT = 10_000;
const SAID_AFTER = 2000; // then the foot says "Not connected"
const BANNER_AFTER = 5000;

/**
 * Connects when the first listener comes. `status` is "connecting", "open", "waiting" (for the next attempt, at
 * `retryAt`) or "refused" (signed out).
 */
export class Stream {
  constructor() {
    Object.assign(this, { socket: null, status: "idle", retryAt: 0, failures: 0, lostAt: 0, lastEvent: null });
    Object.assign(this, { timer: 0, hello: null, watchers: new Set(), listeners: new Set() });
    addEventListener("online", () => this.retry());
    addEventListener("visibilitychange", () => document.visibilityState === "visible" && this.retry());
  }

  /**
   * Call `onFrame(frame)` for each frame of the topics (`[{ kind, room, agent, level }]`), or for "changed" once a second
   * with `is_summary`, and for "reset": then load lists anew. Return a function that ends it.
   */
  watch(topics, onFrame) {
    const watcher = { topics, onFrame };
    this.watchers.add(watcher);
    this.subscribe();
    this.start();
    return () => {
      this.watchers.delete(watcher);
      this.subscribe();
    };
  }

  /** Join a room of the chat: `hello` is its first frame, `onFrame` gets every frame. Return a function that leaves. */
  join(hello, onFrame) {
    const watcher = { topics: null, onFrame };
    this.watchers.add(watcher);
    this.hello = hello;
    if (this.status === "open") this.write(hello);
    this.start();
    return () => {
      this.watchers.delete(watcher);
      if (this.hello === hello) this.hello = null;
    };
  }

  /** Call `listener()` when the status changes. Return a function that ends it. */
  listen(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Send a frame; return false without a connection. */
  send(frame) {
    if (this.status !== "open") return false;
    this.write(frame);
    return true;
  }

  start() {
    if (this.status === "idle") this.open();
  }

  /** Try now instead of at the next attempt. */
  retry() {
    if (this.status === "waiting") this.open();
  }

  open() {
    clearTimeout(this.timer);
    this.drop();
    this.tell("connecting");
    const url = new URL(`api/ws?language=${language}`, BASE);
    url.protocol = url.protocol.replace("http", "ws");
    const socket = new WebSocket(url);
    this.socket = socket;
    this.timer = setTimeout(() => this.lost(socket), OPEN_TIMEOUT);
    socket.onopen = () => socket === this.socket && this.opened();
    socket.onmessage = (event) => socket === this.socket && this.receive(JSON.parse(event.data));
    socket.onclose = () => this.lost(socket);
  }

  opened() {
    clearTimeout(this.timer);
    Object.assign(this, { failures: 0, lostAt: 0 });
    this.tell("open");
    if (this.hello) this.write(this.hello);
    this.subscribe();
  }

  subscribe() {
    if (this.status !== "open") return;
    const topics = [...this.watchers].flatMap(({ topics: own }) => own ?? []);
    const unique = [...new Map(topics.map((topic) => [JSON.stringify(topic), topic])).values()];
    if (unique.length || this.hasSubscribed) this.write({ type: "subscribe", topics: unique, after: this.lastEvent, is_batched: true });
    this.hasSubscribed = unique.length > 0;
  }

  write(frame) {
    this.socket.send(JSON.stringify(frame));
  }

  receive(frame) {
    if (frame.type === "batch") return frame.frames.forEach((item) => this.receive(item));
    if (frame.event_id !== undefined && frame.event_id !== null) this.lastEvent = frame.event_id;
    if (frame.type === "reset") this.lastEvent = frame.event_id ?? null;
    for (const { topics, onFrame } of [...this.watchers]) {
      if (!topics || frame.type === "reset" || topics.some((topic) => isOf(topic, frame))) onFrame(frame);
    }
  }

  /** The connection is lost, whatever the browser reports: wait, then try again. */
  lost(socket = this.socket) {
    if (socket !== this.socket || !socket) return;
    this.drop();
    clearTimeout(this.timer);
    this.failures += 1;
    this.hasSubscribed = false;
    this.lostAt ||= Date.now();
    const delay = Math.min(FIRST_DELAY * 2 ** (this.failures - 1), MAX_DELAY) * (0.85 + Math.random() * 0.3);
    this.retryAt = Date.now() + delay;
    this.timer = setTimeout(() => this.open(), delay);
    this.tell("waiting");
    // The browser does not say why a WebSocket was refused; a request goes to the sign-in page with 401.
    get("api/session").catch(() => {});
  }

  drop() {
    const { socket } = this;
    this.socket = null;
    socket?.close();
  }

  tell(status) {
    this.status = status;
    this.listeners.forEach((listener) => listener());
  }
}

function isOf({ kind, room, is_summary: isSummary }, { type, topic, rooms }) {
  return isSummary ? kind === topic && (!room || rooms.includes(room)) : kind === type;
}

export const stream = new Stream();

/** Watch topics while a component is shown; `onFrame` may change at each drawing. */
export function useStream(topics, onFrame) {
  const latest = useRef(onFrame);
  latest.current = onFrame;
  useEffect(() => stream.watch(topics, (frame) => latest.current(frame)), [JSON.stringify(topics)]);
}

/**
 * Return `{ status, isLost, needsBanner, retryAt, since }` of the stream: short interruptions are not told, after two
 * seconds `isLost` is true, after five `needsBanner`.
 */
export function useConnection() {
  const [, draw] = useState(0);
  useEffect(() => {
    let timers = [];
    const update = () => {
      timers.forEach(clearTimeout);
      const left = (ms) => stream.lostAt + ms - Date.now();
      timers = stream.lostAt
        ? [SAID_AFTER, BANNER_AFTER].filter((ms) => left(ms) > -50).map((ms) => setTimeout(refresh, left(ms) + 60))
        : [];
      refresh();
    };
    const refresh = () => draw((count) => count + 1);
    update();
    const stop = stream.listen(update);
    return () => {
      stop();
      timers.forEach(clearTimeout);
    };
  }, []);
  const { status, retryAt, lostAt } = stream;
  const length = lostAt ? Date.now() - lostAt : 0;
  return { status, retryAt, since: lostAt, isLost: length >= SAID_AFTER, needsBanner: length >= BANNER_AFTER };
}
