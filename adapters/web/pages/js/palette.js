// The command palette (Ctrl+K) and the list of shortcuts ("?"), loaded when first opened.

import { get } from "./api.js";
import { Dialog } from "./dialogs.js";
import { html, readStored, t, useEffect, useRef, useState, writeStored } from "./lib.js";
import { link, navigate } from "./router.js";
import { Icon } from "./ui.js";

const ICONS = { page: "lines", room: "rooms", person: "people", message: "chat", receipt: "check", conversation: "chat" };
const TO = {
  room: ({ id }) => `console/rooms/${id}`,
  person: ({ id }) => `console/people/${id}`,
  message: ({ id, receipt_id: receipt }) => `console/receipts/${receipt ?? id}`,
  receipt: ({ id }) => `console/receipts/${id}`,
  conversation: ({ id }) => `c/${id}`,
};
const KEYS = [
  ["Ctrl K", "Search everything"], ["g, then o r d c p k t", "Overview, Rooms, Deliveries, Costs, People, Knowledge, Tasks"],
  ["j, k", "Next and previous row"], ["Enter", "Open"], ["w", "Why: open the receipt"], ["[ and ]", "Older and newer receipt"],
  ["Alt ↑, Alt ↓", "Previous and next message"], ["Esc", "Close"], ["?", "This list"],
];

const findAll = async (q, options) => (await get("api/search", { q }, options)).results.filter((hit) => TO[hit.kind]);

async function findConversations(q, options) { // all that a token for chats may read
  const { conversations } = await get("api/conversations", { q, limit: 5 }, options);
  return conversations.map((found) => ({ ...found, kind: "conversation", where: "Conversation" }));
}

/** Search pages, and on the server rooms and people by name, messages by text, and all by id. `pages`: `[{ title, path, icon }]`. */
export function Palette({ pages, role, onClose }) {
  const [text, setText] = useState("");
  const [found, setFound] = useState([]);
  const [at, setAt] = useState(0);
  const list = useRef(null);
  const wanted = text.trim().toLowerCase();
  useEffect(() => {
    setAt(0);
    if (wanted.length < 2) return void setFound([]);
    const abort = new AbortController();
    const timer = setTimeout(async () => {
      try {
        setFound(await (role === "chat" ? findConversations : findAll)(wanted, { signal: abort.signal }));
      } catch (error) {
        if (error.name !== "AbortError") setFound([]);
      }
    }, 150);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [wanted]);
  const hits = [
    ...pages.filter((page) => page.title.toLowerCase().includes(wanted))
      .map((page) => ({ key: page.path, title: page.title, where: "Page", icon: page.icon, to: page.path })),
    ...found.map((hit) => ({ key: hit.kind + hit.id, title: hit.title, where: hit.where || hit.kind, icon: ICONS[hit.kind],
      to: TO[hit.kind](hit) })),
  ];
  const choose = (hit) => {
    onClose();
    if (hit) navigate(hit.to);
  };
  const onKeyDown = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && hits.length) {
      event.preventDefault();
      const next = (at + step + hits.length) % hits.length;
      setAt(next);
      list.current.children[next]?.scrollIntoView({ block: "nearest" });
    }
    if (event.key === "Enter") choose(hits[at]);
  };
  return html`<${Dialog} title="Search everything" class="palette" onClose=${onClose}>
    <input class="input" type="search" autofocus role="combobox" aria-expanded="true" aria-controls="palette-list"
      aria-activedescendant=${hits.length ? `palette-${at}` : undefined} aria-label="Search a page, a room, a person, a message or an id"
      placeholder="A page, a room, a person, words of a message" value=${text} onInput=${(event) => setText(event.target.value)}
      onKeyDown=${onKeyDown} />
    <ul id="palette-list" role="listbox" aria-label="Found" ref=${list}>${hits.map((hit, index) => html`
      <li key=${hit.key} id=${`palette-${index}`} role="option" aria-selected=${String(index === at)}
        onClick=${() => choose(hit)} class=${index === at ? "on" : ""}><${Icon} name=${hit.icon} />
        <span class="grow cut">${hit.title}</span><span class="q">${hit.where}</span></li>`)}</ul>
    <p class="q pad" role="status">${hits.length ? "" : t("Nothing found")}</p></${Dialog}>`;
}

/** The list of shortcuts, and the switch that turns single letters off. */
export function ShortcutList({ onClose }) {
  const [isOn, setOn] = useState(readStored("shortcuts", true));
  const change = (event) => {
    setOn(event.target.checked);
    writeStored("shortcuts", event.target.checked);
  };
  return html`<${Dialog} title="Shortcuts" onClose=${onClose}><div class="stack"><h2>Shortcuts</h2>
    <dl class="kv keys">${KEYS.map(([key, text]) => [html`<dt key=${key}><kbd>${key}</kbd></dt>`, html`<dd>${t(text)}</dd>`])}</dl>
    <label class="row"><input type="checkbox" class="pick" checked=${isOn} onChange=${change} />
      Single letters work where no field has the focus</label>
    <div class="row end"><button type="button" class="btn" autofocus onClick=${onClose}>Close</button></div></div>
  </${Dialog}>`;
}
