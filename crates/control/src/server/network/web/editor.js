// The rules with their counters, and the editor of the configuration. The daemon checks what is typed.

import { Refusal, get, post } from "./api.js";
import { Rates, h, perSecond, short, table, whole } from "./dom.js";

/** Time without a key until the text is checked, in milliseconds. */
const PAUSE = 300;
/** Seconds after which a change is taken back unless it is confirmed. */
const CONFIRM = 60;

export function openRules({ signal, fail, refresh: again }) {
  const rates = new Rates(), list = h("section", { class: "sheet" });
  const refresh = async (ends) => {
    const { rules } = await get("/v1/rules", ends);
    const rate = rates.take(rules.map((rule) => [rule.index, rule.packets]));
    list.replaceChildren(table([
      { name: "Index", number: true, of: (rule) => rule.index },
      { name: "Rule", wide: true, of: (rule) => rule.text },
      { name: "Packets", number: true, of: (rule) => whole(rule.packets) },
      { name: "Now", number: true, of: (rule) => perSecond(rate(rule.index)) },
      { name: "Bytes", number: true, of: (rule) => short(rule.bytes) },
      { name: "Decided", number: true, of: (rule) => (rule.decided === undefined ? "" : whole(rule.decided)) },
    ], rules, "There are no rules: all packets pass."));
  };
  return { element: h("div", {}, list, editor({ signal, fail, again })), refresh };
}

function editor({ signal, fail, again }) {
  const text = h("textarea", { spellcheck: "false", autocapitalize: "off", "aria-label": "Configuration", hidden: true });
  const state = h("p", { role: "status", class: "soft" }, "The whole configuration, as “show config” prints it.");
  const diagnostics = h("ul", { class: "diagnostics" }), changes = h("pre", { hidden: true });
  const open = h("button", { class: "quiet", onclick: load }, "Edit the configuration");
  const show = h("button", { class: "quiet", hidden: true, onclick: diff }, "Show the changes");
  const apply = h("button", { hidden: true, disabled: true, onclick: send }, `Apply, and confirm within ${CONFIRM} s`);
  let timer, running = new AbortController();

  const say = (sentence, kind = "soft") => {
    state.textContent = sentence;
    state.className = kind;
  };

  function load() {
    get("/v1/config", signal).then(({ config }) => {
      text.value = config;
      for (const element of [text, show, apply]) element.hidden = false;
      open.textContent = "Load the running configuration again";
      changes.hidden = true;
      check();
    }, fail);
  }

  /** Checks the text by the parser of the daemon. An older check that runs is given up. */
  async function check() {
    running.abort();
    running = new AbortController();
    const own = running;
    apply.disabled = true;
    try {
      const reply = await post("/v1/check", text.value, own.signal);
      diagnostics.replaceChildren(...(reply.warnings ?? []).map((warning) => h("li", {}, warning)));
      say(`No errors: ${reply.rules} rules, ${reply.interfaces} interfaces.`, "good");
      apply.disabled = false;
    } catch (error) {
      if (error.name === "AbortError") return;
      if (!(error instanceof Refusal) || error.status === 401) return fail(error);
      say(error.message, "bad");
      diagnostics.replaceChildren(...error.diagnostics.map(diagnostic));
    }
  }

  /** An error with a button that selects the wrong word. */
  function diagnostic({ line, column, start, end, message, help }) {
    const select = () => {
      const before = text.value.split("\n").slice(0, line - 1).reduce((all, one) => all + one.length + 1, 0);
      const wrong = text.value.split("\n")[line - 1] ?? "";
      // Places are in bytes of UTF-8.
      const bytes = new TextEncoder().encode(wrong);
      const offset = (at) => before + new TextDecoder().decode(bytes.slice(0, at)).length;
      text.focus();
      text.setSelectionRange(offset(start), offset(end));
    };
    return h("li", {}, h("button", { onclick: select }, `Line ${line}, column ${column}`), `: ${message}`, help ? `; ${help}` : "");
  }

  function diff() {
    post("/v1/diff", text.value, signal).then((reply) => {
      const line = (kind, sign) => (one) => h("span", { class: kind }, `${sign} ${one}\n`);
      const lines = [...reply.removed.map(line("del", "-")), ...reply.added.map(line("add", "+"))];
      changes.replaceChildren(...(lines.length > 0 ? lines : ["No changes."]));
      changes.hidden = false;
    }, refused);
  }

  function send() {
    post(`/v1/apply?confirm=${CONFIRM}`, text.value, signal).then((reply) => {
      say(reply.done, "good");
      again();
    }, refused);
  }

  const refused = (error) => (error instanceof Refusal && error.status !== 401 ? say(error.message, "bad") : fail(error));

  text.addEventListener("input", () => {
    clearTimeout(timer);
    apply.disabled = true;
    timer = setTimeout(check, PAUSE);
  });
  return h("section", { class: "sheet" }, h("h2", {}, "Editor"), text, state, diagnostics, h("div", { class: "bar" }, open, show, apply), changes);
}
