// Tasks: what is due, how it went the last time; run now, pause, resume, delete.

import { post, remove, usePages } from "../api.js";
import { confirm } from "../dialogs.js";
import { formatDuration, Time, useNow } from "../format.js";
import { classes, html, useState } from "../lib.js";
import { Empty, Table } from "../lists.js";
import { toast } from "../overlay.js";
import { link, setQuery } from "../router.js";
import { useStream } from "../stream.js";
import { Card, IconButton, Note, PageBody, Segmented, State } from "../ui.js";

const STATES = [["", "All"], ["waiting", "Waiting"], ["paused", "Paused"], ["failed", "Failed"]];
const LATE_AFTER = 60_000;

export default function Page({ session, query }) {
  const state = query.state ?? "";
  const list = usePages("api/tasks", { agent: query.agent, state }, "tasks");
  // A run changes its row, a new time to run as well; what is new or gone is shown when the list is loaded again.
  useStream([{ kind: "task", agent: query.agent }], (frame) => {
    if (frame.type === "reset") return list.reload();
    return list.change((rows) => rows.map((row) => (row.id === frame.id ? ran(row, frame) : row)));
  });
  const isOperator = session.role === "operator";
  const change = (task) => list.change((rows) => rows.map((row) => (row.id === task.id ? { ...task, error: "" } : row)));
  const actions = isOperator && ((task) => html`<${Actions} task=${task} onChange=${change}
    onDelete=${() => list.change((rows) => rows.filter((row) => row.id !== task.id))} />`);
  return html`<${PageBody} title="Tasks" actions=${html`<${Segmented} name="State" options=${STATES} value=${state}
      onChange=${(value) => setQuery({ state: value })} />`}>
    <${Summary} rows=${list.rows} hasMore=${list.hasMore} isFiltered=${state !== ""} />
    <${Card} aria-label="Scheduled tasks">
      <${Table} label="Tasks" list=${list} columns=${columns(actions)} isFiltered=${state !== ""}
        onClear=${() => setQuery({ state: "" })}
        empty=${html`<${Empty} title="No tasks yet">Ask the character for a reminder, or give it a plugin that schedules work.</${Empty}>`} />
    </${Card}></${PageBody}>`;
}

/** Return a task after a run of it. */
function ran(task, { at, error, next_run: next }) {
  const attempts = error ? task.attempts + 1 : 0;
  return { ...task, last_at: at, problem: error, attempts, due_at: next ?? task.due_at, state: next ? "waiting" : "done" };
}

function columns(actions) {
  return [
    { key: "name", title: "Task", isFull: true, cell: (task) => html`<${Name} task=${task} />` },
    { key: "for", title: "For", cell: (task) => html`<${Owner} task=${task} />` },
    { key: "due", title: "Due", cell: (task) => html`<${Due} task=${task} />` },
    { key: "repeats", title: "Repeats", isHidden: true, cell: (task) => html`<span class="q2">${describeRepeats(task)}</span>` },
    { key: "last", title: "Last time", label: "last", cell: (task) => html`<${Last} task=${task} />` },
    ...(actions ? [{ key: "act", header: html`<span class="vh">Actions</span>`, isFull: true, cell: actions }] : []),
  ];
}

function Summary({ rows, hasMore, isFiltered }) {
  const now = useNow();
  if (!rows || isFiltered || !rows.length) return null;
  const late = rows.filter((task) => isLate(task, now)).length;
  const failed = rows.filter((task) => task.state === "failed").length;
  const count = `${rows.length}${hasMore ? " or more" : ""} ${rows.length === 1 ? "task" : "tasks"}`;
  const words = [late ? `${late} late` : "none late", failed && `${failed} failed too often`].filter(Boolean).join(", ");
  return html`<${Note} tone=${failed ? "bad" : late ? "warn" : ""}>${count}, ${words}. A task is late when it is more than a
    minute past its time.</${Note}>`;
}

const isLate = (task, now) => task.state === "waiting" && now - new Date(task.due_at) > LATE_AFTER;

function Name({ task }) {
  return html`<b title=${task.name}>${task.description || task.name}</b>`;
}

function Owner({ task }) {
  if (task.person_id) return html`<a href=${link(`console/people/${task.person_id}`)}>${task.person || "a person"}</a>`;
  if (task.room_id) return html`<a href=${link(`console/rooms/${task.room_id}`)}>${task.room || "a room"}</a>`;
  return html`<span class="q2">character</span>`;
}

function Due({ task }) {
  const now = useNow();
  if (task.state === "paused") return html`<${State} tone="off">paused</${State}>`;
  if (task.state === "failed") return html`<${State} tone="bad">failed too often</${State}>`;
  if (task.state === "done") return html`<${State} tone="off">${task.problem ? "ended" : "done"}</${State}>`;
  if (task.state === "running") return html`<${State}>running</${State}>`;
  if (task.state === "asking") return html`<${State} tone="off">waits for a choice</${State}>`;
  if (isLate(task, now)) return html`<${State} tone="warn">late, due <${Time} at=${task.due_at} /></${State}>`;
  return html`<${Time} at=${task.due_at} />`;
}

function describeRepeats({ every_s: seconds, cron, timezone }) {
  if (cron) return `${cron} (${timezone})`;
  return seconds === null ? "once" : `every ${formatDuration(seconds * 1000).replace(/^(\d+ (?:h|min)) 0 \w+$/, "$1")}`;
}

function Last({ task }) {
  const failure = task.problem && `${task.problem}${task.attempts > 1 ? ` (${task.attempts} times)` : ""}`;
  if (failure) return html`<span class=${classes(task.state === "failed" ? "bad" : "warn")}>${failure}</span>`;
  return task.last_at ? html`<span>ran <${Time} at=${task.last_at} /></span>` : html`<span class="q2">has not run yet</span>`;
}

function Actions({ task, onChange, onDelete }) {
  const [error, setError] = useState("");
  const name = task.description || task.name;
  const act = async (send, done) => {
    setError("");
    try {
      done(await send());
    } catch (failure) {
      setError(failure.message);
    }
  };
  const decide = (decision, text) => act(() => post(`api/tasks/${task.id}/${decision}`), (changed) => {
    onChange(changed);
    toast(text);
  });
  const drop = async () => {
    const text = "It does not run again. A plugin that schedules it at every start does so again.";
    if (!(await confirm({ title: `Delete the task “${name}”?`, text, action: "Delete" }))) return;
    await act(() => remove(`api/tasks/${task.id}`), onDelete);
  };
  const isPaused = task.state === "paused" || task.state === "failed";
  return html`<div class="stack tight"><span class="row act">
    ${["waiting", "failed"].includes(task.state) && html`<${IconButton} icon="play" label=${`Run now: ${name}`}
      onClick=${() => decide("run", "It runs now")} />`}
    ${task.state === "waiting" && html`<${IconButton} icon="pause" label=${`Pause: ${name}`}
      onClick=${() => decide("pause", "Paused")} />`}
    ${isPaused && html`<${IconButton} icon="again" label=${`Resume: ${name}`} onClick=${() => decide("resume", "Resumed")} />`}
    <${IconButton} icon="trash" label=${`Delete: ${name}`} onClick=${drop} /></span>
    ${error && html`<span class="bad" role="alert">${error}</span>`}</div>`;
}
