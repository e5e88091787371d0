// A thread of messages, as Chat, the page of an emulated platform and a room of the Console show one: where it is scrolled,
// in which order messages stand, and how their texts and files are drawn.

import { formatSize } from "./format.js";
import { html, language, t, useEffect, useLayoutEffect, useRef, useState } from "./lib.js";
import { Button, Icon } from "./ui.js";

const NEAR = 80;
const NEAR_TOP = 600;
const DAY = new Intl.DateTimeFormat(language, { weekday: "long", day: "numeric", month: "long" });
const NO_HISTORY = { hasMore: false };
const keyOf = (message) => message.client_id ?? message.id;

/** Return messages in the order in which they are shown: each reply of the agent under the message that it answers. */
export function arrange(messages) {
  const replies = new Map(messages.filter(({ author }) => !author.is_agent).map(({ id }) => [id, []]));
  const questionOf = (message) => (message.author.is_agent ? replies.get(message.in_reply_to) : undefined);
  messages.forEach((message) => questionOf(message)?.push(message));
  return messages.filter((message) => !questionOf(message)).flatMap((message) => [message, ...(replies.get(message.id) ?? [])]);
}

function dayName(at) {
  const days = Math.round((new Date().setHours(0, 0, 0, 0) - new Date(at).setHours(0, 0, 0, 0)) / 86_400_000);
  return [t("Today"), t("Yesterday")][days] ?? DAY.format(new Date(at));
}

/** Return what `draw(message, isUnder)` makes of arranged messages, under the names of their days. */
export function drawByDay(messages, draw) {
  let day = "";
  let question = "";
  return messages.flatMap((message) => {
    const isUnder = message.author.is_agent && !!question && message.in_reply_to === question;
    if (!message.author.is_agent) question = message.id;
    const name = isUnder ? day : dayName(message.created_at);
    if (name === day) return [draw(message, isUnder)];
    day = name;
    return [html`<li key=${`${name} ${keyOf(message)}`} class="day">${name}</li>`, draw(message, isUnder)];
  });
}

/**
 * Keep a thread at its end until a person scrolls up, and what is read in its place from then on. Return `{ box, missed,
 * toEnd }`: the scrolling element's ref, how many messages came meanwhile, and the way down. Only what a person does ends
 * the following: content may grow at any time, also between a scroll and the event that tells it.
 */
function useScrolling(messages, history, isOwn) {
  const box = useRef(null);
  const state = useRef({ isFollowing: true, top: 0, keys: new Set(), messages: null, anchor: null }).current;
  const [missed, setMissed] = useState(0);
  const follow = () => {
    box.current.scrollTop = box.current.scrollHeight;
    Object.assign(state, { isFollowing: true, top: box.current.scrollTop });
    setMissed(0);
  };
  if (messages !== state.messages && !state.isFollowing) state.anchor = findAnchor(box.current); // the old ones are drawn still
  const loadIfNear = useRef(null);
  loadIfNear.current = () => {
    const isWanted = history.hasMore && !history.isManual && !history.isLoading && !history.error && state.keys.size > 0;
    if (isWanted && box.current?.scrollTop < NEAR_TOP) history.load();
  };
  useEffect(() => {
    const node = box.current;
    const onScroll = () => {
      const left = node.scrollHeight - node.scrollTop - node.clientHeight;
      if (node.scrollTop < state.top - 1) state.isFollowing = left < 2;
      else if (node.scrollTop > state.top && left < NEAR) state.isFollowing = true;
      state.top = node.scrollTop;
      if (state.isFollowing) setMissed(0);
      loadIfNear.current();
    };
    // Pictures, highlighted code and the growing composer change heights without a message.
    const observer = new ResizeObserver(() => state.isFollowing && follow());
    const observe = () => {
      observer.disconnect();
      [node, ...node.children].forEach((element) => observer.observe(element));
    };
    const content = new MutationObserver(observe);
    content.observe(node, { childList: true });
    observe();
    node.addEventListener("scroll", onScroll, { passive: true });
    return () => {
      observer.disconnect();
      content.disconnect();
      node.removeEventListener("scroll", onScroll);
    };
  }, []);
  useLayoutEffect(() => {
    if (messages !== state.messages) {
      const first = messages.findIndex((message) => state.keys.has(keyOf(message)));
      const added = messages.slice(Math.max(first, 0)).filter((message) => !state.keys.has(keyOf(message)));
      if (added.some(isOwn)) state.isFollowing = true;
      if (!state.isFollowing && added.length) setMissed((old) => old + added.length);
      if (!state.isFollowing && state.anchor?.node.isConnected) {
        box.current.scrollTop += state.anchor.node.getBoundingClientRect().top - state.anchor.top;
      }
      Object.assign(state, { messages, keys: new Set(messages.map(keyOf)), anchor: null });
    }
    if (state.isFollowing) follow();
    else state.top = box.current.scrollTop;
  });
  useEffect(() => void loadIfNear.current(), [messages.length, history.hasMore]); // the box may not be full
  return { box, missed, toEnd: follow };
}

/** Return the first message in sight, and where it stands. */
function findAnchor(box) {
  const top = box?.getBoundingClientRect().top;
  const node = [...(box?.querySelectorAll(".msg[id]") ?? [])].find((item) => item.getBoundingClientRect().bottom > top);
  return node ? { node, top: node.getBoundingClientRect().top } : null;
}

