// The conversations at the side: rooms of this server, with the titles that this browser gave them.

import { get } from "../api.js";
import { readStored, useEffect, useMemo, useState, writeStored } from "../lib.js";

const KEY = "conversations";
const DAY = 86_400_000;

/** Return a title for a conversation: the beginning of its first message. */
export function titleOf(text) {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > 60 ? `${line.slice(0, 59).trimEnd()}…` : line;
}

/**
 * Return `{ items, error, save, forget, reload }` of one character's conversations, the latest first. An item is
 * `{ id, title, at }`; `id` is the name of the room and stands in the address. What one tab changes, the others show.
 */
export function useConversations(agentId) {
  const [stored, setStored] = useState(() => readStored(KEY, {}));
  const [rooms, setRooms] = useState([]);
  const [error, setError] = useState(null);
  const reload = () => agentId && get("api/rooms", { agent: agentId, limit: 200 }).then(
    (answer) => setRooms(answer.rooms.filter((room) => room.platform === "web")),
    (problem) => setError(problem.status === 403 ? null : problem), // a chat token sees what this browser knows
  );
  useEffect(() => void reload(), [agentId]);
  useEffect(() => {
    const follow = (event) => event.key === `greenroom.${KEY}` && setStored(readStored(KEY, {}));
    addEventListener("storage", follow);
    return () => removeEventListener("storage", follow);
  }, []);
  const change = (id, edit) => {
    const all = readStored(KEY, {});
    const name = `${agentId}/${id}`;
    const next = edit(all[name] ?? {});
    const changed = { ...all, [name]: next };
    writeStored(KEY, changed);
    setStored(changed);
  };
  const items = useMemo(() => {
    const own = Object.entries(stored).filter(([name]) => name.startsWith(`${agentId}/`))
      .map(([name, item]) => ({ ...item, id: name.slice(agentId.length + 1) }));
    const known = new Set(own.map((item) => item.id));
    const others = rooms.filter((room) => !known.has(room.external_id))
      .map((room) => ({ id: room.external_id, title: room.name || room.external_id, at: room.last_event_at ?? null }));
    return [...own, ...others].filter((item) => !item.isHidden)
      .sort((one, other) => (Date.parse(other.at) || 0) - (Date.parse(one.at) || 0));
  }, [stored, rooms, agentId]);
  return {
    items,
    error,
    reload,
    save: (id, values) => change(id, (old) => ({ ...old, ...values, isHidden: false })),
    forget: (id) => change(id, () => ({ isHidden: true })),
  };
}

/** Return the items in groups: Today, Yesterday, Earlier. */
export function groupByDay(items, now = new Date()) {
  const midnight = new Date(now).setHours(0, 0, 0, 0);
  const groups = { Today: [], Yesterday: [], Earlier: [] };
  for (const item of items) {
    const at = Date.parse(item.at) || 0;
    groups[at >= midnight ? "Today" : at >= midnight - DAY ? "Yesterday" : "Earlier"].push(item);
  }
  return Object.entries(groups).filter(([, list]) => list.length);
}
