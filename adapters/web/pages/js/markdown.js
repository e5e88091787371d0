// Markdown as DOM nodes: marked parses it, DOMPurify sanitises what comes out. Loaded with the first reply.
// Finished blocks of a streamed reply are rendered once and stay; the last, unfinished one only appends text, so that
// a selection survives.

import DOMPurify from "../vendor/dompurify.js";
import { Marked } from "../vendor/marked.js";
import { address, BASE } from "./api.js";
import { t } from "./lib.js";
import { copyText } from "./overlay.js";

const TAGS = ["a", "b", "blockquote", "br", "code", "del", "em", "h2", "hr", "i", "img", "li", "ol", "p", "pre", "s",
  "strong", "sub", "sup", "table", "tbody", "td", "th", "thead", "tr", "ul"];
const MARKUP = { ALLOWED_TAGS: TAGS, ALLOWED_ATTR: ["href", "src", "alt", "title", "align", "start", "data-language"],
  ALLOW_DATA_ATTR: false, ALLOW_ARIA_ATTR: false, RETURN_DOM_FRAGMENT: true };
const COLOURS = { ALLOWED_TAGS: ["span"], ALLOWED_ATTR: ["class"], ALLOW_DATA_ATTR: false, RETURN_DOM_FRAGMENT: true };
const OWN_FILE = /^\/?api\/files\/[\w-]+$/;
// Scripts that are written from right to left: Hebrew, Arabic, Syriac, Thaana, NKo, and their presentation forms.
const FIRST_LETTER = /([\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc])|\p{L}/u;
const ESCAPES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
const LONG_WORD = /\S{2000}/; // no Markdown, and marked would need seconds for some of them
const FENCES = /^(```|~~~)[^]*?^\1/gm;
const escape = (text) => text.replace(/[&<>"]/g, (sign) => ESCAPES[sign]);

const marked = new Marked({
  gfm: true,
  breaks: true,
  renderer: {
    html: ({ text }) => escape(text), // no raw HTML: it is shown as it was written
    heading({ tokens }) {
      return `<h2>${this.parser.parseInline(tokens)}</h2>`; // one level, whatever a model writes: the outline stays whole
    },
    checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
    code: ({ text, lang = "" }) => `<pre data-language="${escape(lang.split(/\s/)[0])}"><code>${escape(text)}</code></pre>`,
  },
});

/**
 * Show a text in `box`, whose content belongs to this function. Call it again with a longer text while a reply is
 * streamed; only what changed is drawn anew.
 */
export function renderMarkdown(box, text, { isStreaming = false } = {}) {
  const tokens = LONG_WORD.test(text.replace(FENCES, "")) ? plainTokens(text) : marked.lexer(text);
  const blocks = tokens.filter((token) => token.type !== "space");
  const shown = box.blocks ?? [];
  const live = isStreaming ? blocks.pop() : null;
  let same = 0;
  while (same < blocks.length && shown[same]?.raw === blocks[same].raw) same += 1;
  shown.splice(same).forEach((block) => block.nodes.forEach((node) => node.remove()));
  for (const token of blocks.slice(same)) {
    const nodes = renderBlock(token, tokens.links);
    box.append(...nodes);
    shown.push({ raw: token.raw, nodes });
  }
  box.blocks = shown;
  showLive(box, live?.raw.trimEnd() ?? "");
}

function plainTokens(text) {
  return Object.assign([{ type: "text", raw: text, text: escape(text), escaped: true }], { links: {} });
}

// The unfinished block is one text node that grows.
function showLive(box, text) {
  const node = box.live;
  if (node && text.startsWith(node.data)) {
    node.appendData(text.slice(node.data.length));
    if (text) box.append(node.parentNode);
  } else if (node) {
    node.data = text;
  } else if (text) {
    box.live = document.createTextNode(text);
    const paragraph = document.createElement("p");
    paragraph.className = "live";
    paragraph.append(box.live);
    box.append(paragraph);
  }
  if (!text && box.live) {
    box.live.parentNode.remove();
    box.live = null;
  }
}

function renderBlock(token, links) {
  const content = marked.parser(Object.assign([token], { links }));
  const fragment = DOMPurify.sanitize(content, MARKUP);
  fragment.querySelectorAll("img").forEach(finishPicture);
  fragment.querySelectorAll("a").forEach(finishLink);
  fragment.querySelectorAll("pre").forEach(finishCode);
  fragment.querySelectorAll("table").forEach(finishTable);
  setDirections(fragment);
  return [...fragment.childNodes].filter((node) => node.nodeType === Node.ELEMENT_NODE || node.textContent.trim())
    .map((node) => (node.nodeType === Node.TEXT_NODE ? make("p", "", node.textContent) : node));
}

function make(tag, name = "", text = "") {
  const node = document.createElement(tag);
  if (name) node.className = name;
  node.textContent = text;
  return node;
}

// Each block has the direction of its first word; code, which is always from left to right, does not count.
export function setDirections(fragment) {
  for (const block of fragment.children) {
    const words = block.cloneNode(true);
    words.querySelectorAll("code, .codebox > div").forEach((code) => code.remove());
    const letter = FIRST_LETTER.exec(words.textContent);
    if (letter) block.classList.add(letter[1] ? "rtl" : "ltr");
  }
}

// Pictures only from this server; another address becomes a link.
function finishPicture(picture) {
  const source = picture.getAttribute("src") ?? "";
  if (OWN_FILE.test(source)) {
    picture.src = address(source).href;
    picture.className = "pic";
    picture.alt ||= t("Picture");
    return;
  }
  const name = picture.alt || source;
  if (picture.closest("a")) return void picture.replaceWith(name);
  const link = make("a", "", name);
  link.setAttribute("href", source);
  picture.replaceWith(link); // the links come next
}

// Links show their host and open in a new tab; anything but a web or mail address is text.
export function finishLink(link) {
  let url;
  try {
    url = new URL(link.getAttribute("href"));
  } catch {
    url = null;
  }
  if (!url || !["http:", "https:", "mailto:"].includes(url.protocol)) return void link.replaceWith(...link.childNodes);
  link.href = url.href;
  link.rel = "noopener noreferrer nofollow";
  link.target = "_blank";
  if (url.host && !link.textContent.includes(url.host)) link.after(make("span", "q host", ` (${url.host})`));
}

function finishTable(table) {
  const box = make("div", "tw");
  Object.assign(box, { tabIndex: 0, role: "region", ariaLabel: t("Table") });
  table.replaceWith(box);
  box.append(table);
  table.querySelectorAll("[align]").forEach((cell) => {
    if (cell.getAttribute("align") === "right") cell.className = "num";
    cell.removeAttribute("align");
  });
  table.querySelectorAll("th").forEach((cell) => {
    cell.scope = "col";
    if (!cell.textContent.trim()) cell.replaceWith(document.createElement("td"));
  });
}

export function finishCode(pre) {
  const language = pre.dataset.language.slice(0, 20);
  delete pre.dataset.language;
  const name = language ? t("Code, {language}", { language }) : t("Code");
  const box = make("div", "codebox");
  const head = make("div");
  const copy = make("button", "btn bare", t("Copy"));
  const code = pre.querySelector("code");
  copy.type = "button";
  copy.setAttribute("aria-label", `${t("Copy")}: ${name}`);
  copy.addEventListener("click", () => copyText(code.textContent));
  head.append(make("span", "", language || t("text")), copy);
  Object.assign(pre, { tabIndex: 0, role: "region", ariaLabel: name });
  pre.replaceWith(box);
  box.append(head, pre);
  highlight(code, language);
}

async function highlight(code, language) {
  if (!language) return;
  const { default: highlighter } = await import("../vendor/highlight.js");
  if (!highlighter.getLanguage(language)) return;
  const { value } = highlighter.highlight(code.textContent, { language, ignoreIllegals: true });
  code.replaceChildren(DOMPurify.sanitize(value, COLOURS));
}

/** Return the address of a file of this server, or null for any other address. */
export function ownFile(url) {
  const path = url.startsWith(BASE.pathname) ? url.slice(BASE.pathname.length) : url;
  return OWN_FILE.test(path) ? address(path).href : null;
}