/** Go from message to message with Alt and the arrow keys, and from the last one to the field; not while a text is edited. */
function useArrows(box) {
  useEffect(() => {
    const onKey = (event) => {
      const step = event.altKey && !event.ctrlKey && !event.metaKey && { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step || event.target.value || document.querySelector("dialog[open]")) return;
      event.preventDefault();
      const nodes = [...box.current.querySelectorAll(".msg[id]")];
      const at = nodes.indexOf(document.activeElement.closest(".msg"));
      const next = at < 0 ? (step < 0 ? nodes.at(-1) : null) : nodes[at + step];
      if (!next && step > 0) return void document.getElementById("say")?.focus();
      next?.focus({ preventScroll: true });
      next?.scrollIntoView({ block: "nearest" });
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
}

/** What stands above the first message while there are older ones; they are loaded by scrolling up as well. */
function Older({ history }) {
  if (!history.hasMore) return null;
  const { error, isLoading } = history;
  return html`<div class="older" aria-busy=${String(!!isLoading)}>${error && html`<span class="bad" role="alert">${error.message}</span>`}
    <${Button} kind="bare" icon="up" onClick=${() => history.load()}>${t(isLoading ? "Loading older messages" : "Show older messages")}</${Button}></div>`;
}

/**
 * The scrolling thread: it opens at the newest message. `messages` are a new array whenever they change, `children` are
 * their lines below `start`, or `empty` is shown instead. `history` is `{ hasMore, isLoading, error, load }` of older ones, with
 * `isManual` if only the button loads them; a new message of which `isOwn(message)` is true is scrolled to.
 */
export function Log({ label, messages, history = NO_HISTORY, isOwn = () => false, empty, start, children }) {
  const { box, missed, toEnd } = useScrolling(messages, history, isOwn);
  useArrows(box);
  return html`<div class="log" ref=${box} tabindex="0" role="log" aria-live="off" aria-label=${label}>
      ${empty || html`<${Older} history=${history} />${start}<ol aria-label="Messages">${children}</ol>`}</div>
    ${missed > 0 && html`<button type="button" class="btn latest" onClick=${toEnd}
      >${t(missed === 1 ? "1 new message ↓" : "{missed} new messages ↓", { missed })}</button>`}`;
}

/** Return a module that is loaded when it is first needed, for `useLazy`. */
export const lazy = (load) => ({ module: null, load });

/** Return a lazy module, null until it is there. */
function useLazy(part) {
  const [module, setModule] = useState(part.module);
  useEffect(() => {
    let isShown = true;
    const show = (loaded) => {
      part.module = loaded;
      if (isShown) setModule(loaded);
    };
    if (part.module) show(part.module); // loaded for another text after this one was drawn
    else part.load().then(show, () => {});
    return () => void (isShown = false);
  }, []);
  return module;
}

const markdown = lazy(() => import("./markdown.js"));
const drawMarkdown = (module, box, text, isStreaming) => module.renderMarkdown(box, text, { isStreaming });

/**
 * A text as Markdown, or as `draw(module, box, text, detail)` with a lazy module; plain until that is there. It is drawn
 * anew when the text or `detail` changes: with Markdown, whether it is being written.
 */
export function Markdown({ text, detail = false, part = markdown, draw = drawMarkdown }) {
  const box = useRef(null);
  const module = useLazy(part);
  useLayoutEffect(() => {
    if (module) draw(module, box.current, text, detail);
  }, [text, detail, module]);
  return module ? html`<div key="md" class="body md" dir="auto" ref=${box}></div>`
    : html`<div key="plain" class="body plain" dir="auto">${text}</div>`;
}

/** The files of a message: pictures and recordings in place, others as a link. */
export function Files({ files }) {
  const module = useLazy(markdown);
  if (!module || !files?.length) return null;
  return html`<div class="files">${files.map((file, index) => html`<${File} key=${index} file=${file} own=${file.isOfCommand
    ? file.url : module.ownFile(file.url)} />`)}</div>`;
}

function File({ file, own }) {
  const [isBroken, setBroken] = useState(false);
  const name = file.title || file.description || file.url || file.kind.toLowerCase();
  if (own && file.kind === "IMAGE" && !isBroken) {
    return html`<a href=${own} target="_blank"><img class="pic" src=${own} alt=${file.description || name}
      onError=${() => setBroken(true)} /></a>`;
  }
  if (own && file.kind === "AUDIO") {
    return html`<div class="sound"><audio class="player" src=${own} controls aria-label=${name}></audio>
      ${file.text && html`<p class="q2" dir="auto">${file.text}</p>`}${file.problem && html`<p class="q">${file.problem}</p>`}</div>`;
  }
  if (own && file.kind === "VIDEO") return html`<video class="pic" src=${own} controls aria-label=${name}></video>`;
  const label = html`<${Icon} name="file" /><span>${name}${(file.problem || file.bytes) && html`<small>${
    file.bytes ? formatSize(file.bytes) : ""}${file.bytes && file.problem ? ", " : ""}${file.problem}</small>`}</span>`;
  const isWeb = /^https?:/.test(file.url);
  return own || isWeb
    ? html`<a class="file" href=${own ?? file.url} download=${file.isOfCommand && name} target="_blank" rel="noopener noreferrer nofollow">${label}</a>`
    : html`<span class="file">${label}</span>`;
}

/** The message that another one answers, in one line. */
export function Replied({ by, text }) {
  return html`<p class="replied q cut"><${Icon} name="reply" size="s" /> ${by}: ${text}</p>`;
}
