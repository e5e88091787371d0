// The state of an emulated platform: rooms, people and the messages of one room, kept up to date over a WebSocket.

import { address, ApiError, BASE } from "../api.js";
import { useEffect, useReducer } from "../lib.js";

const FIRST_DELAY = 500;
const MAX_DELAY = 10_000;
export const LONGEST_FILE = 10 * 1024 * 1024;

/** Send an action as JSON. Raises ApiError with the platform's explanation. */
async function act(path, body) {
  return answerOf(fetch(address(`page/${path}`), {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  }));
}

async function answerOf(request) {
  const response = await request.catch(() => null);
  if (!response) throw new ApiError("The emulator cannot be reached.");
  const said = await response.json().catch(() => null);
  if (response.ok) return said;
  throw new ApiError(said?.problem || said?.error?.message || "The emulator refused this.", { status: response.status });
}

/** The emulated platform. `messages` are those of the room `place`, in order; `person` is who writes. */
export class Platform {
  constructor() {
    Object.assign(this, { place: "", places: null, bots: [], messages: null, typing: [], abilities: [], kinds: [] });
    Object.assign(this, { emojis: [], longest: 4000, name: "", dialect: "plain", web: "", isLost: false, delay: FIRST_DELAY });
    this.listeners = new Set();
    this.read = {}; // the newest message that was seen of each room
  }

  listen(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  changed() {
    this.listeners.forEach((listener) => listener());
  }

  get room() {
    return this.places?.find((place) => place.id === this.place);
  }

  can(ability) {
    return this.abilities.includes(ability);
  }

  connect() {
    const url = new URL("page/live", BASE);
    url.protocol = url.protocol.replace("http", "ws");
    const socket = new WebSocket(url);
    this.socket = socket;
    socket.onopen = () => {
      Object.assign(this, { isLost: false, delay: FIRST_DELAY });
      this.choose(this.place);
    };
    socket.onmessage = (event) => this.receive(JSON.parse(event.data));
    socket.onclose = () => {
      this.isLost = true;
      setTimeout(() => this.connect(), this.delay);
      this.delay = Math.min(this.delay * 2, MAX_DELAY);
      this.changed();
    };
  }

  /** Show another room. */
  choose(place) {
    if (place !== this.place) Object.assign(this, { place, messages: null, typing: [] });
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({ place }));
    this.changed();
  }

  receive(frame) {
    if (frame.type === "platform") {
      const { platform: name, places, bots, dialect, abilities, kinds, emojis, longest, web } = frame;
      Object.assign(this, { name, places, bots, dialect, abilities, kinds, emojis, longest, web });
    } else {
      const known = frame.type === "room" ? [] : (this.messages ?? []);
      const news = new Map(frame.messages.map((message) => [message.id, message]));
      const gone = new Set(frame.gone);
      const kept = known.filter((message) => !gone.has(message.id)).map((message) => {
        const changed = news.get(message.id);
        news.delete(message.id);
        return changed ?? message;
      });
      Object.assign(this, { place: frame.place, messages: [...kept, ...news.values()], typing: frame.typing });
    }
    this.markRead();
    this.changed();
  }

  markRead() {
    const isFirst = !Object.keys(this.read).length;
    for (const { id, newest } of this.places ?? []) {
      if (isFirst || id === this.place || !(id in this.read)) this.read[id] = newest;
    }
  }

  /** Return whether a room has messages that were not seen. */
  isUnread({ id, newest }) {
    return id !== this.place && newest !== this.read[id];
  }

  // --- what a person does

  /** Send a message with files; each is stored first. */
  async say({ person, text, replyTo = "", files = [] }) {
    const ids = [];
    for (const file of files) ids.push(await this.upload(file));
    return act("say", { place: this.place, person, text, answers: replyTo, files: ids.join(",") });
  }

  async upload(file) {
    const headers = {
      "Content-Type": "application/octet-stream",
      "X-File-Name": encodeURIComponent(file.name),
      "X-File-Type": file.type,
    };
    const { id } = await answerOf(fetch(address("page/files"), { method: "POST", headers, body: file }));
    return id;
  }

  press(person, message, button) {
    return act("press", { place: this.place, person, message, button });
  }

  edit(person, message, text) {
    return act("edit", { place: this.place, person, message, text });
  }

  remove(person, message) {
    return act("delete", { place: this.place, person, message });
  }

  react(person, message, emoji) {
    return act("react", { place: this.place, person, message, emoji });
  }

  addPerson(name) {
    return act("people", { place: this.place, name });
  }

  async addRoom(kind, name) {
    const { id } = await act("rooms", { place: this.place, kind, name });
    return id;
  }
}

/** Draw the component anew whenever the platform changes. */
export function usePlatform(platform) {
  const [, draw] = useReducer((count) => count + 1, 0);
  useEffect(() => platform.listen(draw), [platform]);
}
