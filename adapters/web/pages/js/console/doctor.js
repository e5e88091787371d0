// Doctor: the checks of `bot doctor` beside the running bot, problems first, each with what to do.

import { post, useLoad } from "../api.js";
import { countOf, formatDuration, Time } from "../format.js";
import { html, useEffect, useState } from "../lib.js";
import { ErrorNote, Skeleton } from "../lists.js";
import { Button, Card, Icon, Note, PageBody } from "../ui.js";
import { OperatorOnly } from "./plugins.js";

const MARKS = { ok: ["check", "good"], warn: ["warn", "warn"], fail: ["cross", "bad"] };
const WORDS = { ok: "fine", warn: "warning", fail: "error" };

function Finding({ finding }) {
  const [icon, tone] = MARKS[finding.state];
  return html`<div class="check"><span><${Icon} name=${icon} tone=${tone} /><span class="vh">${WORDS[finding.state]}</span></span>
    <strong>${finding.subject}</strong><div class="wrap"><p>${finding.text}</p>
    ${finding.fix && html`<p class="fix">→ ${finding.fix}</p>`}</div></div>`;
}

function Summary({ findings }) {
  const count = (state) => findings.filter((finding) => finding.state === state).length;
  const [errors, warnings] = [count("fail"), count("warn")];
  if (!errors && !warnings) return html`<${Note} tone="good">Nothing to correct.</${Note}>`;
  return html`<${Note} tone=${errors ? "bad" : "warn"}>${countOf(errors, "error")}, ${countOf(warnings, "warning")}. The bot runs.</${Note}>`;
}

export default function Page({ session, query }) {
  const isOperator = session.role === "operator";
  const last = useLoad(isOperator ? "api/doctor" : null, { agent: query.agent });
  const [result, setResult] = useState(null);
  const [error, setError] = useState(null);
  const [isRunning, setRunning] = useState(false);
  const run = async () => {
    setRunning(true);
    try {
      setResult(await post("api/doctor", undefined, { query: { agent: query.agent } }));
      setError(null);
    } catch (cause) {
      setError(cause);
    }
    setRunning(false);
  };
  useEffect(() => setResult(null), [query.agent]);
  useEffect(() => {
    if (last.value && !last.value.ran_at && !result) run();
  }, [last.value]);
  if (!isOperator) return html`<${OperatorOnly} title="Doctor" />`;
  const shown = result ?? (last.value?.ran_at ? last.value : null);
  const failure = error ?? last.error;
  const actions = html`<span class="q" role="status">${isRunning ? "Running; this takes a few seconds"
      : shown && html`last run <${Time} at=${shown.ran_at} />, ${formatDuration(shown.seconds * 1000)}, one small model call`}</span>
    <${Button} icon="again" onClick=${run}>Run again</${Button}>`;
  return html`<${PageBody} title="Doctor" actions=${actions}>
    ${failure && html`<${ErrorNote} error=${failure} onRetry=${run} />`}
    ${!shown && !failure && html`<${Skeleton} rows=${8} />`}
    ${shown && html`<${Summary} findings=${shown.findings} /><${Card} aria-label="Checks">
      ${shown.findings.map((finding, index) => html`<${Finding} key=${index} finding=${finding} />`)}</${Card}>`}</${PageBody}>`;
}
