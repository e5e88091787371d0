// Messages that the server has not acknowledged: kept until it has, and sent again with the same name.

import { randomName, read, write } from "./storage.js";

const STALE = 15 * 60_000;

export class Pending {
  constructor(room) {
    this.key = `pending.${room}`;
    this.messages = read(this.key, []).map((one) => ({ ...one, failed: staleness(one) }));
  }

  add(text) {
    const message = { id: randomName(), text, created_at: new Date().toISOString(), failed: "" };
    this.messages.push(message);
    this.save();
    return message;
  }

  get(id) {
    return this.messages.find((one) => one.id === id);
  }

  fail(id, reason) {
    const message = this.get(id);
    if (message) message.failed = reason;
    this.save();
    return message;
  }

  drop(id) {
    this.messages = this.messages.filter((one) => one.id !== id);
    this.save();
  }

  save() {
    write(this.key, this.messages);
  }
}

// What has waited for long may no longer be meant: a person decides.
function staleness(message) {
  const isOld = Date.now() - new Date(message.created_at) > STALE;
  return message.failed || (isOld ? "it was written a while ago" : "");
}
