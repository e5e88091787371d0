// Dialogs and the drawer, loaded when first needed. Toast, banner and menu are in overlay.js.

import { html, render, t, useEffect, useLayoutEffect, useRef, useState } from "./lib.js";
import { useMedia } from "./overlay.js";
import { Button, IconButton } from "./ui.js";

/** A modal dialog with a heading; `onClose()` also for Esc. Focus returns to where it was. */
export function Dialog({ title, onClose, children, ...rest }) {
  const ref = useRef(null);
  useEffect(() => {
    const opener = document.activeElement;
    const dialog = ref.current;
    dialog.showModal();
    return () => {
      dialog.close(); // while it is open, nothing outside of it takes the focus
      if (opener?.isConnected) opener.focus();
    };
  }, []);
  const cancel = (event) => {
    event.preventDefault();
    onClose();
  };
  return html`<dialog ref=${ref} class="dialog" aria-label=${title} ...${rest} onCancel=${cancel}
    onClick=${(event) => event.target === ref.current && onClose()}>${children}</dialog>`;
}

/**
 * Ask before something that cannot be taken back. Return a promise of true or false. `title` names the object and
 * `text` the effect; the default is Cancel. With `typed` the person must write that name.
 */
export function confirm({ title, text, action, typed }) {
  const place = document.createElement("div");
  document.body.append(place);
  return new Promise((resolve) => {
    const close = (answer) => {
      render(null, place);
      place.remove();
      resolve(answer);
    };
    render(html`<${Confirm} ...${{ title, text, action, typed, onClose: close }} />`, place);
  });
}

function Confirm({ title, text, action, typed, onClose }) {
  const [written, setWritten] = useState("");
  const isReady = !typed || written.trim() === typed;
  const submit = (event) => {
    event.preventDefault();
    if (isReady) onClose(true);
  };
  return html`<${Dialog} title=${title} onClose=${() => onClose(false)}><form class="stack" onSubmit=${submit}>
    <h2>${title}</h2><p class="q2">${text}</p>
    ${typed && html`<label class="field"><span>${t("Write {name} to confirm", { name: typed })}</span><input class="input" value=${written}
      autocomplete="off" onInput=${(event) => setWritten(event.target.value)} /></label>`}
    <div class="row end"><${Button} autofocus=${!typed} onClick=${() => onClose(false)}>Cancel</${Button}>
      <button type="submit" class="btn danger" aria-disabled=${isReady ? undefined : "true"}>${action}</button></div>
  </form></${Dialog}>`;
}


/**
 * A panel at the right: beside the page above 1200 px, over it below. Its heading gets the focus, Esc closes it and
 * the focus returns to the opener. While it lies over the page, the elements of `behind` (a selector) are inert.
 */
export function Drawer({ title, actions, onClose, behind = ".thread, .side, .tabs, .skip", children }) {
  const heading = useRef(null);
  const isOver = useMedia("(max-width: 75rem)");
  useEffect(() => {
    const opener = document.activeElement;
    heading.current.focus({ preventScroll: true });
    const onKey = (event) => {
      if (event.key !== "Escape" || event.defaultPrevented || document.querySelector("dialog[open]")) return;
      event.preventDefault();
      onClose();
    };
    addEventListener("keydown", onKey);
    return () => {
      removeEventListener("keydown", onKey);
      requestAnimationFrame(() => opener?.isConnected && opener.focus());
    };
  }, []);
  useLayoutEffect(() => {
    const nodes = isOver ? [...document.querySelectorAll(behind)] : [];
    nodes.forEach((node) => void (node.inert = true));
    return () => nodes.forEach((node) => void (node.inert = false));
  }, [isOver]);
  return html`<section class="drawer" role="dialog" aria-labelledby="drawer-title" aria-modal=${isOver ? "true" : undefined}>
    <header><h2 id="drawer-title" tabindex="-1" ref=${heading}>${title}</h2>${actions}
      <${IconButton} icon="close" label="Close" onClick=${onClose} /></header>
    <div class="in narrow" tabindex="0" role="region" aria-label=${title}>${children}</div></section>`;
}
