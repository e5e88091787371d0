// Small components: icons, buttons, chips, fields. Lists and dialogs are in lists.js and dialogs.js.

import { address, BASE } from "./api.js";
import { classes, html, useEffect, useRef, useState } from "./lib.js";
import { link } from "./router.js";

const SPRITE = new URL("pages/icons.svg", BASE).href;

export const Fragment = ({ children }) => children;

/** An icon of the sprite; `size="s"` is 14 px. Icons are decoration: a word or a label says the same. */
export function Icon({ name, size = "", tone = "" }) {
  return html`<svg class=${classes("ico", size, tone)} viewBox="0 0 16 16" aria-hidden="true">
    <use href=${`${SPRITE}#i-${name}`} /></svg>`;
}

/** The name and sign of the product, a link to the start of this part. */
export function Brand({ to = "" }) {
  return html`<a class="brand" href=${link(to)}><svg viewBox="0 0 32 32" aria-hidden="true">
    <rect class="box" width="32" height="32" rx="8" />
    <path class="mark" d="M8 11a3 3 0 0 1 3-3h10a3 3 0 0 1 3 3v7a3 3 0 0 1-3 3h-5l-5 4v-4a3 3 0 0 1-3-3z" />
  </svg>Greenroom</a>`;
}

/**
 * A button, or a link with `to` or `href`. `kind`: "", "primary", "bare", "danger". `onClick` may return a promise:
 * the button is busy until it settles and keeps its width. `reason` says why it cannot be used now: it is then not
 * `disabled`, so that it can be found and heard; a press calls `onRefused(reason)`.
 */
export function Button({ kind = "", icon, label, to, query, href, onClick, reason, onRefused, children, ...rest }) {
  const [isBusy, setBusy] = useState(false);
  const isShown = useRef(true);
  useEffect(() => () => void (isShown.current = false), []);
  const isIcon = icon && !children;
  const name = classes("btn", kind, isIcon && "icon", isBusy && "busy", rest.class);
  const named = isIcon ? { "aria-label": label, title: label } : label ? { "aria-label": label } : {};
  const content = [icon && html`<${Icon} name=${icon} size=${isIcon ? "" : "s"} />`, children,
    isBusy && html`<span class="spin" aria-hidden="true"></span>`];
  const target = href ?? (to === undefined ? undefined : link(to, query));
  if (target !== undefined) {
    return html`<a ...${rest} ...${named} class=${name} href=${target} onClick=${onClick}>${content}</a>`;
  }
  const press = async (event) => {
    if (reason) return onRefused?.(reason);
    const result = isBusy ? null : onClick?.(event);
    if (!result?.then) return;
    setBusy(true);
    await result.finally(() => isShown.current && setBusy(false));
  };
  return html`<button type="button" ...${rest} ...${named} class=${name} onClick=${press} aria-busy=${isBusy || undefined}
    aria-disabled=${reason ? "true" : undefined} title=${reason || named.title}>${content}</button>`;
}

/** A button with only an icon; `label` is its name and its title. */
export const IconButton = ({ kind = "bare", ...rest }) => html`<${Button} kind=${kind} ...${rest} />`;

/** The face of a character or person: a picture if there is one that can be shown, otherwise the first letter. */
export function Face({ name = "", picture, size = "", isPerson = false }) {
  const [broken, setBroken] = useState("");
  if (picture && picture !== broken) {
    return html`<img class=${classes("face", size)} src=${address(picture).href} alt="" onError=${() => setBroken(picture)} />`;
  }
  return html`<span class=${classes("face", size, isPerson && "person")} aria-hidden="true"
    >${[...name.replace(/^[@#]/, "")][0]?.toUpperCase() ?? "?"}</span>`;
}

/** A short word with a colour: tone "", "good", "warn" or "bad". */
export function Chip({ tone = "", icon, children }) {
  return html`<span class=${classes("chip", tone)}>${icon && html`<${Icon} name=${icon} size="s" />`}${children}</span>`;
}

/** A chip that can be pressed, such as a filter. */
export function ToggleChip({ isOn, onChange, children }) {
  return html`<button type="button" class="chip" aria-pressed=${String(isOn)} onClick=${() => onChange(!isOn)}
    >${children}</button>`;
}

/** The mark of a state: "good" dot, "warn" diamond, "bad" square, "off" ring. A word stands beside it. */
export function Dot({ tone = "good" }) {
  return html`<span class=${classes("dot", tone !== "good" && tone)} aria-hidden="true"></span>`;
}

