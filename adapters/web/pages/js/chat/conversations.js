// The conversations at the side, as the server has them; what changes in another tab comes over the live stream.

import { get, patch, remove, usePages } from "../api.js";
import { html, readStored, t, useEffect, useMemo, useReducer, useState, writeStored } from "../lib.js";
import { useStream } from "../stream.js";
import { NavItem } from "../shell.js";
import { Button } from "../ui.js";

const DAY = 86_400_000;
const SEARCH_PAUSE = 200;
const ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** Return whether a text is the id of a conversation; a new one has only the name of its room until it is joined. */
export const isId = (text) => ID.test(text);

/** Return a title for a conversation: the beginning of its first message. */
export function titleOf(text) {
  const line = text.trim().split("\n", 1)[0].trim();
  return line.length > 60 ? `${line.slice(0, 59).trimEnd()}…` : line;
}

function useLater(value, delay) {
  const [later, setLater] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setLater(value), value ? delay : 0);
    return () => clearTimeout(timer);
  }, [value]);
  return later;
}

/**
 * Return the conversations of a character whose titles contain `text`, the latest first, as `usePages` does, and
 * `open`, the one whose id or room is `key`: `{ id, agent_id, room, title }`, null while it is loaded, with `isMissing`
 * where there is none. `rename(id, title)` and `erase(id)` change one; `begin(room, text)` shows a new one before the
 * server knows it, `find(room)` returns the one of a room that the server knows. `onDelete(id)` is called when one was deleted elsewhere.
 */
export function useConversations(agentId, text, key, onDelete) {
  const wanted = useLater(text, SEARCH_PAUSE);
  const list = usePages("api/conversations", { agent: agentId, q: wanted }, "conversations");
  const [records, add] = useReducer((old, record) => (record ? { ...old, [record.id]: { ...old[record.id], ...record } } : {}), {});
  const [begun, setBegun] = useState(null);
  const [attempt, tryAgain] = useReducer((count) => count + 1, 0);
  useStream([{ kind: "conversation" }], (frame) => {
    if (frame.type === "reset") return (add(null), list.reload());
    const { id, room, title } = frame;
    if (frame.is_deleted) onDelete(id);
    else add({ id, room, title, agent_id: frame.agent_id });
    if (frame.agent_id === agentId) list.change((rows) => place(rows, frame, wanted));
  });
  useEffect(() => void moveTitles(agentId).then((isMoved) => isMoved && list.reload(), () => {}), [agentId]);
  const isKnown = !isId(key) || !!records[key] || !!list.rows?.some((item) => item.id === key);
  useEffect(() => {
    if (isKnown) return undefined;
    let timer = 0;
    get(`api/conversations/${key}`).then(add, (error) => {
      if (error.status === 404) add({ id: key, isMissing: true });
      else timer = setTimeout(tryAgain, 2000);
    });
    return () => clearTimeout(timer);
  }, [isKnown, key, attempt]);
  const open = useMemo(() => {
    const listed = list.rows?.find((item) => item.id === key);
    if (isId(key)) return records[key]?.isMissing ? records[key] : listed || records[key] ? { ...listed, ...records[key] } : null;
    return key ? { id: null, room: key, title: begun?.room === key ? begun.title : "" } : null;
  }, [key, records, list.rows, begun]);
  const rows = useMemo(() => {
    const isListed = !begun || text || list.rows?.some((item) => roomKey(item.room) === roomKey(begun.room));
    return isListed || begun.agentId !== agentId ? list.rows : [{ ...begun, id: begun.room }, ...(list.rows ?? [])];
  }, [list.rows, begun, records, text, agentId]);
  return {
    ...list,
    rows,
    open,
    isFiltered: !!wanted,
    find: (room) => [...(list.rows ?? []), ...Object.values(records)].find((item) => item.agent_id === agentId
      && !item.isMissing && roomKey(item.room) === room),
    begin: (room, said) => setBegun({ room, agentId, title: titleOf(said), updated_at: new Date().toISOString() }),
    rename: async (id, title) => {
      const changed = await patch(`api/conversations/${id}`, { title });
      add({ id, title: changed.title });
      list.change((all) => all.map((item) => (item.id === id ? { ...item, title: changed.title } : item)));
    },
    erase: async (id) => {
      await remove(`api/conversations/${id}`).catch((error) => {
        if (error.status !== 404) throw error; // deleted meanwhile
      });
      setBegun(null);
      list.change((all) => all.filter((item) => item.id !== id));
    },
  };
}

/** Return the name of a room without the token that it belongs to, for what this browser stores. */
export const roomKey = (room) => room.replace(/^token:[^:]+:/, "");

// A changed conversation takes its place in the list; one without a message is not listed.
function place(rows, frame, text) {
  const old = rows.find((item) => item.id === frame.id);
  const rest = rows.filter((item) => item !== old);
  const isWanted = frame.title.toLowerCase().includes(text.toLowerCase());
  if (frame.is_deleted || !isWanted || !(old || frame.updated_at)) return rest;
  if (!frame.updated_at) return rows.map((item) => (item === old ? { ...old, title: frame.title } : item));
  return [{ ...old, ...frame }, ...rest];
}

// Until now titles were kept by the browser, and the server had the names of the rooms instead.
async function moveTitles(agentId) {
  const stored = readStored("conversations", null);
  const own = Object.keys(stored ?? {}).filter((name) => name.startsWith(`${agentId}/`));
  if (!own.length) return false;
  const { conversations } = await get("api/conversations", { agent: agentId, limit: 200 });
  for (const { id, room, title } of conversations) {
    const old = stored[`${agentId}/${room}`]?.title;
    if (old && title === room) await patch(`api/conversations/${id}`, { title: old });
  }
  const rest = Object.entries(stored).filter(([name]) => !own.includes(name));
  writeStored("conversations", rest.length ? Object.fromEntries(rest) : undefined);
  return true;
}

/** Return the items in groups: Today, Yesterday, Earlier. */
export function groupByDay(items, now = new Date()) {
  const midnight = new Date(now).setHours(0, 0, 0, 0);
  const groups = { Today: [], Yesterday: [], Earlier: [] };
  for (const item of items) {
    const at = Date.parse(item.updated_at) || 0;
    groups[at >= midnight ? "Today" : at >= midnight - DAY ? "Yesterday" : "Earlier"].push(item);
  }
  return Object.entries(groups).filter(([, list]) => list.length);
}

/** The list of conversations at the side. `current` is the id or the room of the open one. */
export function ConversationList({ list, current, onOpen, onClear }) {
  const { rows, error, isFiltered } = list;
  return html`<nav class="list" aria-label="Conversations">
    ${error && html`<p class="q pad" role="alert">${error.message} <${Button} kind="bare" onClick=${() => list.reload()}>Try again</${Button}></p>`}
    ${groupByDay(rows ?? []).map(([name, items]) => html`<h2 key=${name}>${t(name)}</h2><ul key=${`${name} list`}>${items.map((item) => html`
      <li key=${item.id}><${NavItem} onClick=${onOpen} to=${`c/${encodeURIComponent(item.id)}`} title=${item.title}
        text=${item.title || t("Untitled")} isCurrent=${item.id === current || item.room === current} /></li>`)}</ul>`)}
    ${rows?.length === 0 && !error && html`<p class="q pad">${isFiltered ? html`${t("Nothing matches")}. <${Button} kind="bare"
      onClick=${onClear}>Clear the search</${Button}>` : t("No conversations yet")}</p>`}
    ${list.hasMore && html`<div class="more-rows"><${Button} onClick=${() => list.more()}>Show more</${Button}></div>`}</nav>`;
}
