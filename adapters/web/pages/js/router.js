// The address of the page: path and query below the base, changed without a reload; Back and reload restore the page.

import { BASE } from "./api.js";
import { html, useEffect, useState } from "./lib.js";

const listeners = new Set();
let scope = () => true; // which paths belong to this document; others are loaded by the browser

/** Return `{ path, segments, query }` of an address; `query` maps names to values, repeated ones to lists. */
export function parseAddress(url = new URL(location.href)) {
  const path = url.pathname.startsWith(BASE.pathname) ? url.pathname.slice(BASE.pathname.length) : "";
  const query = {};
  for (const name of new Set(url.searchParams.keys())) {
    const values = url.searchParams.getAll(name);
    query[name] = values.length > 1 ? values : values[0];
  }
  return { path, segments: path.split("/").filter(Boolean).map(decodeSegment), query };
}

function decodeSegment(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Return the address of a path such as `console/rooms` with a query, for `href` and `navigate`. */
export function link(path, query = {}) {
  const url = new URL(path.replace(/^\//, ""), BASE);
  for (const [name, value] of Object.entries(query)) {
    for (const item of Array.isArray(value) ? value : [value]) {
      if (item !== undefined && item !== null && item !== "") url.searchParams.append(name, item);
    }
  }
  return url.pathname + url.search;
}

/** Go to a path of this app; `replace` leaves no entry in the history, as for a filter that is typed. */
export function navigate(path, { query = {}, replace = false } = {}) {
  const target = path.startsWith(BASE.pathname) && BASE.pathname !== "/" ? path : link(path, query);
  const full = new URL(target, BASE);
  if (!scope(parseAddress(full).path)) return location.assign(full);
  history[replace ? "replaceState" : "pushState"](null, "", full);
  announce();
}

/** Change some values of the query and keep the others; an empty value removes its name. */
export function setQuery(changes, { replace = true } = {}) {
  const { path, query } = parseAddress();
  navigate(path, { query: { ...query, ...changes }, replace });
}

function announce() {
  const route = parseAddress();
  pointSkipLink();
  listeners.forEach((listener) => listener(route));
}

/** Return the current route; the component is drawn anew when it changes. */
export function useRoute() {
  const [route, setRoute] = useState(parseAddress);
  useEffect(() => {
    listeners.add(setRoute);
    return () => listeners.delete(setRoute);
  }, []);
  return route;
}

/**
 * Follow links of this document without a reload. `isOwn(path)` says which paths the document shows, so that the
 * links between Chat and Console are ordinary ones. Called once by each document.
 */
export function startRouter(isOwn) {
  scope = isOwn;
  pointSkipLink();
  addEventListener("popstate", announce);
  addEventListener("click", (event) => {
    const anchor = event.target.closest?.("a[href]");
    const isPlain = !event.defaultPrevented && event.button === 0
      && !(event.metaKey || event.ctrlKey || event.shiftKey || event.altKey);
    if (!anchor || !isPlain || anchor.target || anchor.hasAttribute("download")) return;
    if (anchor.matches(".skip")) return void toElement(event, anchor.hash.slice(1));
    const url = new URL(anchor.href);
    if (url.origin !== BASE.origin || !url.pathname.startsWith(BASE.pathname) || url.hash) return;
    if (!scope(parseAddress(url).path)) return;
    event.preventDefault();
    if (url.href !== location.href) history.pushState(null, "", url);
    announce();
  });
}

// "To the content" leads to a part of this page, which the browser would look for at the base instead of the address.
function pointSkipLink() {
  const skip = document.querySelector("a.skip");
  if (skip) skip.href = `${location.pathname}${location.search}${skip.hash}`;
}

function toElement(event, id) {
  event.preventDefault();
  document.getElementById(id)?.focus();
}

/** A link within the app: `<${Link} to="console/rooms" query=${{ q }}>`. Other attributes pass through. */
export function Link({ to, query, children, ...rest }) {
  return html`<a href=${link(to, query)} ...${rest}>${children}</a>`;
}
