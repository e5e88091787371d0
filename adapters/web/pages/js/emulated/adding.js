// The dialog that adds a room or a person to an emulated platform.

import { Dialog } from "../dialogs.js";
import { html, render, useState } from "../lib.js";
import { Button, Field, Segmented } from "../ui.js";

const PERSON = "person";

/** Ask what to add and its name, and add it. Return the id of a new room, or "". */
export function askForNew(platform) {
  const place = document.createElement("div");
  document.body.append(place);
  return new Promise((resolve) => {
    const close = (id = "") => {
      render(null, place);
      place.remove();
      resolve(id);
    };
    render(html`<${NewForm} platform=${platform} onClose=${close} />`, place);
  });
}

function NewForm({ platform, onClose }) {
  const options = [...platform.kinds, ...(platform.can("add person") ? [[PERSON, "Person"]] : [])];
  const [kind, setKind] = useState(options[0][0]);
  const [name, setName] = useState("");
  const [error, setError] = useState("");
  const submit = async (event) => {
    event.preventDefault();
    try {
      if (kind === PERSON) await platform.addPerson(name);
      onClose(kind === PERSON ? "" : await platform.addRoom(kind, name));
    } catch (refusal) {
      setError(refusal.message);
    }
  };
  const title = platform.kinds.length ? "New room or person" : "New person";
  return html`<${Dialog} title=${title} onClose=${() => onClose()}><form class="stack" onSubmit=${submit}><h2>${title}</h2>
    ${options.length > 1 && html`<${Segmented} name="What to add" options=${options} value=${kind} onChange=${setKind} />`}
    <${Field} label="Name" value=${name} onInput=${setName} error=${error} autocomplete="off" maxlength="60" autofocus=${true} />
    <div class="row end"><${Button} onClick=${() => onClose()}>Cancel</${Button}>
      <button type="submit" class="btn primary">Add</button></div></form></${Dialog}>`;
}
