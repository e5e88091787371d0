// The messages of a conversation that do not come with joining it: older ones, and those that wait in this browser.

import { get } from "../api.js";
import { readStored } from "../lib.js";

const FIRST_MESSAGES = 50; // that the server sends of a room, fewer if they are long
const MANY_CHARACTERS = 100_000;
const OLDER_MESSAGES = 100;
const STALE = 15 * 60_000;

/** Return what this browser keeps to be sent; what has waited for long may be outdated, so the person decides. */
export function readWaiting(key) {
  return readStored(key, []).map((message) => {
    const isOld = Date.now() - new Date(message.created_at) > STALE;
    return isOld ? { ...message, state: "failed", problem: message.problem || "it was written a while ago" } : message;
  });
}

/** Whether there are older messages, and loading them: `hasMore`, `isLoading`, `error`. */
export class History {
  constructor() {
    this.restart([]);
  }

  /** Begin anew with the latest messages of the room. */
  restart(messages) {
    const length = messages.reduce((sum, { text }) => sum + text.length, 0);
    this.generation = (this.generation ?? 0) + 1;
    Object.assign(this, { cursor: null, isLoading: false, error: null });
    this.hasMore = messages.length >= FIRST_MESSAGES || length > MANY_CHARACTERS;
  }

  /**
   * Return the messages to show when the room is joined again: the latest, after the older ones that are shown already
   * and follow without a gap.
   */
  join(shown, latest) {
    const known = shown.findIndex((message) => message.id === latest[0]?.id);
    if (known < 0) this.restart(latest);
    const older = shown.slice(0, Math.max(known, 0)).filter((message) => message.state === "sent");
    const keys = new Map(shown.map((message) => [message.id, message.client_id])); // so that nothing is drawn anew
    return [...older, ...latest.map((message) => ({ ...message, state: "sent", client_id: keys.get(message.id) }))];
  }

  /** Load older messages; return those that are not shown yet, null if nothing came of it. */
  async load(roomId, shown) {
    const { generation, cursor } = this;
    Object.assign(this, { isLoading: true, error: null });
    try {
      // The first part ends with the messages that are shown.
      const limit = cursor ? OLDER_MESSAGES : FIRST_MESSAGES + OLDER_MESSAGES;
      const answer = await get(`api/rooms/${roomId}/messages`, { limit, before: cursor });
      if (generation !== this.generation) return null;
      Object.assign(this, { cursor: answer.next, hasMore: answer.next !== null, isLoading: false });
      const known = new Set(shown().map((message) => message.id));
      return answer.messages.filter(({ id }) => !known.has(id)).map((message) => ({ ...message, state: "sent" }));
    } catch (error) {
      if (generation === this.generation) Object.assign(this, { isLoading: false, error });
      return null;
    }
  }
}
