// One WebSocket that comes back: it says hello, passes frames on, and tries again with growing pauses.

const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 30_000;
const QUIET_START = 10_000;

export class Connection {
  // `hello` gives the first frame; `onFrame(frame)`, `onState(state, retryAt)` are told what happens.
  // States: connecting, open, waiting (for the next try), refused (the token is no longer right).
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
    this.timer = setTimeout(() => socket === this.socket && this.lost(), QUIET_START);
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

  // Nothing came back for too long: the connection is dead, whatever the browser believes.
  lost() {
    this.drop();
    clearTimeout(this.timer);
    this.failures += 1;
    const pause = Math.min(FIRST_PAUSE * 2 ** (this.failures - 1), LONGEST_PAUSE) * (0.75 + Math.random() / 2);
    this.timer = setTimeout(() => this.open(), pause);
    this.onState("waiting", Date.now() + pause);
    this.askWhy();
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

  // A browser does not tell why a WebSocket was refused; a plain request does.
  async askWhy() {
    try {
      const answer = await fetch("/api/agents", { cache: "no-store" });
      if (answer.status !== 401 || this.isReady) return;
      clearTimeout(this.timer);
      this.timer = 0;
      this.onState("refused");
    } catch {
      // nobody there: the next try will tell
    }
  }
}
