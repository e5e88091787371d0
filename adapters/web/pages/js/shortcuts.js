// Shortcuts of the page; their list and the palette are loaded when first opened.

import { html, readStored, useLayoutEffect, useRef, useState } from "./lib.js";

const RECEIPT = "button.why, a[href*='/console/receipts/'], a[href*='message=']";
const GO = { o: "", r: "rooms", d: "deliveries", c: "costs", p: "people", k: "knowledge", t: "tasks" };

/**
 * Return `{ search, help, overlay }`: functions that open the palette (of `pages`, for `role`) and the list of shortcuts, and what they show.
 */
export function usePalette(pages, role) {
  const [opened, setOpened] = useState(null);
  const open = (name) => async () => {
    const module = await import("./palette.js");
    setOpened({ Body: module[name] });
  };
  const close = () => setOpened(null);
  const overlay = opened && html`<${opened.Body} ...${{ pages, role }} onClose=${close} />`;
  return { search: open("Palette"), help: open("ShortcutList"), overlay };
}

const isField = (node) => node.closest?.("input, textarea, select, [contenteditable]");

/**
 * Handle the shortcuts of the page. `actions` may have `search()`, `help()` and `goTo(key)`; j and k go through the rows
 * of lists (`data-row`), w opens the receipt of the row with the focus, [ and ] press what has that `data-key`.
 */
export function useShortcuts(actions) {
  const latest = useRef(actions);
  latest.current = actions;
  useLayoutEffect(() => { // listens before the first paint
    let goes = 0;
    const onKey = (event) => {
      const { key } = event;
      if ((event.ctrlKey || event.metaKey) && key.toLowerCase() === "k") {
        event.preventDefault();
        return latest.current.search?.();
      }
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || isField(event.target)) return;
      if (!readStored("shortcuts", true) || document.querySelector("dialog[open]")) return;
      if (Date.now() - goes < 1500 && key in GO) {
        goes = 0;
        return latest.current.goTo?.(GO[key]);
      }
      goes = key === "g" ? Date.now() : 0;
      if (key === "j" || key === "k") moveRow(key === "j" ? 1 : -1);
      if (key === "?") latest.current.help?.();
      if (key === "w") openReceipt();
      if (key === "[" || key === "]") document.querySelector(`[data-key="${key}"]`)?.click();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
}

/** Open the receipt of the row or message with the focus, otherwise of the selected row, otherwise the last "Why?". */
function openReceipt() {
  const row = document.activeElement.closest("[data-row], article, li") ?? document.querySelector("[data-row] [aria-current=true]");
  const target = row?.querySelector(RECEIPT) ?? (row?.matches(RECEIPT) ? row : [...document.querySelectorAll("button.why")].at(-1));
  target?.click();
}

function moveRow(step) {
  const rows = [...document.querySelectorAll("[data-row]")];
  const at = rows.indexOf(document.activeElement.closest("[data-row]"));
  const row = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : at + step];
  const target = row?.matches("[tabindex], a, button") ? row : row?.querySelector("a, button");
  target?.focus();
}
