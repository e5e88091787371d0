// Chat: conversations at the side and the thread of one.

import { get } from "../api.js";
import {
  html, randomId, readStored, render, useEffect, useReducer, useRef, useState, writeStored,
} from "../lib.js";
import { Banner, Menu } from "../overlay.js";
import { navigate, setQuery, startRouter, useRoute } from "../router.js";
import { CharacterSwitch, NavItem, OfflineBanner, Sidebar } from "../shell.js";
import { usePalette, useShortcuts } from "../shortcuts.js";
import { Button, Face, IconButton, Search } from "../ui.js";
import { Composer } from "./composer.js";
import { groupByDay, titleOf, useConversations } from "./conversations.js";

const PAGES = [{ title: "Chat", path: "", icon: "chat" }, { title: "Console", path: "console", icon: "pulse" }];

/** The screen of a conversation without messages: who the character is, and how to begin. */
function Hello({ agent, onSend }) {
  const suggestions = (agent.suggestions ?? []).slice(0, 4);
  return html`<div class="hello"><${Face} name=${agent.name} picture=${agent.face} size="l" /><h2>${agent.name}</h2>
    ${agent.bio[0] && html`<p class="q2">${agent.bio[0]}</p>`}
    ${suggestions.length > 0 && html`<div class="starts">${suggestions.map((text) => html`<button type="button" key=${text}
      onClick=${() => onSend(text)}>${text}</button>`)}</div>`}</div>`;
}

/**
 * Return the module of the thread, and the room, joined while the component is shown; the component is drawn anew when
 * the room changes. Both are null until there is a conversation.
 */
function useRoom(agent, name, session) {
  const [module, setModule] = useState(null);
  const [room, setRoom] = useState(null);
  const [, draw] = useReducer((count) => count + 1, 0);
  useEffect(() => void (name && !module && import("./thread.js").then(setModule)), [name]);
  useEffect(() => {
    if (!module || !name) return void setRoom(null);
    const next = new module.Room(agent, name, session);
    setRoom(next);
    const stop = next.listen(draw);
    const leave = next.join();
    return () => {
      stop();
      leave();
    };
  }, [module, agent.id, name]);
  return [module, room?.name === name && room?.agent.id === agent.id ? room : null];
}

/** The title of the conversation, which can be changed in place. */
function Title({ text, onRename }) {
  const [value, setValue] = useState(null);
  const field = useRef(null);
  const isEditing = value !== null;
  useEffect(() => void (isEditing && field.current.select()), [isEditing]);
  if (!isEditing) {
    return html`<h1 class="cut">${text}</h1>${onRename && html`<${IconButton} icon="edit" label="Rename"
      onClick=${() => setValue(text)} />`}`;
  }
  const finish = (event) => {
    event.preventDefault();
    if (value.trim()) onRename(value.trim());
    setValue(null);
  };
  const onKeyDown = (event) => event.key === "Escape" && setValue(null);
  return html`<h1 class="vh">${text}</h1><form class="grow" onSubmit=${finish}><input class="input" ref=${field} maxlength="120"
    aria-label="Title of the conversation" value=${value} onInput=${(event) => setValue(event.target.value)}
    onBlur=${finish} onKeyDown=${onKeyDown} /></form>`;
}

function ConversationList({ items, current, onOpen }) {
  return html`<nav class="list" aria-label="Conversations">${groupByDay(items).map(([name, list]) => html`<h2 key=${name}
    >${name}</h2><ul key=${`${name} list`}>${list.map((item) => html`<li key=${item.id}><${NavItem} onClick=${onOpen}
      to=${`c/${encodeURIComponent(item.id)}`} text=${item.title} isCurrent=${item.id === current} /></li>`)}</ul>`)}
    ${items.length === 0 && html`<p class="q pad">No conversations here</p>`}</nav>`;
}

