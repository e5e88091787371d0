// What lies shortly above the page and is needed at once: toast, banner, menu.

import { classes, html, t, useEffect, useRef, useState } from "./lib.js";
import { Icon } from "./ui.js";

/** Show a sentence for 2.5 seconds. Never the only place of an error. */
export function toast(text) {
  let box = document.getElementById("toast");
  if (!box) {
    box = Object.assign(document.createElement("div"), { id: "toast" });
    box.setAttribute("role", "status");
    document.body.append(box);
  }
  const node = Object.assign(document.createElement("div"), { className: "toast", textContent: text });
  box.replaceChildren(node);
  setTimeout(() => node.remove(), 2500);
}

/** Copy a text and say so. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast(t("Copied"));
  } catch {
    toast(t("The browser does not allow copying here"));
  }
}

/** A line below the page's bar: offline, read-only, stopping. */
export function Banner({ icon = "warn", children, actions }) {
  return html`<div class="banner" role="status"><${Icon} name=${icon} /><span class="grow">${children}</span>${actions}</div>`;
}

/** Return whether a media query holds, and draw anew when that changes. */
export function useMedia(query) {
  const [isTrue, setTrue] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const list = matchMedia(query);
    const update = () => setTrue(list.matches);
    update();
    list.addEventListener("change", update);
    return () => list.removeEventListener("change", update);
  }, [query]);
  return isTrue;
}

/**
 * A button that opens a menu. `items`: `{ text, icon, onChoose, isOn, isDanger }`. Arrow keys go through them, Esc closes.
 */
export function Menu({ label, text, icon, items, kind = "bare", children }) {
  const [isOpen, setOpen] = useState(false);
  const box = useRef(null);
  useEffect(() => {
    if (!isOpen) return undefined;
    box.current.querySelector('[role^="menuitem"]')?.focus();
    const away = (event) => !box.current.contains(event.target) && setOpen(false);
    addEventListener("pointerdown", away);
    return () => removeEventListener("pointerdown", away);
  }, [isOpen]);
  const close = () => {
    setOpen(false);
    box.current.querySelector("button").focus();
  };
  const onKeyDown = (event) => {
    if (!isOpen) return;
    const nodes = [...box.current.querySelectorAll('[role^="menuitem"]')];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) nodes[(nodes.indexOf(document.activeElement) + step + nodes.length) % nodes.length].focus();
    if (event.key === "Escape") close();
    if (event.key === "Tab") setOpen(false);
    if (!step && event.key !== "Escape") return;
    event.preventDefault();
    event.stopPropagation();
  };
  const isChoice = items.some((item) => item.isOn !== undefined);
  return html`<div class="menu-box" ref=${box} onKeyDown=${onKeyDown}>
    <button type="button" class=${classes("btn", kind, icon && !text && !children && "icon")} aria-haspopup="menu"
      aria-expanded=${String(isOpen)} aria-label=${label} title=${label} onClick=${() => setOpen(!isOpen)}>
      ${children ?? text ?? html`<${Icon} name=${icon} />`}</button>
    ${isOpen && html`<ul class="menu-list" role="menu" aria-label=${label}>${items.map((item) => html`<li role="none"
      key=${item.text}><button type="button" tabindex="-1" role=${isChoice ? "menuitemradio" : "menuitem"}
        class=${classes("item", item.isDanger && "bad")} aria-checked=${isChoice ? String(!!item.isOn) : undefined}
        onClick=${() => { close(); item.onChoose(); }}>${item.icon && html`<${Icon} name=${item.icon} />`}
        <span class="grow">${item.text}</span>${item.isOn && html`<${Icon} name="check" size="s" />`}</button></li>`)}</ul>`}
  </div>`;
}
