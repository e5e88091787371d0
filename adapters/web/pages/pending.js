// Messages that the server has not acknowledged: stored until it does, and sent again with the same id.

import { randomName, read, write } from "./storage.js";

const STALE = 15 * 60_000;

export class Pending {
  constructor(room) {
    this.key = `pending.${room}`;
    this.messages = read(this.key, []).map((message) => ({ ...message, failed: staleness(message) }));
  }

  add(text) {
    const message = { id: randomName(), text, created_at: new Date().toISOString(), failed: "" };
    this.messages.push(message);
    this.save();
    return message;
  }

  get(id) {
    return this.messages.find((message) => message.id === id);
  }

  fail(id, reason) {
    const message = this.get(id);
    if (message) message.failed = reason;
    this.save();
    return message;
  }

  drop(id) {
    this.messages = this.messages.filter((message) => message.id !== id);
    this.save();
  }

  save() {
    write(this.key, this.messages);
  }
}

// A message that has waited for long may be outdated: the user decides.
function staleness(message) {
  const isOld = Date.now() - new Date(message.created_at) > STALE;
  return message.failed || (isOld ? "it was written a while ago" : "");
}
