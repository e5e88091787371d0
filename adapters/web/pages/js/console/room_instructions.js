// The instructions of a room: what is in effect, who set each value, and the form that changes them.

import { put, useLoad } from "../api.js";
import { Dialog } from "../dialogs.js";
import { formatTime } from "../format.js";
import { html, useState } from "../lib.js";
import { ErrorNote, Skeleton } from "../lists.js";
import { toast } from "../overlay.js";
import { Button, Field, Note, Segmented } from "../ui.js";

const LONG = ["instructions", "notes"];
const TITLES = { tools: "Actions", answer: "Answers", budget: "Budget (dollars a day)" };
const ORIGINS = { world: "the server", parent: "the channel of this thread", room: "this room" };
const title = (key) => TITLES[key] ?? key[0].toUpperCase() + key.slice(1);

/** Say where a value is set, by whom and when. */
function describe({ origin, place, by, at }) {
  if (origin === "file") return `Set in the character's file for ${place}`;
  return `Set for ${ORIGINS[origin]} by ${by || "an operator"}${at ? `, ${formatTime(at, "date")}` : ""}`;
}

export default function Instructions({ room, session, onClose }) {
  const path = `api/rooms/${room.id}/instructions`;
  const { value: loaded, error, reload } = useLoad(path);
  const [place, setPlace] = useState("room");
  const [changed, setChanged] = useState({});
  const [problem, setProblem] = useState("");
  const isOperator = session.role === "operator";
  const heading = `Instructions for ${room.name || room.external_id}`;
  const known = Object.fromEntries((loaded?.values ?? []).map((item) => [item.key, item]));
  const save = (event) => {
    event.preventDefault();
    put(path, { values: changed, of_world: place === "world" }).then(() => {
      toast("Saved: the next message is answered this way");
      setChanged({});
      setProblem("");
      reload();
    }, (failure) => setProblem(failure.message));
  };
  const fieldOf = ([key, usage]) => {
    const item = known[key];
    const own = item?.origin === place ? item.value : "";
    return html`<${Field} key=${`${place} ${key}`} label=${title(key)} multiline=${LONG.includes(key)} readonly=${!isOperator}
      hint=${item ? describe(item) : `Not set: ${usage}`} placeholder=${item?.value ?? ""} value=${changed[key] ?? own}
      onInput=${(text) => setChanged((old) => ({ ...old, [key]: text }))} />`;
  };
  return html`<${Dialog} title=${heading} onClose=${onClose}><form class="stack" onSubmit=${save}><h2>${heading}</h2>
    ${error && html`<${ErrorNote} error=${error} onRetry=${reload} />`}
    ${!loaded && !error && html`<${Skeleton} rows=${6} />`}
    ${loaded && html`${isOperator && html`<${Segmented} name="Set for" value=${place} options=${[["room", "This room"], ["world", loaded.world || "Its server"]]}
        onChange=${(next) => (setPlace(next), setChanged({}))} />`}
      ${Object.entries(loaded.keys).map(fieldOf)}`}
    ${problem && html`<${Note} tone="bad">${problem}</${Note}>`}
    <div class="row end"><${Button} onClick=${onClose}>Close</${Button}>
      ${isOperator && html`<button type="submit" class="btn primary" aria-disabled=${Object.keys(changed).length ? undefined : "true"}>Save</button>`}</div>
  </form></${Dialog}>`;
}
