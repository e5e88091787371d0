// Plots as SVG, drawn to the width of their box. Colours come from classes, so that both themes and the CSP hold.

import { html, useLayoutEffect, useRef, useState } from "./lib.js";
import { IconButton } from "./ui.js";

const MARGIN = { left: 38, right: 8, top: 10, bottom: 18 };
const SIGN_WIDTH = 6.6; // at most, of the digits of the axis

/** Return the highest value of the axis: the next round number. */
export function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value || 1));
  return [1, 1.5, 2, 3, 4, 5, 8, 10].map((factor) => factor * power).find((high) => high >= value - 1e-9);
}

/**
 * A plot with its legend, which shows the values under the pointer or the arrow keys, and a table of the same.
 *
 * `labels` are the texts of the x axis, `series` `[{ name, values, line: "c1", fill: "f1", isDashed, hasArea }]` with
 * values or null for a gap; `kind` is "line" or "bars" (stacked). `format(value)` writes values, `summary` is the
 * sentence for a screen reader, `now` names the point `current` (by default the last), `limit` `{ value, label }` is a red line.
 */
export function Plot({ title, labels, series, kind = "line", format = String, summary, now = "", limit, height = 148,
  current = labels.length - 1, wholeNumbers = false, emptyText = "Nothing in this time" }) {
  const box = useRef(null);
  const [width, setWidth] = useState(0);
  const [at, setAt] = useState(null);
  const [asTable, setTable] = useState(false);
  useLayoutEffect(() => {
    if (asTable) return undefined;
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, [asTable]);
  const count = labels.length;
  const shape = measure({ width, height, labels, series, kind, limit, wholeNumbers, format });
  const last = count - 1;
  const shown = at === null ? Math.min(Math.max(current, 0), last) : Math.min(at, last);
  const isEmpty = !series.some((item) => item.values.some((value) => value));
  const move = (index) => setAt(Math.max(0, Math.min(last, index)));
  const onKeyDown = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !count) return;
    event.preventDefault();
    move(shown + step);
  };
  const onPointerMove = (event) => {
    const x = event.clientX - event.currentTarget.getBoundingClientRect().left;
    if (count) move(shape.indexAt(x - parseFloat(getComputedStyle(event.currentTarget).paddingLeft)));
  };
  return html`<div class="plot-box"><div class="plot-head"><h2>${title}</h2><ul class="legend">${series.map((item) => html`
      <li key=${item.name}><svg viewBox="0 0 14 8" aria-hidden="true">${kind === "bars"
        ? html`<rect class=${item.fill} x="3" width="8" height="8" rx="2" />`
        : html`<line class=${`ln ${item.line}${item.isDashed ? " dash" : ""}`} x1="0" x2="14" y1="4" y2="4" />`}</svg>
        ${item.name} <b>${valueText(item.values[shown], format)}</b></li>`)}
      <li class="q">${at === null ? now : labels[shown]}</li></ul>
      <${IconButton} icon=${asTable ? "pulse" : "lines"} label=${asTable ? "Show as plot" : "Show as table"} class="small"
        onClick=${() => setTable(!asTable)} /></div>
    ${asTable ? html`<${PlotTable} ...${{ title, labels, series, format }} />`
      : html`<div class="plot" ref=${box} tabindex="0" role="group" aria-label=${`${title}: arrow keys read the values`}
        onKeyDown=${onKeyDown} onPointerMove=${onPointerMove} onPointerLeave=${() => setAt(null)} onBlur=${() => setAt(null)}>
        ${width > 0 && html`<${Drawing} ...${{ shape, labels, series, kind, format, summary, limit, height }}
          at=${at === null ? null : shown} />`}
        ${isEmpty && html`<p class="plot-empty q">${emptyText}</p>`}</div>`}</div>`;
}

function valueText(value, format) {
  return value === null || value === undefined ? "–" : format(value);
}

/** Compute the scales: `x(index)`, `y(value)`, `max`, `indexAt(x)`, and `left`, where the axis with its numbers ends. */
function measure({ width, height, labels, series, kind, limit, wholeNumbers, format }) {
  const count = labels.length;
  const tall = height - MARGIN.top - MARGIN.bottom;
  const sums = labels.map((_, index) => series.reduce((sum, item) => sum + (item.values[index] ?? 0), 0));
  const single = series.flatMap((item) => item.values.filter((value) => value !== null && value !== undefined));
  const highest = Math.max(0, limit?.value ?? 0, ...(kind === "bars" ? sums : single));
  const max = wholeNumbers && highest <= 4 ? 4 : roundUp(highest * 1.04 || 1);
  const signs = Math.max(...[0, max / 2, max].map((value) => format(value).length));
  const left = Math.max(MARGIN.left, Math.ceil(signs * SIGN_WIDTH) + 8);
  const inner = Math.max(0, width - left - MARGIN.right);
  const step = kind === "bars" ? inner / Math.max(1, count) : inner / Math.max(1, count - 1);
  const offset = kind === "bars" ? 0.5 : 0;
  return {
    width, left, inner, tall, max, step,
    x: (index) => left + (index + offset) * step,
    y: (value) => MARGIN.top + tall - (value / max) * tall,
    indexAt: (x) => Math.round((x - left) / (step || 1) - offset),
  };
}

