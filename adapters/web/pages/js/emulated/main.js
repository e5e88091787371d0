// The page of an emulated platform: its rooms at the side, one of them, and the receipt of a message.

import { get } from "../api.js";
import { html, readStored, render, useEffect, useRef, useState, writeStored } from "../lib.js";
import { Banner } from "../overlay.js";
import { link, navigate, setQuery, startRouter, useRoute } from "../router.js";
import { ThemeButton, useSideMenu } from "../shell.js";
import { Log } from "../thread.js";
import { Brand, Button, Chip, Dot, Face, Icon, IconButton, Search } from "../ui.js";
import { Composer } from "./composer.js";
import { Message } from "./message.js";
import { Platform, usePlatform } from "./platform.js";

const platform = new Platform();
const NO_MESSAGES = [];
const ICONS = { Discord: "discord", Telegram: "telegram", X: "x" };

/** The rooms under their headings. */
function RoomList({ rooms, current, onOpen }) {
  const groups = Map.groupBy ? Map.groupBy(rooms, (room) => room.group) : groupRooms(rooms);
  return html`<nav class="list" aria-label="Rooms">${[...groups].map(([name, list]) => html`${name && html`<h2 key=${name}>${name}</h2>`}
    <ul key=${`${name} list`}>${list.map((room) => html`<li key=${room.id}><a class="item" onClick=${onOpen}
      href=${link("", { room: room.id })} aria-current=${room.id === current ? "page" : undefined}>
      <span class="cut">${room.name}</span>${platform.isUnread(room) && html`<span class="badge"><${Dot} /><span class="vh">new
      messages</span></span>`}</a></li>`)}</ul>`)}${rooms.length === 0 && html`<p class="q pad">No rooms here</p>`}</nav>`;
}

function groupRooms(rooms) {
  const groups = new Map();
  for (const room of rooms) groups.set(room.group, [...(groups.get(room.group) ?? []), room]);
  return groups;
}

function TypingLine({ name }) {
  return html`<li class="msg bot typing"><${Face} name=${name} /><p class="who">${name}</p>
    <p class="status"><span class="spin" aria-hidden="true"></span><span>is typing</span></p></li>`;
}

/** What a screen reader hears: each reply once. */
function Announcer() {
  const heard = useRef(null);
  const [text, setText] = useState("");
  const replies = (platform.messages ?? []).filter((message) => message.is_bot);
  useEffect(() => {
    if (heard.current !== null && replies.length > heard.current) setText(`${replies.at(-1).by}: ${replies.at(-1).text}`);
    if (platform.messages) heard.current = replies.length;
  }, [replies.length, platform.messages === null]);
  return html`<p class="vh" role="status">${text}</p>`;
}

function Thread({ person, onReply }) {
  const messages = platform.messages ?? NO_MESSAGES;
  return html`<${Log} label=${`Messages in ${platform.room.name}`} messages=${messages} isOwn=${(message) => message.user_id === person}>
      <li class="day">Emulated on this machine: nothing here reaches the real ${platform.name}</li>
      ${messages.map((message) => html`<${Message} key=${message.id} ...${{ message, platform, person, onReply }} />`)}
      ${platform.typing.map((name) => html`<${TypingLine} key=${`typing ${name}`} name=${name} />`)}</${Log}><${Announcer} />`;
}

/** The receipt of a message, which the web page shows to its operator. */
function WhyDrawer({ id }) {
  const [parts, setParts] = useState(null);
  const [session, setSession] = useState(null);
  useEffect(() => {
    Promise.all([import("../dialogs.js"), import("../why.js")]).then(([{ Drawer }, { Why }]) => setParts({ Drawer, Why }));
    get("api/session").then(setSession, () => setSession({ role: "" }));
  }, []);
  if (!parts || !session) return null;
  const open = platform.web && html`<${Button} kind="bare" href=${`${platform.web}/console/receipts/${id}`} target="_blank"
    rel="noopener">Open in Console</${Button}>`;
  return html`<${parts.Drawer} title="Why?" actions=${open} onClose=${() => setQuery({ why: "" })}>
    <${parts.Why} key=${id} id=${id} session=${session} isBrief=${true} isNarrow=${true} /></${parts.Drawer}>`;
}

