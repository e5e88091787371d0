// Rooms: the rooms by platform and world, one room as it goes on, and the receipt of a message in it.

import { get, post, useLoad, usePages } from "../api.js";
import { formatAge, formatDuration, formatTime, Time, useNow } from "../format.js";
import { classes, html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../lib.js";
import { Empty, ErrorNote, ListState, More, Skeleton } from "../lists.js";
import { toast, useMedia } from "../overlay.js";
import { Link, link, setQuery } from "../router.js";
import { useStream } from "../stream.js";
import { arrange, drawByDay, Files, Log, Markdown, Replied } from "../thread.js";
import { Button, Chip, Dot, Face, Icon, IconButton, Search, Select } from "../ui.js";
import { OUTCOMES, OutcomeMark, TIMES, useSince, Why } from "../why.js";

const LONGEST_NAME = 200; // characters of a message that name the link to its receipt
const TONES = { answered: "good", failed: "bad" };
const PLATFORMS = { discord: "Discord", telegram: "Telegram", x: "X", web: "Web" };

export default function Page({ session, query, params }) {
  const [roomId] = params;
  const list = usePages("api/rooms", { q: query.q, agent: query.agent, limit: 200 }, "rooms");
  useStream([{ kind: "message", agent: query.agent, is_summary: true }], ({ type, rooms, at }) => {
    if (type === "reset") return list.reload();
    return list.change((old) => old?.map((room) => (rooms.includes(room.id) ? { ...room, last_event_at: at } : room)));
  });
  return html`<div class=${classes("split", roomId && "in", query.message && "picked")}><h1 class="vh">Rooms</h1>
    <${RoomList} ...${{ list, query, roomId }} />
    ${roomId ? html`<${Tail} key=${roomId} ...${{ roomId, query, list, session }} />`
      : html`<section class="mid" aria-label="Room"><${Empty} title="No room selected">Select a room to see what happens in it.</${Empty}></section>`}
    ${query.message && html`<${Inspector} key=${query.message} id=${query.message} session=${session} />`}</div>`;
}

/** The rooms, under the names of their platforms and worlds. */
function RoomList({ list, query, roomId }) {
  const now = useNow();
  const groups = useMemo(() => {
    const found = new Map();
    for (const room of list.rows ?? []) {
      const isDirect = room.type === "DM" && room.platform !== "web"; // each is a world of its own
      const key = `${room.platform} ${isDirect ? "direct" : room.world_id}`;
      const world = isDirect ? "Direct messages" : room.world;
      if (!found.has(key)) found.set(key, { key, platform: room.platform, world, rooms: [] });
      found.get(key).rooms.push(room);
    }
    return [...found.values()];
  }, [list.rows]);
  const keep = { q: query.q, agent: query.agent };
  return html`<section class="lst" aria-label="All rooms"><div class="phead"><h2>Rooms</h2>
      <${Search} label="Search rooms" value=${query.q ?? ""} wide=${true} onSearch=${(q) => setQuery({ q })} /></div>
    <div class="pbody rooms" tabindex="0" role="region" aria-label="List of rooms"><${ListState} list=${list}
        isFiltered=${Boolean(query.q)} onClear=${() => setQuery({ q: "" })}
        empty=${html`<${Empty} title="No rooms yet">Write to the character, or connect a platform.</${Empty}>`} />
      ${groups.map((group) => html`<h3 key=${group.key}><${Icon} name=${group.platform} size="s" />${group.world
          || PLATFORMS[group.platform] || group.platform}</h3><ul>${group.rooms.map((room) => html`<li key=${room.id}>
          <a class="item" href=${link(`console/rooms/${room.id}`, keep)} aria-current=${room.id === roomId ? "page" : undefined}>
            <span class="cut">${room.name || room.external_id}</span><span class="badge">${room.take_overs.length ? "taken over" : room.is_muted ? "muted"
              : room.last_event_at ? formatAge(room.last_event_at, now).replace(/ ago$/, "") : ""}</span></a></li>`)}</ul>`)}
      <${More} list=${list} /></div></section>`;
}

/** Load the messages of a room: the last ones, older ones on demand, new ones as they come. */
function useTailOf(roomId, filters, isPaused) {
  const path = `api/rooms/${roomId}/messages`;
  const key = JSON.stringify(filters);
  const [state, setState] = useState({ rows: null, older: null, error: null });
  const [missed, setMissed] = useState(false);
  const newest = useRef(null);
  const isBusy = useRef(false);
  const hasFilter = Object.values(filters).some(Boolean);
  const load = async () => {
    try {
      const answer = await get(path, { ...filters, limit: 100 });
      newest.current = answer.newest;
      setMissed(false);
      setState({ rows: answer.messages, older: answer.next, error: null });
    } catch (error) {
      setState((old) => ({ ...old, error }));
    }
  };
  useEffect(() => void (setState({ rows: null, older: null, error: null }), load()), [roomId, key]);
  const refresh = async () => {
    if (isBusy.current) return;
    isBusy.current = true;
    try {
      if (hasFilter || !newest.current) return await load();
      const { messages, newest: last } = await get(path, { after: newest.current, limit: 200 });
      newest.current = last ?? newest.current;
      setState((old) => ({ ...old, rows: [...(old.rows ?? []), ...messages].slice(-1000) }));
    } catch {
      setMissed(true); // the banner says that the bot is not connected
    } finally {
      isBusy.current = false;
    }
  };
  const settle = (frame) => {
    const known = { outcome: { outcome: frame.outcome, reason: frame.reason, rule: frame.rule }, headline: frame.headline,
      receipt_id: frame.receipt_id, took_ms: frame.closed_at ? new Date(frame.closed_at) - new Date(frame.received_at) : null, cost: frame.cost ?? null };
    setState((old) => ({ ...old, rows: old.rows?.map((row) => (row.id === frame.id ? { ...row, ...known } : row)) }));
  };
  useStream([{ kind: "message", room: roomId, is_summary: true }, { kind: "receipt", room: roomId }], (frame) => {
    if (frame.type === "reset") return isPaused ? setMissed(true) : load();
    if (frame.room_id && frame.room_id !== roomId) return undefined;
    if (isPaused) return setMissed(true);
    return frame.type === "changed" ? refresh() : settle(frame);
  });
  useEffect(() => void (!isPaused && missed && load()), [isPaused]);
  const loadOlder = async () => {
    setState((old) => ({ ...old, isOlderComing: true, olderError: null }));
    try {
      const answer = await get(path, { ...filters, limit: 100, before: state.older });
      setState((old) => ({ ...old, rows: [...answer.messages, ...old.rows], older: answer.next, isOlderComing: false }));
    } catch (error) {
      setState((old) => ({ ...old, olderError: error, isOlderComing: false }));
    }
  };
  // With filters a part may be empty: each is asked for.
  const history = { hasMore: !!state.older, isLoading: state.isOlderComing, error: state.olderError, load: loadOlder, isManual: hasFilter };
  return { ...state, history, reload: load };
}

function Tail({ roomId, query, list, session }) {
  const room = list.rows?.find((item) => item.id === roomId);
  const [isPaused, setPaused] = useState(false);
  const [Instructions, setInstructions] = useState(null);
  const openInstructions = () => import("./room_instructions.js").then((module) => setInstructions(() => module.default));
  const [Cast, setCast] = useState(null);
  const openCast = () => import("./room_cast.js").then((module) => setCast(() => module.default));
  const since = useSince(query.hours);
  const filters = { outcome: query.outcome, rule: query.rule, author: query.author, from: since };
  const isFiltered = Object.values(filters).some(Boolean);
  const tail = useTailOf(roomId, filters, isPaused);
  const counts = useLoad("api/receipts/counts", { room: roomId, from: useMemo(() => new Date(Date.now() - 7 * 86_400_000).toISOString(), [roomId]) });
  const rules = [...new Set([query.rule, ...(counts.value?.counts ?? []).map((item) => item.rule)].filter(Boolean))];
  const people = new Map((tail.rows ?? []).filter((row) => !row.author.is_agent).map((row) => [row.author.id, row.author.name || "unknown"]));
  if (query.author && !people.has(query.author)) people.set(query.author, "This person");
  const rows = useMemo(() => arrange(tail.rows ?? []), [tail.rows]);
  const known = new Map(rows.map((row) => [row.id, row]));
  const name = room ? room.name || room.external_id : "Room";
  const filter = (changes) => setQuery(changes, { replace: false });
  const clear = () => filter({ outcome: "", rule: "", author: "", hours: "" });
  const empty = tail.error ? html`<${ErrorNote} error=${tail.error} onRetry=${tail.reload} />`
    : !tail.rows ? html`<${Skeleton} rows=${10} />`
    : isFiltered ? html`<${Empty} title="Nothing matches"><${Button} onClick=${clear}>Clear filters</${Button}></${Empty}>`
    : html`<${Empty} title="No messages yet">They appear here as they come.</${Empty}>`;
  return html`<section class="mid" aria-label=${name}><div class="phead">
      <${IconButton} icon="left" label="All rooms" class="only-narrow" to="console/rooms" query=${{ q: query.q, agent: query.agent }} />
      <h2 class="cut">${name}</h2><${Chip} tone=${isPaused ? "" : "good"}><${Dot} tone=${isPaused ? "off" : "good"} />${isPaused ? "Paused" : "Live"}</${Chip}>
      ${room && html`<${IconButton} icon="gear" label="Instructions" onClick=${openInstructions} />${room.has_cast
        && html`<${IconButton} icon="people" label="Characters" onClick=${openCast} />`}<${Control} room=${room} list=${list} />`}
      ${Cast && html`<${Cast} room=${room} session=${session} onClose=${() => setCast(null)} />`}
      ${Instructions && html`<${Instructions} room=${room} session=${session} onClose=${() => setInstructions(null)} />`}
      <${IconButton} icon=${isPaused ? "play" : "pause"} label=${isPaused ? "Go on" : "Pause"} onClick=${() => setPaused(!isPaused)} />
      <div class="filters">
        <${Select} label="Outcome" options=${OUTCOMES} value=${query.outcome ?? ""} onChange=${(outcome) => filter({ outcome })} />
        <${Select} label="Rule" options=${[["", "Rule"], ...rules.map((rule) => [rule, rule])]} value=${query.rule ?? ""} onChange=${(rule) => filter({ rule })} />
        <${Select} label="Person" options=${[["", "Person"], ...people]} value=${query.author ?? ""} onChange=${(author) => filter({ author })} />
        <${Select} label="Time" options=${TIMES} value=${query.hours ?? ""} onChange=${(hours) => filter({ hours })} /></div></div>
    <${Log} label="Messages" messages=${rows} history=${tail.history} empty=${rows.length === 0 && !tail.history.hasMore && empty}>
      ${rows.length === 0 && html`<li>${empty}</li>`}
      ${rows.length > 0 && tail.error && html`<li><${ErrorNote} error=${tail.error} onRetry=${tail.reload} /></li>`}
      ${drawByDay(rows, (row, isUnder) => html`<${Line} key=${row.id} ...${{ row, isUnder, answered: isUnder ? null : known.get(row.in_reply_to) }}
        isPicked=${query.message === row.id} />`)}</${Log}></section>`;
}

/** Who has taken a room over, and the button that takes it over or gives it back. */
function Control({ room, list }) {
  const [held] = room.take_overs;
  const send = () => post(`api/rooms/${room.id}/${held ? "give-back" : "take-over"}`, {}).then(() => {
    toast(held ? "Given back: the character answers here again" : "Taken over: the character is silent here and reads on");
    list.reload();
  }, (error) => toast(error.message));
  return html`${held && html`<${Chip} tone="warn">taken over by ${held.name || "a person"} ${formatAge(held.since, useNow())}</${Chip}>`}
    <${Button} onClick=${send}>${held ? "Give back" : "Take over"}</${Button}>`;
}

/** One message, a link to the receipt of it or of what it answers; a person's has the sentence of its outcome. */
function Line({ row, isUnder, answered, isPicked }) {
  const { author, text } = row;
  const name = author.name || "unknown";
  const target = author.is_agent ? row.in_reply_to : row.id;
  const address = target && link(location.pathname.slice(link("").length), { ...queryNow(), message: target });
  const time = html`<${Time} at=${row.created_at} as="second" />`;
  const pick = (event) => {
    if (!event.target.closest("a, button, audio, video") && !String(getSelection())) setQuery({ message: target }, { replace: false });
  };
  const said = text || row.attachments?.map((file) => file.title || file.kind).join(", ") || "(no text)";
  return html`<li class=${classes("msg bot", author.is_agent ? "own" : "theirs", isUnder && "reply")} id=${`m-${row.id}`} data-row=${row.id}
      tabindex="-1" onClick=${target && pick}>
    <${Face} name=${name} isPerson=${!author.is_agent} />
    <p class="who">${address ? html`<a href=${address} aria-current=${isPicked ? "true" : undefined}
      aria-label=${`${name} ${formatTime(row.created_at, "second")}: ${said.slice(0, LONGEST_NAME)}`}>${name} ${time}</a>` : html`${name} ${time}`}</p>
    ${answered && html`<${Replied} by=${answered.author.name || "unknown"} text=${answered.text || "a message"} />`}
    <${Files} files=${row.attachments} />
    ${row.kind === "notice" ? html`<p class="body hint">${text}</p>` : text ? html`<${Markdown} text=${text} />` : !row.attachments?.length && html`<p class="body q">(no text)</p>`}
    ${!author.is_agent && html`<${Result} row=${row} />`}</li>`;
}

function queryNow() {
  return Object.fromEntries(new URLSearchParams(location.search));
}

function Result({ row }) {
  if (!row.outcome) return null;
  const { outcome } = row.outcome;
  if (["claimed", "received"].includes(outcome)) {
    return html`<p class="outcome good"><span class="spin" aria-hidden="true"></span>Working on it</p>`;
  }
  const took = outcome === "answered" && row.took_ms !== null ? ` · ${formatDuration(row.took_ms)}` : "";
  return html`<p class=${classes("outcome", TONES[outcome])}><${OutcomeMark} outcome=${outcome} /><span class="said">${row.headline}${took}</span></p>`;
}

/** The receipt of the picked message: beside the messages, or over the page where it is narrow. */
function Inspector({ id, session }) {
  const heading = useRef(null);
  const isOver = useMedia("(max-width: 75rem)");
  const close = () => setQuery({ message: "" }, { replace: false });
  useEffect(() => {
    const opener = document.activeElement;
    if (isOver) heading.current.focus({ preventScroll: true });
    const onKey = (event) => event.key === "Escape" && !event.defaultPrevented && !document.querySelector("dialog[open]") && close();
    addEventListener("keydown", onKey);
    return () => {
      removeEventListener("keydown", onKey);
      if (opener?.isConnected) opener.focus();
    };
  }, []);
  useLayoutEffect(() => {
    const behind = isOver ? [...document.querySelectorAll(".split > .lst, .split > .mid, .side, .tabs, .skip")] : [];
    behind.forEach((node) => void (node.inert = true));
    return () => behind.forEach((node) => void (node.inert = false));
  }, [isOver]);
  return html`<section class="insp" aria-label="Receipt of the picked message"><div class="phead"><h2 tabindex="-1" ref=${heading}>Receipt</h2>
      <${Link} class="btn bare" to=${`console/receipts/${id}`}>Open</${Link}><${IconButton} icon="close" label="Close" onClick=${close} /></div>
    <div class="pbody padded narrow" tabindex="0" role="region" aria-label="Receipt, text"><${Why} id=${id} session=${session} isNarrow=${true} /></div></section>`;
}
