// The texts of a page that is not in English, by their English wording; loaded before anything is drawn.

import { html as build } from "../vendor/preact-htm.js";

const answer = await fetch(new URL(`../texts/${document.documentElement.lang}.json`, import.meta.url));
export const texts = await answer.json();
const STATIC_TEXT = /(^|>\s*|\s(?:alt|aria-label|hint|label|placeholder|small|text|title)=")([^<>"=]*[a-z][^<>"=]*?)(?="|\s*<|\s*$)/g;
const translated = new Map();

/** Build nodes as htm does; what a template itself contains is translated, what is put into it is not. */
export function html(parts, ...values) {
  if (!translated.has(parts)) {
    translated.set(parts, parts.map((part, index) => part.replace(STATIC_TEXT, (whole, before, text) => (
      before || !index ? before + (texts[text.replace(/\s+/g, " ")] ?? text) : whole))));
  }
  return build(translated.get(parts), ...values);
}
