// The characters that share the account of a room: who of them speaks there, and the boxes that change it.

import { post, useLoad } from "../api.js";
import { Dialog } from "../dialogs.js";
import { html, useRef, useState } from "../lib.js";
import { ErrorNote, Skeleton } from "../lists.js";
import { toast } from "../overlay.js";
import { Button, Face, Note } from "../ui.js";

export default function Cast({ room, session, onClose }) {
  const path = `api/rooms/${room.id}/cast`;
  const { value: loaded, error, reload } = useLoad(path);
  const [changed, setChanged] = useState(null);
  const [problem, setProblem] = useState("");
  const sent = useRef(Promise.resolve()); // one change after the other
  const cast = changed ?? loaded;
  const canChange = session.role === "operator";
  const heading = `Who speaks in ${room.name || room.external_id}`;
  const speaking = new Set(cast?.members.map((item) => item.agent_id));
  const all = [...(cast?.members ?? []), ...(cast?.others ?? [])].sort((a, b) => a.name.localeCompare(b.name));
  const change = ({ agent_id, name }, action) => {
    sent.current = sent.current.then(() => post(path, { action, agent_id })).then((next) => {
      setChanged(next);
      setProblem("");
      const stays = action === "remove" && next.members.some((item) => item.agent_id === agent_id);
      toast(stays ? `${name} speaks where no other does` : action === "add" ? `${name} speaks here now` : `${name} no longer speaks here`);
    }, (failure) => {
      setProblem(failure.message);
      setChanged((old) => ({ ...(old ?? loaded) })); // the box is drawn as it is;
    });
  };
  return html`<${Dialog} title=${heading} onClose=${onClose}><div class="stack"><h2>${heading}</h2>
    ${error && html`<${ErrorNote} error=${error} onRetry=${reload} />`}
    ${!cast && !error && html`<${Skeleton} rows=${3} />`}
    ${cast && html`<p class="hint">${cast.members[0].name} answers where the account is mentioned and no name is said.</p>
      <ul class="stack" aria-label="Characters">${all.map((item) => html`<li key=${item.agent_id}><label class="row">
        <input type="checkbox" class="pick" checked=${speaking.has(item.agent_id)} disabled=${!canChange}
          onChange=${(event) => change(item, event.target.checked ? "add" : "remove")} />
        <${Face} name=${item.name} size="s" /><span class="cut">${item.name}</span></label></li>`)}</ul>`}
    ${problem && html`<${Note} tone="bad">${problem}</${Note}>`}
    <div class="row end"><${Button} onClick=${onClose}>Close</${Button}></div></div></${Dialog}>`;
}
