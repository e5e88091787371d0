// Lists in all their states: loading, rows, empty, nothing matches, error, more, and new rows that wait.

import { classes, html, useEffect, useState } from "./lib.js";
import { Button, Icon } from "./ui.js";

const SHOWN_AFTER = 150; // an answer that comes sooner needs no grey lines

/** Grey lines of the final height, after 150 ms. */
export function Skeleton({ rows = 6, label = "Loading" }) {
  const [isShown, setShown] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setShown(true), SHOWN_AFTER);
    return () => clearTimeout(timer);
  }, []);
  if (!isShown) return html`<div class="skeletons" aria-busy="true"></div>`;
  return html`<div class="skeletons" role="status" aria-label=${label} aria-busy="true">
    ${Array.from({ length: rows }, (_, index) => html`<div key=${index} class="skeleton"></div>`)}</div>`;
}

/** An error of the server: its sentence, the request's id, and Try again. */
export function ErrorNote({ error, onRetry }) {
  return html`<div class="note bad" role="alert"><${Icon} name="warn" /><div class="grow"><p>${error.message}</p>
    ${error.requestId && html`<p class="q2">Request ${error.requestId}</p>`}</div>
    ${onRetry && html`<${Button} onClick=${onRetry}>Try again</${Button}>`}</div>`;
}

/** One sentence for an empty list, and the next step. */
export function Empty({ title, children }) {
  return html`<div class="empty"><strong>${title}</strong>${children && html`<div>${children}</div>`}</div>`;
}

/** "Nothing matches" with a button that clears the filters. */
export function NothingMatches({ onClear }) {
  return html`<${Empty} title="Nothing matches"><${Button} onClick=${onClear}>Clear filters</${Button}></${Empty}>`;
}

/**
 * What a list shows instead of rows, or null if it has rows. `list` is of `usePages` or `useLoad` (`rows` or `value`);
 * `empty` is the component for an empty list; `isFiltered` with `onClear` shows "Nothing matches".
 */
export function ListState({ list, rows = list.rows, empty, isFiltered = false, onClear, height = 6 }) {
  const error = list.error && html`<${ErrorNote} error=${list.error} onRetry=${() => list.reload()} />`;
  if (!rows?.length && error) return error;
  if (!rows) return html`<${Skeleton} rows=${height} />`;
  if (rows.length) return error;
  return isFiltered ? html`<${NothingMatches} onClear=${onClear} />` : empty;
}

/** The end of a list: "Show more" while there is more. */
export function More({ list }) {
  if (!list.hasMore) return null;
  return html`<div class="more-rows"><${Button} onClick=${() => list.more()}>Show more</${Button}></div>`;
}

/** A button above a list that says how many new rows wait; they are never inserted above what is read. */
export function NewRows({ count, onShow }) {
  return html`<div class="new-rows" role="status">${count > 0
    && html`<${Button} icon="up" onClick=${onShow}>${count} new</${Button}>`}</div>`;
}

/**
 * A table. `columns`: `{ key, title, cell(row), isNumber, isFull, isHidden, label, header }`; `label` is shown before
 * the value where rows are cards (below 760 px), `isFull` takes the whole line there, `isHidden` is left out there.
 * `rows` need an `id`. With `onOpen(row)` a row is opened by Enter or a click outside of its links and fields, and
 * j/k go from row to row. `list` adds loading, errors and "Show more".
 */
export function Table({ label, columns, rows, list, empty, isFiltered, onClear, selectedId, onOpen, rowClass }) {
  const shown = rows ?? list?.rows;
  const state = list && html`<${ListState} ...${{ list, rows: shown, empty, isFiltered, onClear }} />`;
  if (!shown?.length) return state ?? empty ?? null;
  const open = (event, row) => {
    if (event.target.closest("a, button, input, select, label") || String(getSelection())) return;
    onOpen(row);
  };
  return html`<div class="stack tight">${state}<div class="scroll-x" tabindex="0" role="region" aria-label=${label}>
    <table class="table cards"><thead><tr>${columns.map((column) => html`<th key=${column.key} scope="col"
      class=${column.isNumber ? "num" : ""}>${column.header ?? column.title ?? html`<span class="vh">${column.label}</span>`}
      </th>`)}</tr></thead>
    <tbody>${shown.map((row) => html`<tr key=${row.id} data-row=${row.id} class=${classes(rowClass?.(row), onOpen && "opens")}
      tabindex=${onOpen ? 0 : undefined} aria-selected=${selectedId === row.id ? "true" : undefined}
      onClick=${onOpen && ((event) => open(event, row))}
      onKeyDown=${onOpen && ((event) => event.key === "Enter" && event.target === event.currentTarget && onOpen(row))}>
      ${columns.map((column) => html`<td key=${column.key} data-l=${column.label}
        class=${classes(column.isNumber && "num", column.isFull && "full", column.isHidden && "hide")}
        >${column.cell(row)}</td>`)}</tr>`)}</tbody></table></div>${list && html`<${More} list=${list} />`}</div>`;
}
