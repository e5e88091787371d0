import { html as build, useEffect, useState } from "../vendor/preact-htm.js";

// Preact with hooks and htm, from one vendored module; other modules import them from here.
export {
  Component, createContext, h, render, useCallback, useContext, useEffect, useErrorBoundary, useLayoutEffect,
  useMemo, useReducer, useRef, useState,
} from "../vendor/preact-htm.js";

export const language = document.documentElement.lang;
const translation = language === "en" ? null : await import("./translation.js").catch(() => null);
export const html = translation?.html ?? build;

/** Return an English text in the language of the page, with `{name}` filled in from `values`. */
export function t(text, values = {}) {
  return (translation?.texts[text] ?? text).replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
}

/** Return the given class names that are not empty, joined. */
export function classes(...names) {
  return names.filter(Boolean).join(" ");
}

/** Return a value stored by this browser, or `otherwise`. */
export function readStored(key, otherwise) {
  try {
    const text = localStorage.getItem(`greenroom.${key}`);
    return text === null ? otherwise : JSON.parse(text);
  } catch {
    return otherwise;
  }
}

/** Store a value in this browser; `undefined` removes it. Without a working storage nothing happens. */
export function writeStored(key, value) {
  try {
    if (value === undefined) localStorage.removeItem(`greenroom.${key}`);
    else localStorage.setItem(`greenroom.${key}`, JSON.stringify(value));
  } catch {
    // the storage is full or switched off
  }
}

/** Return a random id; crypto.randomUUID exists only over https and on localhost. */
export function randomId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const tickers = new Set();
let timer = 0;

/** Return the present time, anew each second (one timer for the whole page, none while it is hidden). */
export function useNow(isActive = true) {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    if (!isActive) return undefined;
    tickers.add(setNow);
    timer ||= setInterval(() => {
      if (document.visibilityState === "visible") tickers.forEach((set) => set(Date.now()));
    }, 1000);
    return () => {
      tickers.delete(setNow);
      if (!tickers.size) timer = void clearInterval(timer) || 0;
    };
  }, [isActive]);
  return now;
}
