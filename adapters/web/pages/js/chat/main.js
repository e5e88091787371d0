// Chat: conversations at the side and the thread of one.

import { get } from "../api.js";
import { html, randomId, readStored, render, t, useEffect, useReducer, useRef, useState, writeStored } from "../lib.js";
import { Banner, Menu, toast } from "../overlay.js";
import { navigate, setQuery, startRouter, useRoute } from "../router.js";
import { CharacterSwitch, OfflineBanner, Sidebar, useSideMenu } from "../shell.js";
import { usePalette, useShortcuts } from "../shortcuts.js";
import { Button, Face, IconButton, Search } from "../ui.js";
import { Composer } from "./composer.js";
import { ConversationList, isId, roomKey, useConversations } from "./conversations.js";

const PAGES = [{ title: "Chat", path: "", icon: "chat" }, { title: "Console", path: "console", icon: "pulse" }];

/** The screen of a conversation without messages: who the character is, and how to begin. */
function Hello({ agent, session, thread, onSend }) {
  const suggestions = (agent.suggestions ?? []).slice(0, 4);
  return html`<div class="hello"><${Face} name=${agent.name} picture=${agent.face} size="l" /><h2>${agent.name}</h2>
    ${agent.bio[0] && html`<p class="q2">${agent.bio[0]}</p>`}
    ${thread && html`<${thread.Greeting} agent=${agent} session=${session} />`}
    ${onSend && suggestions.length > 0 && html`<div class="starts">${suggestions.map((text) => html`<button type="button" key=${text}
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
  useEffect(() => {
    let timer = 0;
    // It is loaded soon after the page, so that it is there without a connection. A browser remembers a failed address.
    const load = (attempt) => {
      timer = 0;
      import(attempt ? `./thread.js?attempt=${attempt}` : "./thread.js").then(setModule, () => {
        timer = setTimeout(load, 2000, attempt + 1);
      });
    };
    if (!module && name) load(0);
    else if (!module) timer = setTimeout(load, 500, 0);
    return () => clearTimeout(timer);
  }, [module, !name]);
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
  const isOpen = useRef(false); // leaving the field sends "blur" once more when it is removed
  const isByKey = useRef(false);
  const isEditing = value !== null;
  useEffect(() => {
    if (isEditing) field.current.select();
    else if (isByKey.current) document.getElementById("rename")?.focus();
  }, [isEditing]);
  const begin = () => {
    isOpen.current = true;
    setValue(text);
  };
  if (!isEditing) {
    return html`<h1 class="cut" title=${text}>${text}</h1>${onRename && html`<${IconButton} icon="edit" label="Rename"
      id="rename" onClick=${begin} />`}`;
  }
  const close = (changed, hasKey) => {
    if (!isOpen.current) return;
    isOpen.current = false;
    isByKey.current = hasKey;
    if (changed && changed !== text) onRename(changed);
    setValue(null);
  };
  const finish = (event) => {
    event.preventDefault();
    close(value.trim(), event.type === "submit");
  };
  const onKeyDown = (event) => {
    if (event.key !== "Escape") return;
    event.preventDefault();
    close("", true);
  };
  return html`<h1 class="vh">${text}</h1><form class="grow" onSubmit=${finish}><input class="input" ref=${field} maxlength="200"
    aria-label="Title of the conversation" value=${value} onInput=${(event) => setValue(event.target.value)}
    onBlur=${finish} onKeyDown=${onKeyDown} /></form>`;
}

/**
 * Return which character and which conversation the address names: `{ agent, key }`. The key is the id of a conversation
 * or, of one that the server does not know yet, the name of its room; `names` has the character and room of known ones.
 */
function readPlace(agents, { segments, query }, names, chosenId) {
  const key = segments[0] === "c" ? (segments[1] ?? "") : "";
  const wanted = names.get(key)?.agentId ?? query.agent ?? chosenId;
  return { key, agent: agents.find((item) => item.id === wanted) ?? agents[0] };
}

function Chat({ session }) {
  const route = useRoute();
  const { agents } = session;
  const [chosenId, setChosenId] = useState(readStored("agent", agents[0].id));
  const names = useRef(new Map()).current;
  const { key, agent } = readPlace(agents, route, names, chosenId);
  const [wanted, setWanted] = useState("");
  const list = useConversations(agent.id, wanted, key, (id) => id === key && leave(t("The conversation was deleted")));
  const { open } = list;
  if (open?.room && open.id && !names.has(key)) names.set(key, { room: open.room, agentId: open.agent_id });
  const name = names.get(key)?.room ?? open?.room ?? "";
  const [thread, room] = useRoom(agents.find((item) => item.id === names.get(key)?.agentId) ?? agent, name, session);
  const [isMenu, openMenu] = useSideMenu();
  const unsent = useRef(null);
  const isReadOnly = session.role === "read_only";
  const title = open?.title || (isId(key) ? t("Conversation") : key) || t("New conversation");
  const { search, help, overlay } = usePalette(PAGES, session.role);
  useShortcuts({ search, help });
  useEffect(() => void (document.title = `${title} · ${agent.name} · Greenroom`));
  useEffect(() => {
    if (room && unsent.current) room.say(...unsent.current);
    if (room) unsent.current = null;
  }, [room]);
  const stored = key && !isId(key) ? list.find(key) : null; // a new conversation has an id once something is stored in it
  useEffect(() => {
    if (!stored) return;
    names.set(stored.id, { room: name, agentId: agent.id });
    navigate(`c/${stored.id}`, { query: { why: route.query.why }, replace: true });
  }, [stored?.id]);
  const send = (text, attachments = []) => {
    if (room) return room.say(text, attachments);
    const begun = `c-${randomId()}`;
    list.begin(begun, text || attachments[0].title);
    unsent.current = [text, attachments];
    return navigate(`c/${begun}`, { query: { agent: agents.length > 1 ? agent.id : "" } });
  };
  const leave = (text) => {
    navigate("", { replace: true });
    toast(text);
  };
  const choose = (id) => {
    writeStored("agent", id);
    setChosenId(id);
    navigate("", { query: { agent: id } });
  };
  const closeMenu = () => isMenu && openMenu(false);
  const erase = async () => {
    const { confirm } = await import("../dialogs.js");
    const text = t("Its messages are deleted, and what {name} learnt from them alone. An answer that is being written is cancelled.", agent);
    if (!(await confirm({ title: t("Delete “{title}”?", { title }), text, action: t("Delete") }))) return;
    await list.erase(open.id).then(() => {
      room?.forget();
      writeStored(`draft.${agent.id}.${roomKey(name)}`, undefined);
      leave(t("Deleted"));
    }, (error) => toast(error.message));
  };
  const canChange = open?.id && !open.isMissing && !isReadOnly;
  const rename = (text) => list.rename(open.id, text).catch((error) => toast(error.message));
  const top = html`<${Button} kind="primary" icon="plus" to="" onClick=${closeMenu}>New conversation</${Button}>
    <${Search} label="Search conversations" value=${wanted} onSearch=${setWanted} />`;
  const hello = html`<${Hello} ...${{ agent, session, thread }} onSend=${isReadOnly ? null : send} />`;
  return html`<${Sidebar} part="chat" session=${session} home="" top=${top} onClose=${() => openMenu(false)}>
      <${ConversationList} list=${list} current=${key} onOpen=${closeMenu} onClear=${() => setWanted("")} /></${Sidebar}>
    <main class="main" id="main" inert=${isMenu}><div class=${route.query.why ? "chat open" : "chat"}><section class="thread" aria-label="Conversation">
      <header class="bar"><button type="button" class="btn bare icon only-narrow" id="menu" title="Conversations"
          aria-label="Conversations" aria-expanded=${String(isMenu)} aria-controls="side" onClick=${() => openMenu(true)}>
          <svg class="ico" viewBox="0 0 16 16" aria-hidden="true"><path d="M2.5 4.5h11M2.5 8h11M2.5 11.5h11" /></svg></button>
        <${Title} key=${name} text=${title} onRename=${canChange && rename} />
        <span class="grow"></span><${CharacterSwitch} agents=${agents} value=${agent.id} onChange=${choose} kind="bare" />
        ${canChange && html`<${Menu} label="More" icon="dots" items=${[
          { text: t("Delete the conversation"), icon: "trash", isDanger: true, onChoose: erase }]} />`}</header>
      <${OfflineBanner} text="No connection to the bot. What you write is kept here and sent when the connection is back." />
      ${room?.notice && html`<${Banner}>${room.notice}</${Banner}>`}
      ${open?.isMissing ? html`<${Missing} />`
        : room ? html`<${thread.Thread} key=${`${agent.id}${name}`} room=${room}>${hello}</${thread.Thread}>`
        : html`<div class="log">${!key && hello}</div>`}
      ${!open?.isMissing && html`<${Composer} agent=${agent} draftKey=${`${agent.id}.${roomKey(name)}`} blocked=${room?.blocked}
        isReadOnly=${isReadOnly} limits=${session.files} onSend=${send} onStop=${room?.openMessage() && !isReadOnly && (() => room.stop())} />`}</section>
      ${room && route.query.why && html`<${thread.WhyDrawer} id=${route.query.why} session=${session}
        onClose=${() => setQuery({ why: "" })} />`}</div></main>${overlay}`;
}

/** What an address shows that leads to no conversation, or to that of somebody else. */
function Missing() {
  return html`<div class="log"><div class="hello" id="say" tabindex="-1"><h2>There is no such conversation</h2>
    <p class="q2">It was deleted, or it belongs to another token.</p><${Button} to="">New conversation</${Button}></div></div>`;
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
  return failure && html`<main class="main" id="main"><${Banner}>${failure.message} ${t("Trying again.")}</${Banner}></main>`;
}

startRouter((path) => path === "" || path.startsWith("c/"));
render(html`<${Start} />`, document.getElementById("app"));
