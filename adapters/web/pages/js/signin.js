// The sign-in page: a field for the token; afterwards the browser has a session cookie.

import { BASE, post } from "./api.js";
import { html, render, t, useEffect, useRef, useState } from "./lib.js";
import { parseAddress } from "./router.js";
import { Brand, Field } from "./ui.js";

/** Return the address after signing in: only one of this app. */
function nextAddress() {
  const next = parseAddress().query.next;
  const url = new URL(typeof next === "string" ? next : "", BASE);
  return url.href.startsWith(BASE.href) ? url.href : BASE.href;
}

function SignIn() {
  const [token, setToken] = useState("");
  const [error, setError] = useState("");
  const [isBusy, setBusy] = useState(false);
  const input = useRef(null);
  useEffect(() => input.current.focus(), []);
  const submit = async (event) => {
    event.preventDefault();
    if (isBusy) return;
    if (!token.trim()) return void setError(t("Enter the token."));
    setBusy(true);
    try {
      await post("api/session", { token: token.trim() });
      location.replace(nextAddress());
    } catch (problem) {
      setError(problem.message);
      setBusy(false);
      input.current.select();
    }
  };
  return html`<div class="card"><${Brand} />
    <div class="stack tight"><h1>Sign in</h1><p class="q2">Enter the token of this bot. <code>bot run</code> prints a link that
      contains it; it is also in the file <code>data/server-token</code>.</p></div>
    <form class="stack" onSubmit=${submit}>
      <${Field} label="Token" type="password" autocomplete="current-password" inputRef=${input} value=${token}
        onInput=${setToken} error=${error} hint="This browser stays signed in for 30 days." />
      <button class="btn primary" type="submit" aria-busy=${isBusy || undefined}>Sign in</button>
    </form></div>`;
}

render(html`<${SignIn} />`, document.getElementById("app"));
