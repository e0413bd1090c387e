// The path of packets, and why: live, as `mmb trace` shows it.

import { Refusal, stream } from "./api.js";
import { h } from "./dom.js";

const COUNT = 20;
const SECONDS = 60;

export function openTrace({ signal, fail }) {
  const matches = h("input", { type: "text", placeholder: "Matches, for example ip-saddr 10.0.0.1 tcp-dport 443", "aria-label": "Matches" });
  const button = h("button", { type: "submit" }, "Trace"), state = h("p", { class: "soft", role: "status" });
  const list = h("section", { class: "sheet", hidden: true });
  let running = null;
  const say = (text, kind = "soft") => {
    state.textContent = text;
    state.className = kind;
  };
  say(`Shows the next ${COUNT} packets that match, for ${SECONDS} s at most: each node, the rules, and what became of them.`);

  async function run(event) {
    event.preventDefault();
    if (running) return running.abort();
    running = new AbortController();
    signal.addEventListener("abort", () => running?.abort());
    button.textContent = "Stop";
    list.replaceChildren();
    list.hidden = false;
    say("Waiting for packets…");
    let count = 0;
    try {
      const path = `/v1/trace?count=${COUNT}&seconds=${SECONDS}&match=${encodeURIComponent(matches.value)}`;
      await stream(path, COUNT, (packet) => {
        list.append(entry(packet, count === 0));
        count += 1;
        say(`${count} of ${COUNT} packets`);
      }, running.signal);
      say(count === 0 ? "No packet matched." : `${count} packets`);
    } catch (error) {
      if (error.name === "AbortError") say(`${count} packets; stopped`);
      else if (error instanceof Refusal && error.status !== 401) say(error.message, "bad");
      else fail(error);
    } finally {
      running = null;
      button.textContent = "Trace";
      list.hidden = count === 0;
    }
  }

  const form = h("form", { class: "bar", onsubmit: run }, matches, button);
  return { element: h("div", {}, form, state, list), refresh: async () => {} };
}

const change = ({ field, before, after }) => `${field}: ${before ?? "absent"} → ${after ?? "absent"}`;

/** A packet: its line, and what happened to it. */
function entry(packet, isOpen) {
  const end = { sent: `sent to ${packet.out ?? "?"}`, dropped: `dropped: ${packet.reason ?? ""}` }[packet.result] ?? packet.result;
  const kind = packet.result === "dropped" ? "bad" : packet.result === "sent" ? "good" : "warn";
  const facts = [];
  if (packet.reason_help) facts.push(packet.reason_help);
  if (packet.parse_error) facts.push(`headers: ${packet.parse_error}`);
  for (const rule of packet.rules?.matched ?? []) {
    facts.push(`rule ${rule.index}${rule.index === packet.rules.decider ? " decides" : ""}: ${rule.text}`);
  }
  for (const rule of packet.rules?.of_session ?? []) facts.push(`rule ${rule.index}, of the session: ${rule.text}`);
  if (packet.session) facts.push(`session ${packet.session.is_new ? "opened" : "found"}: ${packet.session.direction}, ${packet.session.connection.state}`);
  const nodes = packet.nodes.map((node) => h("li", {}, node.node, [...(node.changes ?? []), ...(node.functions ?? []).flatMap((one) => one.changes ?? [])].map((one) => h("div", { class: "mono" }, change(one)))));
  return h("details", { open: isOpen },
    h("summary", {}, h("span", { class: "mono" }, `${packet.in ?? "?"}  ${packet.summary}  `), h("span", { class: kind }, end)),
    facts.map((fact) => h("p", {}, fact)), h("ol", {}, nodes));
}
