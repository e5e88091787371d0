// Duties: who was told that an AI writes, referrals to help, people who are not read, minors, and the settings for them.

import { useLoad } from "../api.js";
import { countOf, formatCount, Time } from "../format.js";
import { html } from "../lib.js";
import { ErrorNote, Skeleton } from "../lists.js";
import { link } from "../router.js";
import { Card, Chip, Note, PageBody } from "../ui.js";

const CATEGORIES = {
  suicide: "Suicide", self_harm: "Self-harm", eating_disorder: "Eating disorders", emergency: "Emergencies",
};
const MARKS = { not_read: "not read", minor: "minor" };
const ORIGINS = { person: "They asked for it", operator: "Set by an operator", role: "They have a role of IGNORED_ROLES" };
const UNSET = {
  AI_NOTICE: "every three hours in private chats, once in groups", AI_NOTICE_TEXT: "the text of the language",
  AI_NOTICE_POSTS: "posts on X have no label", CARE: "on", CARE_COUNTRY: "the directory of helplines",
  CARE_IN_GROUPS: "in groups only who addresses the bot", CARE_TEXT: "the text of the language",
  MINORS: "the notice every hour, no romance", IGNORED_ROLES: "no role",
};
const CONTENT = { general: "for everybody", mature: "for adults: it speaks in age-restricted rooms only" };

function Sent({ duties }) {
  const { notified_people: notified, care } = duties;
  const named = Object.entries(care.categories).filter(([, count]) => count > 0);
  return html`<${Card} title="Notices and referrals" padded><dl class="kv">
      <dt>AI notice</dt><dd>${notified ? `${countOf(notified, "person", "people")} told that an AI writes` : "No person was told yet"}</dd>
      <dt>Referrals to help</dt><dd>${formatCount(care.total)} in the last 30 days</dd>
      ${named.map(([name, count]) => html`<dt key=${name}>${CATEGORIES[name]}</dt><dd>${formatCount(count)}</dd>`)}</dl>
    <p class="q pad-y">Referrals are counted by day and kind of distress; whose they were is not stored with the count.</p></${Card}>`;
}

function Marks({ marks, query }) {
  const empty = html`<div class="pad"><p class="q">No person is marked. People write <span class="mono">/ignore-me</span>; operators
    use <a href=${link("console/people", query)}>the person's page</a>.</p></div>`;
  return html`<${Card} title="People who are not read, and minors">${marks.length === 0 ? empty : html`<ul class="facts-list">
    ${marks.map((mark) => html`<li key=${`${mark.agent} ${mark.person} ${mark.mark} ${mark.origin}`}><div class="grow">
      <p><a href=${link(`console/people/${mark.person}`, { agent: mark.agent })}>${mark.platform} ${mark.external_id}</a></p>
      <p class="q">${ORIGINS[mark.origin]}, <${Time} at=${mark.at} /></p></div>
      <${Chip} tone=${mark.mark === "not_read" ? "warn" : ""}>${MARKS[mark.mark]}</${Chip}></li>`)}</ul>`}</${Card}>`;
}

function Settings({ duties, agents }) {
  const shown = agents.filter((agent) => agent.id in duties.content);
  return shown.map((agent) => html`<${Card} key=${agent.id} title=${`Settings of ${agent.name}`} padded><dl class="kv">
    <dt class="mono">content</dt><dd>${CONTENT[duties.content[agent.id]]}</dd>
    ${duties.settings.filter((setting) => setting.agent === agent.id).map((setting) => [html`<dt class="mono">${setting.name}</dt>`,
      html`<dd>${setting.value ?? html`<span class="q">not set: ${UNSET[setting.name]}</span>`}</dd>`])}</dl></${Card}>`);
}

export default function Page({ session, query }) {
  const { value: duties, error, reload } = useLoad("api/duties", { agent: query.agent });
  return html`<${PageBody} title="Duties">
    <${Note}>What laws ask and which setting serves it is in docs/duties.md. This is not legal advice.</${Note}>
    ${error && html`<${ErrorNote} error=${error} onRetry=${reload} />`}
    ${!duties && !error && html`<${Skeleton} rows=${8} />`}
    ${duties && html`<div class="stack"><${Sent} duties=${duties} /><${Marks} marks=${duties.marks} query=${query} />
      <${Settings} duties=${duties} agents=${session.agents} /></div>`}</${PageBody}>`;
}
