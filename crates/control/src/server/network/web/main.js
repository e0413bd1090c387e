// The page: signing in, the views, and their refresh.

import { Refusal, forgetToken, get, hasToken, post, setToken } from "./api.js";
import { h } from "./dom.js";
import { views } from "./views.js";

const PERIOD = 2000;
const byId = (id) => document.getElementById(id);
const [nav, view, state, leave, pending] = ["nav", "view", "state", "leave", "pending"].map(byId);

/** The view that is shown: its refresh, and what ends its requests. */
let shown = { refresh: null, end: new AbortController() };

function report(text, isBad) {
  state.textContent = text;
  state.className = isBad ? "bad" : "";
}

function fail(error) {
  if (error.name === "AbortError") return;
  if (error instanceof Refusal && error.status === 401) {
    forgetToken();
    signIn(error.message);
  } else {
    report(error instanceof Refusal ? error.message : "no answer from the daemon", true);
  }
}

function signIn(problem) {
  shown.end.abort();
  shown = { refresh: null, end: new AbortController() };
  leave.hidden = true;
  pending.hidden = true;
  nav.replaceChildren();
  report("", false);
  const token = h("input", { type: "password", autocomplete: "off", "aria-label": "Token", required: true, autofocus: true });
  const enter = (event) => {
    event.preventDefault();
    setToken(token.value.trim());
    start();
  };
  view.replaceChildren(
    h("form", { class: "sheet login", onsubmit: enter },
      h("h1", {}, "Sign in"),
      h("p", { class: "soft" }, "The token that ", h("code", {}, "mmb token"), " has printed. It is kept until this tab closes."),
      token,
      problem ? h("p", { class: "bad", role: "alert" }, problem) : null,
      h("button", { type: "submit" }, "Sign in")),
  );
  token.focus();
}

/** Shows the change that waits for its confirmation. */
function showPending(change) {
  pending.hidden = !change;
  if (!change) return;
  const keep = h("button", { onclick: () => post("/v1/confirm", "").then(refresh, fail) }, "Keep the change");
  pending.replaceChildren(`Revision ${change.revision} comes back in ${change.seconds} s. `, keep);
}

async function refresh() {
  const { refresh: current, end } = shown;
  if (!current || document.hidden) return;
  try {
    const [history] = await Promise.all([get("/v1/history", end.signal), current(end.signal)]);
    if (end.signal.aborted) return;
    showPending(history.pending);
    report("live", false);
  } catch (error) {
    fail(error);
  }
}

function route() {
  if (!hasToken()) return signIn();
  const name = location.hash.slice(1);
  const current = views.find((one) => one.name === name) ?? views[0];
  shown.end.abort();
  const end = new AbortController();
  nav.replaceChildren(
    ...views.map((one) => h("a", { href: `#${one.name}`, "aria-current": one === current ? "page" : null }, one.title)),
  );
  nav.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  leave.hidden = false;
  const { element, refresh: again } = current.open({ signal: end.signal, fail, refresh });
  shown = { refresh: again, end };
  view.replaceChildren(h("h1", {}, current.title), element);
  document.title = `${current.title} · mmb`;
  refresh();
}

function start() {
  get("/v1/version").then(route, fail);
}

leave.addEventListener("click", () => {
  forgetToken();
  signIn();
});
window.addEventListener("hashchange", route);
document.addEventListener("visibilitychange", refresh);
setInterval(refresh, PERIOD);
if (hasToken()) start();
else signIn();