function Drawing({ shape, labels, series, kind, format, summary, limit, height, at }) {
  const { x, y, max, left, inner, width } = shape;
  const every = Math.max(1, Math.ceil(labels.length / Math.max(2, Math.floor(inner / 84))));
  const right = left + inner;
  return html`<svg viewBox=${`0 0 ${width} ${height}`} height=${height} role="img" aria-label=${summary}>
    ${[0, max / 2, max].map((value, index) => html`<g key=${index}><line class=${index ? "grid" : "axis"} x1=${left}
      x2=${right} y1=${y(value)} y2=${y(value)} /><text x=${left - 6} y=${y(value) + 4} text-anchor="end"
      >${format(value)}</text></g>`)}
    ${labels.map((label, index) => index % every === 0 && x(index) < right - 18 && html`<text key=${`x${index}`} x=${x(index)}
      y=${height - 3} text-anchor=${index || kind === "bars" ? "middle" : "start"}>${label}</text>`)}
    ${kind === "bars" ? html`<${Bars} ...${{ shape, labels, series }} />`
      : series.map((item) => html`<${Line} key=${item.name} item=${item} shape=${shape} />`)}
    ${limit && html`<line class="limit" x1=${left} x2=${right} y1=${y(limit.value)} y2=${y(limit.value)} />
      <text class="lbl-limit" x=${left + 4} y=${y(limit.value) - 5}>${limit.label}</text>`}
    ${at !== null && html`<line class="cross" x1=${x(at)} x2=${x(at)} y1=${MARGIN.top} y2=${MARGIN.top + shape.tall} />`}
  </svg>`;
}

function Line({ item, shape: { x, y } }) {
  const runs = [];
  item.values.forEach((value, index) => {
    if (value === null || value === undefined) return void runs.push([]);
    if (!runs.length) runs.push([]);
    runs.at(-1).push([x(index), y(value)]);
  });
  const points = (run) => run.map(([left, top]) => `${left.toFixed(1)},${top.toFixed(1)}`).join(" ");
  return runs.filter((run) => run.length).map((run, index) => html`<g key=${index}>
    ${item.hasArea && html`<polygon class=${`area ${item.fill}`}
      points=${`${run[0][0]},${y(0)} ${points(run)} ${run.at(-1)[0]},${y(0)}`} />`}
    ${run.length === 1 ? html`<circle class=${item.fill ?? "f1"} cx=${run[0][0]} cy=${run[0][1]} r="2" />`
      : html`<polyline class=${`ln ${item.line}${item.isDashed ? " dash" : ""}`} points=${points(run)} />`}</g>`);
}

function Bars({ shape: { x, y, step }, labels, series }) {
  const wide = Math.max(2, step * 0.68);
  return labels.map((_, index) => {
    let base = 0;
    return series.map((item) => {
      const value = item.values[index];
      if (!value) return null;
      const top = y(base + value);
      const tall = Math.max(1, y(base) - top - 0.75);
      base += value;
      return html`<rect key=${`${index}${item.name}`} class=${item.fill} x=${x(index) - wide / 2} width=${wide} y=${top}
        height=${tall} rx="1" />`;
    });
  });
}

function PlotTable({ title, labels, series, format }) {
  return html`<div class="scroll-x plot-table" tabindex="0" role="region" aria-label=${`${title}, as a table`}>
    <table class="table"><thead><tr><th scope="col">Time</th>${series.map((item) => html`
      <th key=${item.name} scope="col" class="num">${item.name}</th>`)}</tr></thead>
    <tbody>${labels.map((label, index) => html`<tr key=${index}><td>${label}</td>${series.map((item) => html`
      <td key=${item.name} class="num">${valueText(item.values[index], format)}</td>`)}</tr>`)}</tbody></table></div>`;
}

const STRIP = { connected: "f1", degraded: "fwarn", off: "fbad", unknown: "fnone" };

/** How well an account was connected: `states` of half hours, oldest first; `label` is the sentence. */
export function Strip({ states, label, titles = [] }) {
  return html`<svg class="strip" viewBox=${`0 0 ${states.length * 5} 18`} preserveAspectRatio="none" role="img"
    aria-label=${label}>${states.map((state, index) => html`<rect key=${index} class=${STRIP[state] ?? "fnone"} x=${index * 5}
      width="3.4" y=${state === "connected" ? 3 : 0} height=${state === "connected" ? 12 : 18} rx="1"
      ><title>${titles[index] ?? state}</title></rect>`)}</svg>`;
}

/** A share between 0 and 1 as a bar; tone "", "grey", "warn" or "blue". The number stands beside it as text. */
export function Meter({ share, tone = "" }) {
  return html`<svg class="meter" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
    <rect class="track" width="100" height="6" /><rect class=${`fill ${tone}`} width=${Math.min(100, Math.max(0.6, share * 100))}
    height="6" /></svg>`;
}
