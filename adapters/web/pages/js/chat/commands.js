// The menu of commands, which opens while the field holds the beginning of one; loaded with the first slash.

import { get } from "../api.js";
import { html, t, useEffect, useRef, useState } from "../lib.js";

const loaded = new Map(); // the commands of each character

async function load(agentId) {
  if (!loaded.has(agentId)) loaded.set(agentId, (await get(`api/agents/${agentId}/commands`)).commands);
  return loaded.get(agentId);
}

/**
 * The commands that begin with what is written. The focus stays in `field`; `keys.current(event)` returns whether the
 * menu has used a key. `onChoose(text)` replaces what is written.
 */
export function CommandMenu({ agent, text, field, keys, onChoose }) {
  const [commands, setCommands] = useState(loaded.get(agent.id) ?? []);
  const [at, setAt] = useState(0);
  const [isClosed, setClosed] = useState(false);
  const list = useRef(null);
  const shown = isClosed ? [] : commands.filter(({ name }) => name.startsWith(text.slice(1).toLowerCase()));
  const index = Math.min(at, shown.length - 1);
  useEffect(() => {
    let isShown = true;
    load(agent.id).then((all) => isShown && setCommands(all), () => {});
    return () => void (isShown = false);
  }, [agent.id]);
  useEffect(() => {
    setAt(0);
    if (text === "/") setClosed(false); // begun anew
  }, [text]);
  useEffect(() => {
    const node = field.current;
    if (!node) return undefined;
    const values = shown.length ? { "aria-controls": "commands", "aria-activedescendant": `command-${index}`, "aria-autocomplete": "list" } : {};
    Object.entries(values).forEach(([name, value]) => node.setAttribute(name, value));
    list.current?.children[index]?.scrollIntoView({ block: "nearest" });
    return () => Object.keys(values).forEach((name) => node.removeAttribute(name));
  }, [shown.length, index]);
  keys.current = (event) => {
    if (!shown.length || event.shiftKey || event.altKey || event.ctrlKey || event.metaKey) return false;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) setAt((index + step + shown.length) % shown.length);
    else if (event.key === "Escape") setClosed(true);
    else if (event.key === "Tab" || (event.key === "Enter" && text !== `/${shown[index].name}`)) onChoose(`/${shown[index].name} `);
    else return false;
    return true;
  };
  useEffect(() => () => void (keys.current = null), []);
  return html`<div class="commands"><p class="vh" role="status">${shown.length ? t("{count} commands, choose with the arrow keys", { count: shown.length }) : ""}</p>
    ${shown.length > 0 && html`<ul id="commands" role="listbox" aria-label="Commands" tabindex="0" ref=${list}>${shown.map((command, number) => html`
      <li key=${command.name} id=${`command-${number}`} role="option" aria-selected=${String(number === index)}
        class=${number === index ? "on" : ""} onMouseDown=${(event) => event.preventDefault()}
        onClick=${() => onChoose(`/${command.name} `)}><b>/${command.name}</b><span class="cut q2">${command.description}</span></li>`)}</ul>`}</div>`;
}