async function addRoomOrPerson() {
  const { askForNew } = await import("./adding.js");
  const place = await askForNew(platform);
  if (place) navigate("", { query: { room: place } });
}

function App() {
  usePlatform(platform);
  const { query } = useRoute();
  const [chosen, setChosen] = useState({});
  const [wanted, setWanted] = useState("");
  const [isMenu, openMenu] = useSideMenu();
  const [reply, setReply] = useState(null);
  const { room } = platform;
  useEffect(() => {
    if (!platform.places?.length) return;
    const known = platform.places.some(({ id }) => id === query.room);
    if (known && query.room !== platform.place) platform.choose(query.room);
  }, [query.room, platform.places]);
  useEffect(() => setReply(null), [platform.place]);
  useEffect(() => {
    if (room) document.title = `${room.name} · ${platform.name} emulator`;
  });
  if (!room) return platform.isLost && html`<main class="main" id="main"><${Banner}>The emulated run has ended. Start it again.</${Banner}></main>`;
  const memory = `as.${platform.name}`;
  const wish = chosen[platform.place] ?? readStored(memory, "");
  const person = room.people.find(({ id, name }) => id === wish || name === wish) ?? room.people[0];
  const choosePerson = (id) => {
    setChosen({ ...chosen, [platform.place]: id });
    writeStored(memory, room.people.find((item) => item.id === id).name);
  };
  const shown = platform.places.filter(({ name }) => name.toLowerCase().includes(wanted.toLowerCase()));
  const canAdd = platform.can("add person") || platform.kinds.length > 0;
  return html`<header class="side" id="side"><div class="top"><div class="row"><${Brand} /><span class="grow"></span>
      <${IconButton} icon="close" label="Close the list" class="only-narrow" onClick=${() => openMenu(false)} /><${ThemeButton} /></div>
      ${canAdd && html`<${Button} kind="primary" icon="plus" onClick=${addRoomOrPerson}>${platform.kinds.length
        ? "New room or person" : "New person"}</${Button}>`}
      <${Search} label="Search rooms" value=${wanted} onSearch=${setWanted} /></div>
      <${RoomList} rooms=${shown} current=${platform.place} onOpen=${() => isMenu && openMenu(false)} />
      <div class="foot"><${Dot} tone=${platform.isLost ? "warn" : "good"} /><span class="grow cut">${platform.isLost ? "Not connected"
        : "Connected"}</span>${platform.web && html`<a href=${`${platform.web}/console`} target="_blank" rel="noopener">Console</a>`}</div></header>
    <main class="main" id="main" inert=${isMenu}><div class=${query.why ? "chat open" : "chat"}><section class="thread" aria-label="Room">
      <header class="bar"><button type="button" class="btn bare icon only-narrow" id="menu" title="Rooms" aria-label="Rooms"
          aria-expanded=${String(isMenu)} aria-controls="side" onClick=${() => openMenu(true)}><${Icon} name="menu" /></button>
        <h1 class="cut">${room.name}</h1><${Chip} icon=${ICONS[platform.name] ?? "chat"}>${platform.name}, emulated</${Chip}>
        <span class="grow"></span></header>
      ${platform.isLost && html`<${Banner}>The emulated run has ended. Start it again in the terminal, and open the printed address.</${Banner}>`}
      <${Thread} key=${platform.place} person=${person.id} onReply=${setReply} />
      <${Composer} key=${`composer ${platform.place}`} platform=${platform} person=${person.id} onPerson=${choosePerson}
        reply=${reply} onReply=${setReply} /></section>
      ${query.why && html`<${WhyDrawer} key=${query.why} id=${query.why} />`}</div></main>`;
}

startRouter((path) => path === "");
platform.place = new URL(location.href).searchParams.get("room") ?? "";
platform.connect();
render(html`<${App} />`, document.getElementById("app"));
