// The frame of both parts: sidebar with brand, theme, parts and character, and the foot with the connection.

import { remove, toSignIn } from "./api.js";
import { classes, html, readStored, t, useEffect, useNow, useState, writeStored } from "./lib.js";
import { Banner, Menu } from "./overlay.js";
import { link } from "./router.js";
import { stream, useConnection } from "./stream.js";
import { Brand, Button, Chip, Dot, Face, Icon, IconButton } from "./ui.js";

const isSystemDark = () => matchMedia("(prefers-color-scheme: dark)").matches;

/** Switches between light and dark; the choice is kept in this browser. */
export function ThemeButton() {
  const [theme, setTheme] = useState(() => readStored("theme") ?? (isSystemDark() ? "dark" : "light"));
  const next = theme === "dark" ? "light" : "dark";
  const change = () => {
    writeStored("theme", next);
    document.documentElement.dataset.theme = next;
    setTheme(next);
  };
  return html`<${IconButton} icon=${theme === "dark" ? "sun" : "moon"} label=${t(`Use ${next} colours`)} onClick=${change} />`;
}

/** The two parts of the app. */
export function Parts({ current }) {
  const part = (name, text, icon, to) => html`<a href=${link(to)} aria-current=${current === name ? "page" : undefined}>
    <${Icon} name=${icon} size="s" />${text}</a>`;
  return html`<nav class="seg" aria-label="Parts">${part("chat", t("Chat"), "chat", "")}
    ${part("console", t("Console"), "pulse", "console")}</nav>`;
}

/** Choose a character; with one there is only its name. `allowsAll` adds "All characters" (an empty id). */
export function CharacterSwitch({ agents, value, onChange, allowsAll = false, kind = "" }) {
  const agent = agents.find((item) => item.id === value) ?? (allowsAll && agents.length > 1 ? null : agents[0]);
  const name = agent?.name ?? "All characters";
  const shown = html`<${Face} name=${name} picture=${agent?.face} size="s" /><span class="cut">${name}</span>`;
  if (agents.length < 2) return kind ? html`<span class="row q2">${shown}</span>` : null;
  const choices = agents.map((item) => ({ text: item.name, isOn: item.id === agent?.id, onChoose: () => onChange(item.id) }));
  if (allowsAll) choices.unshift({ text: "All characters", isOn: !agent, onChoose: () => onChange("") });
  return html`<${Menu} label=${t("Character: {name}", { name })} kind=${kind} items=${choices}>${shown}<span class="grow"></span>
    <${Icon} name="down" size="s" /></${Menu}>`;
}

/** How the stream stands, who is signed in, and Sign out. */
export function Foot({ session, text = t("Connected") }) {
  const { isLost } = useConnection();
  const signOut = async () => {
    await remove("api/session");
    toSignIn();
  };
  return html`<div class="foot"><${Dot} tone=${isLost ? "warn" : "good"} />
    <span class="grow cut">${isLost ? t("Not connected") : text}${session?.name && ` · ${session.name}`}</span>
    ${session?.role === "read_only" && html`<${Chip} icon="eye">Read-only</${Chip}>`}
    <${IconButton} icon="out" label="Sign out" onClick=${signOut} /></div>`;
}

/** The sidebar. `top` stands below the parts, `children` is the list, `onClose` closes it on a phone. */
export function Sidebar({ part, session, home, top, footText, onClose, children }) {
  return html`<header class="side" id="side"><div class="top"><div class="row"><${Brand} to=${home} /><span class="grow"></span>
    ${onClose && html`<${IconButton} icon="close" label="Close the list" class="only-narrow" onClick=${onClose} />`}
    <${ThemeButton} /></div>${session?.role !== "chat" && html`<${Parts} current=${part} />`}${top}</div>${children}
    <${Foot} session=${session} text=${footText} /></header>`;
}

/** One line of a navigation. */
export function NavItem({ to, query, icon, text, badge, isCurrent, ...rest }) {
  return html`<a class=${classes("item")} href=${link(to, query)} aria-current=${isCurrent ? "page" : undefined} ...${rest}>
    ${icon && html`<${Icon} name=${icon} />`}<span class="cut">${text}</span>
    ${badge ? html`<span class="badge warn" title="need attention">${badge}<span class="vh"> need attention</span></span>` : null}</a>`;
}

/** The banner without a connection; `text` says what that means on this page. */
export function OfflineBanner({ text }) {
  const { needsBanner, status, retryAt } = useConnection();
  const now = useNow(needsBanner);
  if (!needsBanner) return null;
  const seconds = Math.max(1, Math.ceil((retryAt - now) / 1000));
  const next = status === "waiting" ? t("Next attempt in {seconds} s", { seconds }) : t("Connecting");
  const actions = html`<span class="nw only-wide" aria-hidden="true">${next}</span>
    <${Button} onClick=${() => stream.retry()}>Try now</${Button}>`;
  return html`<${Banner} actions=${actions}>${text}</${Banner}>`;
}

/** Return whether the sidebar lies over a narrow page, and a function that opens or closes it. Esc closes it. */
export function useSideMenu() {
  const [isMenu, setMenu] = useState(false);
  const openMenu = (isOpen) => {
    setMenu(isOpen);
    document.getElementById("app").classList.toggle("menu", isOpen);
    if (!isOpen) requestAnimationFrame(() => document.getElementById("menu")?.focus());
  };
  useEffect(() => {
    if (!isMenu) return undefined;
    document.querySelector(".side .only-narrow").focus();
    const onKey = (event) => event.key === "Escape" && openMenu(false);
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [isMenu]);
  return [isMenu, openMenu];
}
