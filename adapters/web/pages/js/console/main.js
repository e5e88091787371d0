// Console: the frame, the navigation, and the pages, each loaded when it is first opened.

import { get, useLoad } from "../api.js";
import { CharacterSwitch, NavItem, OfflineBanner, Sidebar } from "../shell.js";
import { html, render, useEffect, useErrorBoundary, useRef, useState } from "../lib.js";
import { ErrorNote, Skeleton } from "../lists.js";
import { link, navigate, setQuery, startRouter, useRoute } from "../router.js";
import { usePalette, useShortcuts } from "../shortcuts.js";
import { stream, useStream } from "../stream.js";
import { Button, Icon } from "../ui.js";
import { PAGES, SHORT, SYSTEM } from "./pages.js";

const shownPages = [...PAGES, ...SYSTEM];
const pathOf = (page) => (page.key === "overview" ? "console" : `console/${page.key}`);

/** The page of the address: its module when loaded, or the error of loading it. */
function Page({ page, session, query, params }) {
  const [loaded, setLoaded] = useState(null);
  const [error, resetError] = useErrorBoundary((cause) => console.error(cause));
  useEffect(() => {
    let isCurrent = true;
    page.load().then(
      (module) => isCurrent && setLoaded({ key: page.key, Body: module.default }),
      () => isCurrent && setLoaded({ key: page.key, error: { message: "This page could not be loaded." } }),
    );
    return () => void (isCurrent = false);
  }, [page]);
  const retry = () => location.reload();
  if (error) return html`<${Failure} error=${{ message: "This page failed." }} onRetry=${() => (resetError(), retry())} />`;
  if (loaded?.key !== page.key) return html`<div class="page"><${Skeleton} /></div>`;
  if (loaded.error) return html`<${Failure} error=${loaded.error} onRetry=${retry} />`;
  return html`<${loaded.Body} ...${{ session, query, params, navigate }} />`;
}

function Failure({ error, onRetry }) {
  return html`<div class="page"><div class="in pad-y"><${ErrorNote} error=${error} onRetry=${onRetry} /></div></div>`;
}

function NotFound() {
  return html`<div class="page"><div class="empty"><h1>There is no page at this address</h1>
    <p><a href=${link("console")}>To the start of the Console</a></p></div></div>`;
}

function Navigation({ current, query, waiting }) {
  const agent = query.agent ? { agent: query.agent } : {};
  const lines = (pages) => html`<ul>${pages.filter((page) => page.title).map((page) => html`<li key=${page.key}>
    <${NavItem} to=${pathOf(page)} query=${agent} icon=${page.icon} text=${page.title} isCurrent=${page.key === current}
    badge=${page.key === "control" && waiting} /></li>`)}</ul>`;
  return html`<nav class="list" aria-label="Console">${lines(PAGES)}${SYSTEM.length > 0 && [html`<h2>System</h2>`, lines(SYSTEM)]}</nav>`;
}

function Tabs({ current, waiting }) {
  const [isOpen, setOpen] = useState(false);
  const more = useRef(null);
  const titled = shownPages.filter((page) => page.title);
  const short = titled.filter((page) => SHORT.includes(page.key));
  const rest = titled.filter((page) => !SHORT.includes(page.key));
  useEffect(() => setOpen(false), [current]);
  const onKeyDown = (event) => {
    if (event.key !== "Escape") return;
    setOpen(false);
    more.current.focus();
  };
  return html`${isOpen && html`<nav class="sheet" aria-label="More pages" onKeyDown=${onKeyDown}>
      ${rest.map((page) => html`<${NavItem} key=${page.key} to=${pathOf(page)} icon=${page.icon} text=${page.title} />`)}
      <${NavItem} to="" icon="chat" text="Chat" /></nav>`}
    <nav class="tabs" aria-label="Console, short">${short.map((page) => html`<a key=${page.key} href=${link(pathOf(page))}
      aria-current=${page.key === current ? "page" : undefined}><${Icon} name=${page.icon} />${page.tab ?? page.title}${page.key === "control" && waiting > 0
        && html`<span class="badge warn">${waiting}<span class="vh"> drafts wait</span></span>`}</a>`)}
      <button type="button" ref=${more} aria-expanded=${String(isOpen)} onClick=${() => setOpen(!isOpen)}>
        <${Icon} name="menu" />More</button></nav>`;
}

function Console() {
  const { segments, query } = useRoute();
  const [session, setSession] = useState(null);
  const [failure, setFailure] = useState(null);
  const main = useRef(null);
  const [key = "overview", ...params] = segments.slice(1);
  const page = shownPages.find((item) => item.key === key);
  const load = () => get("api/session").then(setSession, setFailure);
  useEffect(() => {
    load();
    stream.start();
  }, []);
  const drafts = useLoad(session && "api/drafts", { agent: query.agent, limit: 1 });
  useStream([{ kind: "proposal", agent: query.agent, is_summary: true }], drafts.reload);
  const waiting = drafts.value?.waiting;
  const isFirst = useRef(true);
  useEffect(() => {
    document.title = `${page?.title ?? (key === "receipts" ? (params.length ? "Receipt" : "Receipts") : "Console")} · Greenroom`;
    if (!isFirst.current) main.current.focus({ preventScroll: true });
    isFirst.current = false;
  }, [key]);
  const known = shownPages.filter((item) => item.title).map((item) => ({ ...item, path: pathOf(item) }));
  const { search, help, overlay } = usePalette(known, session?.role);
  useShortcuts({
    search,
    help,
    goTo: (name) => navigate(name ? `console/${name}` : "console"),
  });
  const agents = session?.agents ?? [];
  const top = html`<${CharacterSwitch} agents=${agents} value=${query.agent} allowsAll=${true}
      onChange=${(agent) => setQuery({ agent }, { replace: false })} />
    <button type="button" class="btn bare" onClick=${search}><${Icon} name="search" />
      <span class="grow row">Search everything</span><kbd>Ctrl K</kbd></button>`;
  return html`<${Sidebar} part="console" session=${session} home="console" top=${top} footText="Live">
      <${Navigation} current=${key === "receipts" ? "rooms" : key} ...${{ query, waiting }} /></${Sidebar}>
    <main class="main" id="main" tabindex="-1" ref=${main}>
      <${OfflineBanner} text="Not connected to the bot. What you see is from before; actions wait for the connection." />
      ${failure && html`<${Failure} error=${failure} onRetry=${() => location.reload()} />`}
      ${!failure && !page && html`<${NotFound} />`}
      ${session && page && html`<${Page} key=${page.key} ...${{ page, session, query, params }} />`}</main>
    <${Tabs} current=${key} waiting=${waiting} />${overlay}`;
}

startRouter((path) => path === "console" || path.startsWith("console/"));
render(html`<${Console} />`, document.getElementById("app"));
