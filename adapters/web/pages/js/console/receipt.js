// One receipt as a page: what was decided and by what, how long and how much, what was sent to the model, ids.

import { useLoad } from "../api.js";
import { Time } from "../format.js";
import { html, useState } from "../lib.js";
import { ErrorNote, Skeleton } from "../lists.js";
import { copyText, useMedia } from "../overlay.js";
import { Link } from "../router.js";
import { Button, Icon } from "../ui.js";
import { Calls, Deliveries, Figures, Gate, Ids, MemoryUsed, Message, Notes, Prompts, Section, Timing, Verdict } from "../why.js";

export default function Page({ session, params }) {
  const [id = ""] = params;
  const isNarrow = useMedia("(max-width: 80rem)"); // for the axis of time
  const { value: receipt, error, reload } = useLoad(`api/receipts/${encodeURIComponent(id)}`);
  if (error && receipt?.id !== id) {
    return html`<div class="page"><div class="in pad-y"><h1>Receipt</h1><${ErrorNote} error=${error} onRetry=${reload} /></div></div>`;
  }
  if (!receipt) return html`<div class="page"><div class="in"><${Skeleton} rows=${10} label="Loading the receipt" /></div></div>`;
  return html`<div class="page"><div class="in"><${Head} receipt=${receipt} />
    <section class="card padded" aria-label="Outcome"><div class="pad stack wide"><div class="verdict"><${Verdict} receipt=${receipt} isPage>
      ${" · "}${receipt.author ?? "a person"} in ${receipt.room ?? "a room"}, <${Time} at=${receipt.received_at} as="second" /></${Verdict}></div>
      <${Figures} receipt=${receipt} /></div></section>
    <div class="receipt-grid">
      <div class="stack wide">${[Message, Timing, Calls].map((Part) => html`<${Part} key=${Part.name} level=${2}
        ...${{ receipt, isNarrow }} />`)}<${Prompts} receipt=${receipt} session=${session} level=${2} />
        ${session?.role === "operator" && receipt.model_calls.length > 0 && html`<${Replay} key=${receipt.id} id=${receipt.id} />`}</div>
      <div class="stack wide">${[Gate, MemoryUsed, Notes, Deliveries, Ids].map((Part) => html`<${Part} receipt=${receipt} level=${2}
        key=${Part.name} />`)}</div></div></div></div>`;
}

/** Runs the turn again when it is asked for, and shows whether all is as it was. */
function Replay({ id }) {
  const [isOpen, setOpen] = useState(false);
  const { value, error, reload } = useLoad(isOpen ? `api/receipts/${id}/replay` : null);
  const [first] = value?.differences ?? [];
  const result = { equal: `Equal: ${value?.steps.join(", ")}`, "not replayed": `It cannot be replayed: ${value?.reason}`,
    different: first && `${first.step} differs in line ${first.line}; ${value.differences.length} of ${value.steps.length} steps differ` };
  return html`<${Section} title="Replay" small="operators only" level=${2}>
    ${!isOpen && html`<p class="q2">Runs the turn again from its record and compares it; no model is asked, nothing is sent.</p>
      <button type="button" class="btn" onClick=${() => setOpen(true)}>Replay the turn</button>`}
    ${error ? html`<${ErrorNote} error=${error} onRetry=${reload} />` : isOpen && !value
      && html`<${Skeleton} rows=${2} label="Replaying the turn" />`}
    ${value && html`<p role="status">${result[value.state]}</p>`}
    ${first && html`<pre tabindex="0" role="region" aria-label="What differs">${first.diff.join("\n")}</pre>`}</${Section}>`;
}

/** Where this is, and what can be done with it: copy it, go to the message before or after it in its room. */
function Head({ receipt }) {
  const beside = { room: receipt.room_id, agent: receipt.agent_id, limit: 1 };
  const [older, newer] = [{ before: receipt.id }, { after: receipt.id }].map((place) => useLoad("api/receipts", { ...beside, ...place })
    .value?.receipts[0]?.id);
  const separator = html`<${Icon} name="right" size="s" />`;
  return html`<header class="page-head"><nav class="crumbs" aria-label="Where this is"><${Link} to="console/rooms">Rooms</${Link}>
      ${receipt.world && html`<span class="row only-wide">${separator}${receipt.world}</span>`}
      ${separator}<${Link} class="cut" to=${`console/rooms/${receipt.room_id}`}>${receipt.room ?? "Room"}</${Link}>
      <span class="row only-wide">${separator}Receipt</span></nav>
    <${Button} icon="copy" onClick=${() => copyText(JSON.stringify(receipt, null, 2))}>Copy as JSON</${Button}>
    ${older && html`<${Button} icon="left" data-key="[" to=${`console/receipts/${older}`}>Older</${Button}>`}
    ${newer && html`<${Button} data-key="]" to=${`console/receipts/${newer}`}>Newer${separator}</${Button}>`}</header>`;
}
