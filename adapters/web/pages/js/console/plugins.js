// Plugins: what is on, what each brings, and why one is off; problems first.

import { useLoad } from "../api.js";
import { countOf } from "../format.js";
import { html } from "../lib.js";
import { Empty, ListState } from "../lists.js";
import { Card, Chip, Icon, Note, PageBody } from "../ui.js";

const MARKS = { on: ["check", "good"], off: ["close", "q"], failed: ["warn", "warn"] };

/** What a page shows to a token that is not an operator's. */
export function OperatorOnly({ title }) {
  return html`<${PageBody} title=${title}><${Note} icon="key">Only an operator sees this. Sign in with an operator's
    token.</${Note}></${PageBody}>`;
}

/** Say what a plugin brings: "14 actions, 2 services". */
function describe(plugin) {
  const kinds = Object.entries(plugin.brings)
    .map(([kind, names]) => `${names.length} ${names.length === 1 ? kind.replace(/s$/, "") : kind}`);
  return kinds.join(", ") || "its settings";
}

function Plugin({ plugin }) {
  const [icon, tone] = MARKS[plugin.state];
  return html`<div class="check"><${Icon} name=${icon} tone=${tone} /><strong class="wrap">${plugin.name}</strong>
    <div><p>${plugin.why || plugin.description}</p>
      ${plugin.fix && html`<p class="fix">→ ${plugin.fix}</p>`}
      <details><summary><${Icon} name="right" size="s" tone="turn" /> ${describe(plugin)}</summary><ul class="brings">
        ${plugin.why && plugin.description && html`<li>${plugin.description}</li>`}
        ${Object.entries(plugin.brings).map(([kind, names]) => html`<li key=${kind}>
          ${kind}: <span class="mono">${names.join(", ")}</span></li>`)}
        ${plugin.settings.length > 0 && html`<li>settings: <span class="mono">${plugin.settings.join(", ")}</span></li>`}
        ${plugin.package && html`<li>package: ${plugin.package} ${plugin.version}</li>`}</ul></details></div>
    <${Chip} tone=${plugin.state === "failed" ? "warn" : ""}>${plugin.state}</${Chip}></div>`;
}

export default function Page({ session, query }) {
  const isOperator = session.role === "operator";
  const list = useLoad(isOperator ? "api/plugins" : null, { agent: query.agent });
  if (!isOperator) return html`<${OperatorOnly} title="Plugins" />`;
  const plugins = list.value?.plugins;
  const failed = plugins?.filter((plugin) => plugin.state === "failed").length ?? 0;
  const on = plugins?.filter((plugin) => plugin.state === "on").length ?? 0;
  const empty = html`<${Empty} title="No plugin is installed" />`;
  return html`<${PageBody} title="Plugins">
    ${plugins && (failed > 0
      ? html`<${Note} tone="warn">${countOf(failed, "plugin")} should be on and ${failed === 1 ? "is" : "are"} not.</${Note}>`
      : html`<${Note} tone="good">${countOf(on, "plugin is", "plugins are")} on; none has a problem.</${Note}>`)}
    <${ListState} list=${list} rows=${plugins} empty=${empty} />
    ${plugins?.length > 0 && html`<${Card} aria-label="Plugins">
      ${plugins.map((plugin) => html`<${Plugin} key=${plugin.name} plugin=${plugin} />`)}</${Card}>`}</${PageBody}>`;
}