/** A mark with its word, as in a table cell. */
export function State({ tone = "good", children }) {
  return html`<span class="row state"><${Dot} tone=${tone} /><span>${children}</span></span>`;
}

/**
 * One choice of several: `options` are `[value, text]` or `{ value, text, icon, count }`. With `name` it is a group of
 * pressed buttons that calls `onChange(value)`.
 */
export function Segmented({ name, options, value, onChange }) {
  return html`<div class="seg" role="group" aria-label=${name}>${options.map(readOption).map((option) => html`
    <button type="button" key=${option.value} aria-pressed=${String(option.value === value)}
      onClick=${() => onChange(option.value)}>${option.icon && html`<${Icon} name=${option.icon} size="s" />`}
      ${option.text}${option.count !== undefined && html` <span class="badge">${option.count}</span>`}</button>`)}
  </div>`;
}

/** A select field; `label` is its name. `options` as in Segmented. */
export function Select({ label, options, value, onChange, ...rest }) {
  return html`<select class="input" aria-label=${label} value=${value} ...${rest}
    onChange=${(event) => onChange(event.target.value)}>${options.map(readOption).map((option) => html`
    <option key=${option.value} value=${option.value} selected=${option.value === value}>${option.text}</option>`)}
  </select>`;
}

function readOption(option) {
  return Array.isArray(option) ? { value: option[0], text: option[1] } : option;
}

/** A search field: `onSearch(text)` 250 ms after the last key; Esc empties it. */
export function Search({ label, placeholder = label, value = "", onSearch, wide = false, shortcut }) {
  const [text, setText] = useState(value);
  const timer = useRef(0);
  useEffect(() => setText(value), [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const change = (next, delay) => {
    setText(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => onSearch(next.trim()), delay);
  };
  const onKeyDown = (event) => {
    if (event.key === "Enter") change(text, 0);
    if (event.key !== "Escape" || !text) return;
    event.preventDefault();
    event.stopPropagation();
    change("", 0);
  };
  return html`<div class=${classes("find", wide && "wide")} role="search"><${Icon} name="search" />
    <input class="input" type="search" aria-label=${label} placeholder=${placeholder} value=${text}
      data-shortcut=${shortcut} onInput=${(event) => change(event.target.value, 250)} onKeyDown=${onKeyDown} /></div>`;
}

let fields = 0;

/** A field with its label, a hint and an error below it. Other attributes go to the input. */
export function Field({ label, hint, error, value, onInput, type = "text", multiline = false, inputRef, ...rest }) {
  const id = useRef(`field-${++fields}`).current;
  const text = error || hint;
  const Input = multiline ? "textarea" : "input";
  return html`<label class="field" for=${id}><span>${label}</span>
    <${Input} ...${rest} id=${id} ref=${inputRef} class="input" type=${multiline ? undefined : type} value=${value}
      onInput=${(event) => onInput?.(event.target.value)} aria-invalid=${error ? "true" : undefined}
      aria-describedby=${text ? `${id}-text` : undefined} />
    ${text && html`<span id=${`${id}-text`} class=${error ? "note bad" : "q"}>
      ${error && html`<${Icon} name="warn" />`}<span>${text}</span></span>`}</label>`;
}

/** A note: tone "", "good", "warn" or "bad". */
export function Note({ tone = "", icon = tone === "good" ? "check" : tone ? "warn" : "", children }) {
  return html`<p class=${classes("note", tone)}>${icon && html`<${Icon} name=${icon} />`}<span>${children}</span></p>`;
}

/** A card with a heading; `actions` stand at its right. */
export function Card({ title, note, actions, footer, padded = false, children, ...rest }) {
  return html`<section ...${rest} class=${classes("card", rest.class)} aria-label=${rest["aria-label"] ?? title}>
    ${title && html`<header><h2>${title}</h2>${note && html`<span class="q">${note}</span>`}${actions}</header>`}
    ${padded ? html`<div class="pad">${children}</div>` : children}
    ${footer && html`<footer>${footer}</footer>`}</section>`;
}

/** A page of the Console: its heading with what stands beside it, then its content. */
export function PageBody({ title, actions, children }) {
  return html`<div class="page"><div class="in">
    <header class="page-head"><h1>${title}</h1>${actions}</header>${children}</div></div>`;
}
