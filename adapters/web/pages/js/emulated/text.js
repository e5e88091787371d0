// A message's text as the platform shows it: Discord's Markdown, Telegram's formatted ranges, X's plain text.

import DOMPurify from "../../vendor/dompurify.js";
import { Marked } from "../../vendor/marked.js";
import { finishCode, finishLink, setDirections } from "../markdown.js";

const TAGS = ["a", "blockquote", "br", "code", "del", "em", "h2", "li", "ol", "p", "pre", "small", "strong", "u", "ul"];
const MARKUP = { ALLOWED_TAGS: TAGS, ALLOWED_ATTR: ["href", "start", "data-language", "data-spoiler"], RETURN_DOM_FRAGMENT: true };
const ESCAPES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
const LONG_WORD = /\S{2000}/; // no Markdown, and marked would need seconds for some of them
const LINKED = /https?:\/\/[^\s<>"]+[^\s<>".,;:!?)]|(?<![\w@])[@#]\w{2,}/g;
const escape = (text) => text.replace(/[&<>"]/g, (sign) => ESCAPES[sign]);
const isAbsent = () => undefined;

// Discord has no tables, pictures or rules, its headings have three levels, `__text__` is underlined, and a quotation
// ends with the line.
const discord = new Marked({
  gfm: true,
  breaks: true,
  tokenizer: {
    table: isAbsent, hr: isAbsent, lheading: isAbsent, html: isAbsent, tag: isAbsent, def: isAbsent, reflink: isAbsent,
    blockquote(source) {
      const match = /^(?:> [^\n]*(?:\n|$))+/.exec(source);
      if (!match) return undefined;
      const text = match[0].replace(/^> /gm, "").trimEnd();
      return { type: "blockquote", raw: match[0], text, tokens: this.lexer.blockTokens(text, []) };
    },
  },
  extensions: [
    inline("underline", /^__(?=\S)([^]*?\S)__(?!_)/, (text) => `<u>${text}</u>`, "__"),
    inline("spoiler", /^\|\|([^]+?)\|\|/, (text) => `<span-spoiler>${text}</span-spoiler>`, "||"),
    {
      name: "subtext",
      level: "block",
      start: (source) => source.match(/(?<=\n)-# /)?.index, // it ends the paragraph before it
      tokenizer(source) {
        const match = /^-# (.+)(?:\n|$)/.exec(source);
        return match ? { type: "subtext", raw: match[0], tokens: this.lexer.inlineTokens(match[1]) } : undefined;
      },
      renderer({ tokens }) {
        return `<p><small>${this.parser.parseInline(tokens)}</small></p>`;
      },
    },
  ],
  renderer: {
    html: ({ text }) => escape(text),
    image: ({ raw }) => escape(raw),
    heading({ tokens, depth, raw }) {
      return depth > 3 ? `<p>${escape(raw)}</p>` : `<h2>${this.parser.parseInline(tokens)}</h2>`;
    },
    checkbox: ({ checked }) => (checked ? "[x] " : "[ ] "),
    code: ({ text, lang = "" }) => `<pre data-language="${escape(lang.split(/\s/)[0])}"><code>${escape(text)}</code></pre>`,
  },
});

function inline(name, pattern, render, start) {
  return {
    name,
    level: "inline",
    start: (source) => source.indexOf(start),
    tokenizer(source) {
      const match = pattern.exec(source);
      return match ? { type: name, raw: match[0], tokens: this.lexer.inlineTokens(match[1]) } : undefined;
    },
    renderer({ tokens }) {
      return render(this.parser.parseInline(tokens));
    },
  };
}

/** Show a message's text in `box`, whose content belongs to this function. */
export function renderText(box, { text, spans }, dialect) {
  if (dialect === "discord" && !LONG_WORD.test(text)) box.replaceChildren(...discordNodes(text));
  else if (dialect === "spans") box.replaceChildren(...spanNodes(text, spans));
  else box.replaceChildren(make("p", linkedNodes(text)));
}

function make(tag, children = [], name = "") {
  const node = document.createElement(tag);
  node.append(...children);
  if (name) node.className = name;
  return node;
}

function discordNodes(text) {
  const marked = discord.parse(text).replaceAll("<span-spoiler>", '<u data-spoiler="1">').replaceAll("</span-spoiler>", "</u>");
  const fragment = DOMPurify.sanitize(marked, MARKUP);
  fragment.querySelectorAll("[data-spoiler]").forEach((node) => node.replaceWith(spoiler([...node.childNodes])));
  fragment.querySelectorAll("a").forEach(finishLink);
  fragment.querySelectorAll("pre").forEach(finishCode);
  setDirections(fragment);
  return [...fragment.childNodes].filter((node) => node.nodeType === Node.ELEMENT_NODE || node.textContent.trim())
    .map((node) => (node.nodeType === Node.TEXT_NODE ? make("p", [node]) : node));
}

/** A hidden text that a press shows. */
function spoiler(children) {
  const node = make("button", [make("span", children)], "spoiler");
  node.type = "button";
  node.setAttribute("aria-label", "Hidden text, press to show it");
  node.addEventListener("click", () => node.replaceWith(...node.firstChild.childNodes), { once: true });
  return node;
}

// Addresses are links; names and topics stand out.
function linkedNodes(text) {
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(LINKED)) {
    nodes.push(text.slice(end, match.index), match[0].startsWith("http") ? anchor(match[0], [match[0]]) : make("b", [match[0]], "named"));
    end = match.index + match[0].length;
  }
  return [...nodes, text.slice(end)];
}

function anchor(href, children) {
  const link = make("a", children);
  link.setAttribute("href", href);
  const box = make("span", [link]);
  finishLink(link);
  return box;
}

const ELEMENTS = {
  bold: "strong", italic: "em", underline: "u", strikethrough: "del", code: "code", mention: "b", text_mention: "b",
  bot_command: "b", hashtag: "b", cashtag: "b", blockquote: "blockquote", expandable_blockquote: "blockquote",
};

// Ranges as [kind, start, length, detail], nested or one after the other; outer ones come first.
function spanNodes(text, spans) {
  const sorted = [...spans].sort((a, b) => a[1] - b[1] || b[2] - a[2]);
  const build = (start, end, at) => {
    const nodes = [];
    let position = start;
    for (let index = at; index < sorted.length; index += 1) {
      const [kind, from, length, detail] = sorted[index];
      if (from >= end) break;
      if (from < position) continue; // a part of a range that was drawn
      const to = Math.min(from + length, end);
      nodes.push(text.slice(position, from), spanNode(kind, text.slice(from, to), detail, build(from, to, index + 1)));
      position = to;
    }
    return [...nodes, text.slice(position, end)];
  };
  return blocksOf(build(0, text.length, 0));
}

function spanNode(kind, text, detail, children) {
  if (kind === "url") return anchor(/^[a-z]+:/i.test(text) ? text : `https://${text}`, children);
  if (kind === "text_link") return anchor(detail, children);
  if (kind === "email") return anchor(`mailto:${text}`, children);
  if (kind === "spoiler") return spoiler(children);
  if (kind === "pre") {
    const pre = make("pre", [make("code", [text])]);
    pre.dataset.language = detail;
    const box = make("div", [pre]);
    finishCode(pre);
    return box;
  }
  const tag = ELEMENTS[kind];
  return tag ? make(tag, children, tag === "b" ? "named" : "") : make("span", children);
}

// Text and inline elements in paragraphs; code blocks and quotes between them.
function blocksOf(nodes) {
  const blocks = [];
  let inlineNodes = [];
  const flush = () => {
    const hasText = inlineNodes.some((node) => (node.textContent ?? node).trim());
    if (hasText) blocks.push(make("p", inlineNodes.map((node) => (typeof node === "string" ? node.replace(/^\n+|\n+$/g, "\n") : node)), "plain"));
    inlineNodes = [];
  };
  for (const node of nodes) {
    if (node instanceof HTMLElement && (node.localName === "div" || node.localName === "blockquote")) {
      flush();
      blocks.push(node);
    } else inlineNodes.push(node);
  }
  flush();
  return blocks;
}