function Chat({ session }) {
  const { segments, query } = useRoute();
  const { agents } = session;
  const [agentId, setAgentId] = useState(readStored("agent", agents[0].id));
  const agent = agents.find((item) => item.id === (query.agent ?? agentId)) ?? agents[0];
  const name = segments[0] === "c" ? segments[1] : "";
  const [thread, room] = useRoom(agent, name, session);
  const conversations = useConversations(agent.id);
  const [wanted, setWanted] = useState("");
  const [isMenu, setMenu] = useState(false);
  const unsent = useRef("");
  const item = conversations.items.find((entry) => entry.id === name);
  const title = item?.title ?? (name || "New conversation");
  const isReadOnly = session.role === "read_only";
  const { search, help, overlay } = usePalette(PAGES);
  useShortcuts({ search, help });
  useEffect(() => void (document.title = `${name ? title : "New conversation"} · ${agent.name} · Greenroom`));
  useEffect(() => {
    if (room && unsent.current) room.say(unsent.current);
    if (room) unsent.current = "";
  }, [room]);
  const send = (text) => {
    const id = name || `chat-${randomId()}`;
    conversations.save(id, { title: item?.title ?? titleOf(text), at: new Date().toISOString() });
    if (room) return room.say(text);
    unsent.current = text;
    return navigate(`c/${id}`);
  };
  const choose = (id) => {
    writeStored("agent", id);
    setAgentId(id);
    navigate("");
  };
  const openMenu = (isOpen) => {
    setMenu(isOpen);
    document.getElementById("app").classList.toggle("menu", isOpen);
    if (!isOpen) requestAnimationFrame(() => document.getElementById("menu")?.focus());
  };
  useEffect(() => {
    if (!isMenu) return undefined;
    document.querySelector(".side .only-narrow").focus();
    const onKey = (event) => event.key === "Escape" && openMenu(false);
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [isMenu]);
  const closeMenu = () => isMenu && openMenu(false);
  const forget = async () => {
    const { confirm } = await import("../dialogs.js");
    const text = "It leaves this list in this browser. The messages stay stored in the bot until they expire or are forgotten.";
    if (!(await confirm({ title: `Remove “${title}”?`, text, action: "Remove" }))) return;
    conversations.forget(name);
    navigate("");
  };
  const shown = conversations.items.filter((entry) => entry.title.toLowerCase().includes(wanted.toLowerCase()));
  const top = html`<${Button} kind="primary" icon="plus" to="" onClick=${closeMenu}>New conversation</${Button}>
    <${Search} label="Search conversations" value=${wanted} onSearch=${setWanted} />`;
  const hello = html`<${Hello} agent=${agent} onSend=${send} />`;
  return html`<${Sidebar} part="chat" session=${session} home="" top=${top} onClose=${() => openMenu(false)}>
      <${ConversationList} items=${shown} current=${name} onOpen=${closeMenu} /></${Sidebar}>
    <main class="main" id="main" inert=${isMenu}><div class=${query.why ? "chat open" : "chat"}><section class="thread" aria-label="Conversation">
      <header class="bar"><button type="button" class="btn bare icon only-narrow" id="menu" title="Conversations"
          aria-label="Conversations" aria-expanded=${String(isMenu)} aria-controls="side" onClick=${() => openMenu(true)}>
          <svg class="ico" viewBox="0 0 16 16" aria-hidden="true"><path d="M2.5 4.5h11M2.5 8h11M2.5 11.5h11" /></svg></button>
        <${Title} key=${name} text=${title} onRename=${name && !isReadOnly
          && ((text) => conversations.save(name, { title: text, at: item?.at ?? new Date().toISOString() }))} />
        <span class="grow"></span><${CharacterSwitch} agents=${agents} value=${agent.id} onChange=${choose} kind="bare" />
        ${name && !isReadOnly && html`<${Menu} label="More" icon="dots" items=${[
          { text: "Remove from the list", icon: "trash", onChoose: forget }]} />`}</header>
      <${OfflineBanner} text="No connection to the bot. What you write is kept here and sent when the connection is back." />
      ${room?.notice && html`<${Banner}>${room.notice}</${Banner}>`}
      ${room ? html`<${thread.Thread} key=${`${agent.id}${name}`} room=${room}>${hello}</${thread.Thread}>`
        : html`<div class="log">${!name && hello}</div>`}
      <${Composer} agent=${agent} draftKey=${`${agent.id}.${name}`} blocked=${room?.blocked} isReadOnly=${isReadOnly}
        onSend=${send} onStop=${room?.openMessage() && !isReadOnly && (() => room.stop())} /></section>
      ${room && query.why && html`<${thread.WhyDrawer} id=${query.why} session=${session}
        onClose=${() => setQuery({ why: "" })} />`}</div></main>${overlay}`;
}

function Start() {
  const [session, setSession] = useState(null);
  const [failure, setFailure] = useState(null);
  useEffect(() => {
    let timer = 0;
    const load = () => get("api/session").then(setSession, (error) => {
      setFailure(error);
      timer = setTimeout(load, 2000);
    });
    load();
    return () => clearTimeout(timer);
  }, []);
  if (session) return html`<${Chat} session=${session} />`;
  return failure && html`<main class="main" id="main"><${Banner}>${failure.message} Trying again.</${Banner}></main>`;
}

startRouter((path) => path === "" || path.startsWith("c/"));
render(html`<${Start} />`, document.getElementById("app"));
