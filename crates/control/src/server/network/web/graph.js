// The graph of the workers with the rates of its nodes.

import { s, short } from "./dom.js";

// Places of the nodes by column and row, and the usual ways between them. Nodes that are not here are drawn in rows of
// their own. The ways to `drop`, `punt` and `consume`, which most nodes have, are left out.
const PLACES = {
  "port-rx": [0, 1], "neighbor-rx": [0, 2], "chain-rx": [0, 3],
  "l2-input": [1, 1],
  "ip4-input": [2, 0], "ip6-input": [2, 2],
  classify: [3, 0], "flow-lookup": [3, 1], handoff: [3, 3],
  rewrite: [4, 0], "flow-classify": [4, 1], "flow-track": [4, 2], chain: [4, 3],
  "wire-output": [5, 0], "ip4-lookup": [5, 1], "ip6-lookup": [5, 2], "ip-slow": [5, 3],
  "ip4-rewrite": [6, 1], "ip6-rewrite": [6, 2], punt: [6, 3],
  "port-tx": [7, 0], drop: [7, 2], consume: [7, 3],
};
const WAYS = [
  ["port-rx", "l2-input"], ["l2-input", "ip4-input"], ["l2-input", "ip6-input"],
  ["ip4-input", "classify"], ["ip4-input", "flow-lookup"], ["ip6-input", "classify"], ["ip6-input", "flow-lookup"],
  ["classify", "rewrite"], ["flow-lookup", "flow-classify"], ["flow-lookup", "flow-track"], ["flow-lookup", "chain"],
  ["rewrite", "ip4-lookup"], ["rewrite", "ip6-lookup"], ["flow-classify", "wire-output"], ["flow-track", "wire-output"],
  ["flow-track", "ip4-lookup"], ["flow-track", "ip6-lookup"], ["chain", "ip4-lookup"], ["chain", "ip6-lookup"],
  ["ip4-lookup", "ip4-rewrite"], ["ip6-lookup", "ip6-rewrite"],
  ["wire-output", "port-tx"], ["ip4-rewrite", "port-tx"], ["ip6-rewrite", "port-tx"],
];
const LOSSES = new Set(["drop"]);
const [WIDTH, HEIGHT, COLUMN, ROW] = [112, 50, 136, 84];

/** The drawing. Nodes: `[{ name, packets, rate }]` of all workers together. */
export function graph(nodes) {
  const rates = new Map(nodes.map((node) => [node.name, node.rate ?? 0]));
  const others = nodes.filter((node) => !(node.name in PLACES)).map((node) => node.name);
  const place = (name) => PLACES[name] ?? [others.indexOf(name) % 8, 4 + Math.floor(others.indexOf(name) / 8)];
  const corner = (name) => place(name).map((at, axis) => 8 + at * (axis === 0 ? COLUMN : ROW));
  const isBusy = (name) => (rates.get(name) ?? 0) > 0;
  const ways = WAYS.filter((way) => way.every((name) => rates.has(name))).map(([from, to]) => {
    const [[x1, y1], [x2, y2]] = [corner(from), corner(to)];
    const [start, end, middle] = [x1 + WIDTH, x2, (x1 + WIDTH + x2) / 2];
    const curve = `M${start} ${y1 + HEIGHT / 2}C${middle} ${y1 + HEIGHT / 2} ${middle} ${y2 + HEIGHT / 2} ${end} ${y2 + HEIGHT / 2}`;
    return s("path", { d: curve, class: isBusy(from) && isBusy(to) ? "busy" : "" });
  });
  const boxes = nodes.map(({ name, packets, rate }) => {
    const [x, y] = corner(name);
    const kind = !isBusy(name) ? "" : LOSSES.has(name) ? "lost" : "busy";
    return s("g", { class: kind },
      s("title", {}, `${name}: ${packets.toLocaleString("en")} packets since the start`),
      s("rect", { x, y, width: WIDTH, height: HEIGHT, rx: 6 }),
      s("text", { x: x + WIDTH / 2, y: y + 21 }, name),
      s("text", { x: x + WIDTH / 2, y: y + 39, class: "rate" }, `${short(rate ?? 0)} packets/s`));
  });
  const rows = 1 + Math.max(3, ...nodes.map((node) => place(node.name)[1]));
  const box = `0 0 ${7 * COLUMN + WIDTH + 16} ${(rows - 1) * ROW + HEIGHT + 16}`;
  return s("svg", { class: "graph", viewBox: box, role: "img", "aria-label": "Nodes of the graph with their rates" }, ways, boxes);
}
