// Requests to the HTTP API: addresses below the page's base, errors with the server's sentence, lists by pages.

import { randomId, t, useCallback, useEffect, useReducer, useRef } from "./lib.js";

// This file is served at <base>pages/js/api.js, so the base needs no setting, whatever the prefix of a proxy is.
export const BASE = new URL("../../", import.meta.url);

/** An answer of the server that is an error, or no answer (`isOffline`). */
export class ApiError extends Error {
  constructor(message, { status = 0, code = "", requestId = "", retryAfter = null } = {}) {
    super(message);
    Object.assign(this, { name: "ApiError", status, code, requestId, retryAfter, isOffline: status === 0 });
  }
}

/**
 * Return the address of a path below the base, such as `address("api/rooms", { limit: 50 })`. Empty values are left
 * out, a list repeats its name.
 */
export function address(path, query = {}) {
  const url = new URL(path.replace(/^\//, ""), BASE);
  for (const [name, value] of Object.entries(query)) {
    for (const item of Array.isArray(value) ? value : [value]) {
      if (item !== undefined && item !== null && item !== "") url.searchParams.append(name, item);
    }
  }
  return url;
}

/**
 * Send a request and return its JSON (null for an empty answer, text for another type).
 *
 * `body` is an object sent as JSON, or a FormData or Blob sent as it is. Writes get an `Idempotency-Key`: `key`, or a
 * new one; send the same key again to repeat a request whose answer was lost. Raises ApiError; with 401 the page goes
 * to the sign-in page.
 */
export async function request(method, path, { query, body, key, signal, headers = {} } = {}) {
  const sent = { Accept: "application/json", ...headers };
  if (method !== "GET") sent["Idempotency-Key"] = key ?? randomId();
  const isRaw = body instanceof FormData || body instanceof Blob;
  if (body !== undefined && !isRaw) sent["Content-Type"] = "application/json";
  const content = body === undefined || isRaw ? body : JSON.stringify(body);
  let response;
  try {
    response = await fetch(address(path, query), { method, headers: sent, body: content, signal, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(t("The bot cannot be reached."));
  }
  if (!response.ok) throw await readError(response);
  if (response.status === 204) return null;
  const isJson = response.headers.get("Content-Type")?.includes("json");
  return isJson ? response.json() : response.text();
}

export const get = (path, query, options) => request("GET", path, { query, ...options });
export const post = (path, body, options) => request("POST", path, { body, ...options });
export const put = (path, body, options) => request("PUT", path, { body, ...options });
export const patch = (path, body, options) => request("PATCH", path, { body, ...options });
export const remove = (path, options) => request("DELETE", path, options);

async function readError(response) {
  const said = await response.json().then((document) => document.error, () => null);
  const error = new ApiError(said?.message ?? t("The server answered {status}.", response), {
    status: response.status,
    code: said?.code,
    requestId: said?.request_id ?? response.headers.get("X-Request-Id") ?? "",
    retryAfter: Number(response.headers.get("Retry-After")) || null,
  });
  if (error.status === 401) toSignIn();
  return error;
}

/** Go to the sign-in page, and come back to this address afterwards. */
export function toSignIn() {
  const here = location.href.slice(BASE.href.length);
  if (!here.startsWith("signin")) location.replace(address("signin", { next: here }));
}

/**
 * Load a value, again when `path` or `query` changes; answers that come too late are dropped.
 *
 * Return `{ value, error, isLoading, reload }`; the last value stays while it is loaded again and after an error.
 * A `path` of null loads nothing.
 */
export function useLoad(path, query = {}) {
  const [state, update] = useReducer((old, change) => ({ ...old, ...change }), { value: null, isLoading: !!path });
  const run = useRef(0);
  const wanted = path === null ? "" : address(path, query).href;
  const reload = useCallback(async () => {
    const number = ++run.current;
    if (!wanted) return;
    update({ isLoading: true });
    try {
      const value = await get(wanted.slice(BASE.href.length));
      if (number === run.current) update({ value, error: null, isLoading: false });
    } catch (error) {
      if (number === run.current) update({ error, isLoading: false });
    }
  }, [wanted]);
  useEffect(() => {
    reload();
    return () => void ++run.current;
  }, [reload]);
  return { error: null, ...state, reload };
}

/**
 * Load a list page by page: `usePages("api/rooms", { q }, "rooms")`. The answer is `{ [name]: rows, next: cursor }`.
 *
 * Return `{ rows, answer, hasMore, error, isLoading, more, reload, change }`; `rows` is null before the first answer, and
 * `change(rows => rows)` replaces rows after an action or an event. Another query begins anew.
 */
export function usePages(path, query, name) {
  const empty = { rows: null, next: null, error: null, isLoading: true };
  const [state, update] = useReducer((old, change) => ({ ...old, ...(change.call ? change(old) : change) }), empty);
  const run = useRef(0);
  const wanted = address(path, query).href;
  const load = useCallback(async (cursor) => {
    const number = ++run.current;
    update({ isLoading: true, error: null });
    try {
      const answer = await get(wanted.slice(BASE.href.length), cursor ? { before: cursor } : {});
      if (number !== run.current) return;
      update((old) => ({
        rows: cursor ? [...old.rows, ...answer[name]] : answer[name],
        next: answer.next ?? null,
        answer,
        isLoading: false,
      }));
    } catch (error) {
      if (number === run.current) update({ error, isLoading: false });
    }
  }, [wanted, name]);
  useEffect(() => {
    update({ rows: null, next: null });
    load(null);
    return () => void ++run.current;
  }, [load]);
  return {
    ...state,
    hasMore: state.next !== null,
    more: () => state.next !== null && !state.isLoading && load(state.next),
    reload: () => load(null),
    change: (edit) => update((old) => ({ rows: edit(old.rows ?? []) })),
  };
}
