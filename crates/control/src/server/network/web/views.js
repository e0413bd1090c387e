// The views. Each opens as { element, refresh }: `refresh` is called every two seconds.

import { get, stream } from "./api.js";
import { Rates, bits, h, meter, perSecond, short, spark, table, time, whole } from "./dom.js";
import { openRules } from "./editor.js";
import { graph } from "./graph.js";
import { openTrace } from "./trace.js";

const SHOWN_SESSIONS = 500;
const READ_SESSIONS = 20000;
const KEPT = 60;

/** The end of a flow: address and port. */
const end = (address, port) => (port === undefined || port === null ? address : address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`);
const query = (text) => (text ? `?match=${encodeURIComponent(text)}` : "");

function openOverview() {
  const rates = new Rates(), histories = new Map();
  const cards = h("div", { class: "cards" }), interfaces = h("section", { class: "sheet" });
  const card = (name, value, key, rate) => {
    const values = histories.get(key) ?? histories.set(key, []).get(key);
    if (rate !== undefined) values.push(rate);
    if (values.length > KEPT) values.shift();
    const line = key && values.length > 1 ? spark(values) : null;
    return h("div", { class: "sheet" }, h("div", { class: "card-name" }, name), h("div", { class: "card-value" }, value), line);
  };
  const refresh = async (signal) => {
    const paths = ["/v1/version", "/v1/interfaces", "/v1/runtime", "/v1/drops"];
    const [version, { interfaces: list }, runtime, { drops }] = await Promise.all(paths.map((path) => get(path, signal)));
    const sum = (field) => list.reduce((all, one) => all + one[field], 0);
    const lost = Object.values(drops).reduce((all, one) => all + one, 0);
    const fields = ["rx_packets", "tx_packets", "rx_bytes", "tx_bytes"];
    const rate = rates.take([
      ...fields.map((field) => [field, sum(field)]),
      ["drops", lost],
      ...list.flatMap((one) => fields.map((field) => [`${one.name} ${field}`, one[field]])),
    ]);
    const sessions = runtime.sessions ?? { sessions: 0, capacity: 0 };
    const usage = `${short(sessions.sessions)} of ${short(sessions.capacity)}`;
    cards.replaceChildren(
      card("Packets received", perSecond(rate("rx_packets")) || "…", "rx", rate("rx_packets")),
      card("Packets sent", perSecond(rate("tx_packets")) || "…", "tx", rate("tx_packets")),
      card("Packets dropped", perSecond(rate("drops")) || "…", "drops", rate("drops")),
      card("Sessions", usage, "sessions", sessions.sessions),
      card("Rules", whole(version.rules)),
      card("Running for", time(version.uptime_seconds)),
    );
    const of = (one, field, unit) => unit(rate(`${one.name} ${field}`));
    const state = (one) => (one.state === "down" ? h("span", { class: "bad" }, one.reason ?? "down") : one.link ? h("span", { class: "good" }, "up") : h("span", { class: "warn" }, "no link"));
    interfaces.replaceChildren(h("h2", {}, "Interfaces"), table([
      { name: "Name", of: (one) => one.name },
      { name: "Kind", of: (one) => one.kind },
      { name: "State", of: state },
      { name: "Received, packets", number: true, of: (one) => of(one, "rx_packets", perSecond) },
      { name: "Received", number: true, of: (one) => of(one, "rx_bytes", bits) },
      { name: "Sent, packets", number: true, of: (one) => of(one, "tx_packets", perSecond) },
      { name: "Sent", number: true, of: (one) => of(one, "tx_bytes", bits) },
      { name: "Missed", number: true, of: (one) => whole(one.rx_missed) },
      { name: "Errors", number: true, of: (one) => whole(one.rx_errors + one.tx_errors) },
    ], list, "There are no interfaces."), h("p", { class: "soft" }, `mmb ${version.version}: ${version.engine}`));
  };
  return { element: h("div", {}, cards, interfaces), refresh };
}

function openGraph() {
  const rates = new Rates(), element = h("section", { class: "sheet" });
  const refresh = async (signal) => {
    const { workers } = await get("/v1/runtime", signal);
    const packets = new Map();
    for (const worker of workers) {
      for (const [name, node] of Object.entries(worker.nodes)) packets.set(name, (packets.get(name) ?? 0) + node.packets);
    }
    const rate = rates.take([...packets]);
    const nodes = [...packets].map(([name, count]) => ({ name, packets: count, rate: rate(name) }));
    element.replaceChildren(h("div", { class: "scroll" }, graph(nodes)),
      h("p", { class: "soft" }, `Packets per second of ${workers.length === 1 ? "one worker" : `${workers.length} workers`}. Lines show the usual ways; those to drop, punt and consume are left out.`));
  };
  return { element, refresh };
}

function openSessions({ refresh: again }) {
  const matches = h("input", { type: "text", placeholder: "Matches, for example tcp-dport 443", "aria-label": "Matches" });
  const problem = h("p", { class: "bad", role: "alert", hidden: true }), list = h("section", { class: "sheet" });
  let filter = "";
  const choose = (event) => {
    event.preventDefault();
    filter = matches.value;
    again();
  };
  const refresh = async (signal) => {
    const sessions = [];
    let hasMore = false;
    try {
      hasMore = await stream(`/v1/connections${query(filter)}`, SHOWN_SESSIONS, (one) => sessions.push(one), signal);
      problem.hidden = true;
    } catch (error) {
      if (![400, 404].includes(error.status)) throw error;
      problem.textContent = error.message;
      problem.hidden = false;
    }
    list.replaceChildren(table([
      { name: "Protocol", of: (one) => one.protocol },
      { name: "From", of: (one) => end(one.forward.source, one.forward.source_port) },
      { name: "To", of: (one) => end(one.forward.destination, one.forward.destination_port) },
      { name: "Replies from", of: (one) => (one.translated ? end(one.reverse.source, one.reverse.source_port) : "") },
      { name: "Replies to", of: (one) => (one.translated ? end(one.reverse.destination, one.reverse.destination_port) : "") },
      { name: "State", of: (one) => one.state },
      { name: "Packets", number: true, of: (one) => short(one.forward.packets + one.reverse.packets) },
      { name: "Bytes", number: true, of: (one) => short(one.forward.bytes + one.reverse.bytes) },
      { name: "Age", number: true, of: (one) => time(one.age_seconds) },
      { name: "Idle", number: true, of: (one) => time(one.idle_seconds) },
      { name: "Chain", of: (one) => one.chain },
    ], sessions, "There are no such sessions."), hasMore ? h("p", { class: "soft" }, `The first ${SHOWN_SESSIONS} are shown; matches narrow them down.`) : "");
  };
  const form = h("form", { class: "bar", onsubmit: choose }, matches, h("button", { type: "submit" }, "Show"));
  return { element: h("div", {}, form, problem, list), refresh };
}

function openDrops() {
  const rates = new Rates(), element = h("section", { class: "sheet" });
  const refresh = async (signal) => {
    const { drops, unedited } = await get("/v1/drops", signal);
    const counted = (kind, counters) => Object.entries(counters ?? {}).filter(([, count]) => count > 0).map(([reason, count]) => ({ kind, reason, count }));
    const rows = [...counted("dropped", drops), ...counted("forwarded unedited", unedited)].sort((a, b) => b.count - a.count);
    const rate = rates.take(rows.map((row) => [`${row.kind} ${row.reason}`, row.count]));
    element.replaceChildren(table([
      { name: "Reason", of: (row) => row.reason },
      { name: "Packets were", of: (row) => row.kind },
      { name: "Packets", number: true, of: (row) => whole(row.count) },
      { name: "Now", number: true, of: (row) => perSecond(rate(`${row.kind} ${row.reason}`)) },
    ], rows, "Nothing was dropped."));
  };
  return { element, refresh };
}

function openTalkers() {
  const rates = new Rates(), element = h("section", { class: "sheet" });
  const refresh = async (signal) => {
    const hosts = new Map();
    const add = (address, flow) => {
      const host = hosts.get(address) ?? hosts.set(address, { address, sessions: 0, bytes: 0 }).get(address);
      host.sessions += 1;
      host.bytes += flow.forward.bytes + flow.reverse.bytes;
    };
    const hasMore = await stream("/v1/connections", READ_SESSIONS, (one) => add(one.forward.source, one), signal);
    const rate = rates.take([...hosts.values()].map((host) => [host.address, host.bytes]));
    const value = (host) => rate(host.address) ?? 0;
    const top = [...hosts.values()].sort((a, b) => value(b) - value(a) || b.bytes - a.bytes).slice(0, 20);
    const most = Math.max(1, ...top.map((host) => host.bytes));
    element.replaceChildren(table([
      { name: "Host", of: (host) => host.address },
      { name: "Sessions", number: true, of: (host) => whole(host.sessions) },
      { name: "Bytes", number: true, of: (host) => short(host.bytes) },
      { name: "Now", number: true, of: (host) => bits(rate(host.address)) },
      { name: "Share", of: (host) => meter(host.bytes / most) },
    ], top, "There are no sessions: stateful rules and NAT open them."), h("p", { class: "soft" },
      `Hosts that have opened sessions, with the bytes of both directions of those that are open.${hasMore ? ` Only ${whole(READ_SESSIONS)} sessions were read.` : ""}`));
  };
  return { element, refresh };
}

export const views = [
  { name: "overview", title: "Overview", open: openOverview },
  { name: "graph", title: "Graph", open: openGraph },
  { name: "rules", title: "Rules", open: openRules },
  { name: "sessions", title: "Sessions", open: openSessions },
  { name: "drops", title: "Drops", open: openDrops },
  { name: "talkers", title: "Top talkers", open: openTalkers },
  { name: "trace", title: "Explain", open: openTrace },
];
