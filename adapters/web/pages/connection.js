// A WebSocket that reconnects: it sends the hello frame, passes frames on, and retries with growing delays.

const FIRST_DELAY = 500;
const MAX_DELAY = 30_000;
const READY_TIMEOUT = 10_000;

export class Connection {
  // `hello` returns the first frame; `onFrame(frame)` and `onState(state, retryAt)` are callbacks.
  // States: connecting, open, waiting (for the next attempt), refused (the token is not valid any more).
  constructor({ hello, onFrame, onState }) {
    Object.assign(this, { hello, onFrame, onState, socket: null, timer: 0, failures: 0, isReady: false });
    addEventListener("online", () => this.retry());
    addEventListener("visibilitychange", () => document.visibilityState === "visible" && this.retry());
  }

  open() {
    clearTimeout(this.timer);
    this.drop();
    this.onState("connecting");
    const address = new URL("/api/ws", location.href);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(address);
    this.socket = socket;
    this.timer = setTimeout(() => socket === this.socket && this.lost(), READY_TIMEOUT);
    socket.onopen = () => socket.send(JSON.stringify(this.hello()));
    socket.onmessage = (event) => socket === this.socket && this.receive(JSON.parse(event.data));
    socket.onclose = () => socket === this.socket && this.lost();
  }

  send(frame) {
    if (!this.isReady) return false;
    this.socket.send(JSON.stringify(frame));
    return true;
  }

  retry() {
    if (!this.isReady && this.timer) this.open();
  }

  // Nothing was received for too long: treat the connection as lost, whatever the browser reports.
  lost() {
    this.drop();
    clearTimeout(this.timer);
    this.failures += 1;
const delay = Math.min(FIRST_DELAY * 2 ** (this.failures - 1), MAX_DELAY) * (0.75 + Math.random() / 2);
    this.timer = setTimeout(() => this.open(), delay);
    this.onState("waiting", Date.now() + delay);
    this.checkToken();
  }

  drop() {
    const socket = this.socket;
    this.socket = null;
    this.isReady = false;
    socket?.close();
  }

  receive(frame) {
    if (frame.type === "ready") {
      clearTimeout(this.timer);
      this.timer = 0;
      this.failures = 0;
      this.isReady = true;
      this.onState("open");
    }
    this.onFrame(frame);
  }

  // The browser does not report why a WebSocket was refused; a plain request does.
  async checkToken() {
    try {
      const response = await fetch("/api/agents", { cache: "no-store" });
      if (response.status !== 401 || this.isReady) return;
      clearTimeout(this.timer);
      this.timer = 0;
      this.onState("refused");
    } catch {
      // no connection: the next attempt shows it
    }
  }
}
