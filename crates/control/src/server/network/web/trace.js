// What happens to packets, and why: live, as `mmb trace` shows it, and for a packet of a capture, by the rules.

import { Refusal, get, post, stream } from "./api.js";
import { part, readCapture } from "./capture.js";
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
  const element = h("div", {}, h("section", { class: "sheet" }, h("h2", {}, "Live packets"), form, state), list, openFile({ signal, fail }));
  return { element, refresh: async () => {} };
}

/** A packet of a capture file: what happens to it, and what the rules say about it. */
function openFile({ signal, fail }) {
  const file = h("input", { type: "file", accept: ".pcap,.pcapng,.cap", "aria-label": "Capture", onchange: load });
  const input = h("select", { "aria-label": "Comes in by", onchange: explain });
  const number = h("input", { type: "number", min: 1, value: 1, "aria-label": "Packet", onchange: explain });
  const choice = h("span", { class: "bar", hidden: true }, "Packet", number, h("span", {}), "comes in by", input);
  const state = h("p", { class: "soft", role: "status" }, "The packet passes through a copy of the running configuration: rules, sessions, translation, chains, routes. The file stays in the browser; the packet and some before it are sent to the daemon.");
  const result = h("div", {});
  let capture = { heads: [], frames: [] };

  async function load() {
    result.replaceChildren();
    choice.hidden = true;
    try {
      if (file.files.length === 0) return;
      capture = await readCapture(file.files[0]);
      const { interfaces } = await get("/v1/interfaces", signal);
      input.replaceChildren(...interfaces.map(({ name }) => h("option", {}, name)));
    } catch (error) {
      return problem(error);
    }
    number.max = capture.frames.length;
    number.value = 1;
    number.nextSibling.textContent = `of ${capture.frames.length}`;
    choice.hidden = false;
    await explain();
  }

  async function explain() {
    const last = Number(number.value) - 1, frame = capture.frames[last];
    if (!frame) return problem(new Error(`There is no packet ${number.value}.`));
    const from = `interface=${encodeURIComponent(input.value)}`, sent = part(capture, last);
    if (!sent) return problem(new Error(`Packet ${number.value} is too long to be sent.`));
    try {
      const { packets } = await post(`/v1/explain/capture?${from}&packet=${sent.count}`, sent.body, signal);
      const reply = await post(`/v1/explain?${from}`, frame.data, signal);
      state.textContent = sent.count > last ? "" : `Of the packets before it, the last ${sent.count - 1} were processed, too.`;
      state.className = "soft";
      result.replaceChildren(...packets.map((packet) => entry(packet, true)), h("h3", {}, "The rules, asked about this packet alone"), ...verdict(reply));
    } catch (error) {
      problem(error);
    }
  }

  function problem(error) {
    result.replaceChildren();
    if (error.name === "AbortError" || error.status === 401) return fail(error);
    state.textContent = error.message;
    state.className = "bad";
  }

  return h("section", { class: "sheet" }, h("h2", {}, "A packet of a capture"), h("div", { class: "bar" }, file, choice), state, result);
}

/** The rules that match and those that do not, each match by match. */
function verdict(reply) {
  const check = (one) => h("div", { class: one.holds ? "good" : "bad" }, `${one.holds ? "✓" : "✗"} ${one.match}${one.value === undefined ? "" : `: the packet has ${one.value}`}`);
  const rule = (one) => h("details", { open: one.matches },
    h("summary", {}, h("span", { class: "mono" }, `${one.index}  ${one.text}  `), one.index === reply.decider ? h("strong", {}, "decides") : one.matches ? "" : h("span", { class: "soft" }, "does not match")),
    one.note ? h("p", {}, one.note) : null, h("div", { class: "mono" }, one.checks.map(check)));
  const matched = reply.rules.filter((one) => one.matches).length;
  const end = reply.parse_error ? `The headers are malformed (${reply.parse_error}): no rule applies.`
    : matched === 0 ? "No rule matches." : reply.decider === undefined ? "No rule decides: the packet goes on." : `Rule ${reply.decider} decides.`;
  return [
    h("p", {}, h("span", { class: "mono" }, reply.summary), reply.out ? `, to ${reply.out}` : "", `, ${reply.length} bytes. `, h("strong", {}, end)),
    ...reply.rules.map(rule),
    reply.more_rules > 0 ? h("p", { class: "soft" }, `${reply.more_rules} more rules do not match.`) : "",
  ];
}

const change = ({ field, before, after }) => `${field}: ${before ?? "absent"} → ${after ?? "absent"}`;

/** What a node changed, and the functions of a chain with their verdicts. */
const lines = ({ changes = [], functions = [] }) => [
  ...changes.map(change), ...functions.flatMap((one) => [`${one.function}: ${one.verdict}`, ...(one.changes ?? []).map(change)]),
];

/** The session of a packet, with its translation and its chain. */
function session({ is_new: isNew, direction, connection }) {
  const end = (address, port) => (port === undefined ? address : address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`);
  const way = (flow) => `${end(flow.source, flow.source_port)} > ${end(flow.destination, flow.destination_port)}`;
  const translated = connection.translated ? ", translated" : "", chain = connection.chain ? `, chain ${connection.chain}` : "";
  return `session ${isNew ? "opened" : "found"}: ${direction}, ${connection.protocol} ${connection.state}, ${way(connection.forward)}, replies ${way(connection.reverse)}${translated}${chain}`;
}

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
  if (packet.session) facts.push(session(packet.session));
  const nodes = packet.nodes.map((node) => h("li", {}, node.node, lines(node).map((line) => h("div", { class: "mono" }, line))));
  return h("details", { open: isOpen },
    h("summary", {}, h("span", { class: "mono" }, `${packet.in ?? "?"}  ${packet.summary}  `), h("span", { class: kind }, end)),
    facts.map((fact) => h("p", {}, fact)), h("ol", {}, nodes));
}
