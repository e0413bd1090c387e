//! The graph's nodes, one file each: a loop over a vector of packets around functions of the core crates.
//!
//! ```text
//! port-rx ─► l2-input ─► ip4-input ─► classify ─► rewrite ─► port-tx
//!                │       ip6-input ──┘   │  │                 ▲
//!                └──────► wire-output ◄──┘  └─► drop          │
//!                              └──────────────────────────────┘
//! ```
//!
//! When the policy needs sessions, `flow-lookup`, with `flow-classify` and `flow-track` behind it, stands in the place of
//! `classify`; a snapshot says which of the two `ip4-input` and `ip6-input` lead to.
//!
//! Packets of sessions that a rule has given to a service chain leave these three nodes for `chain`, which leads where `rewrite`
//! does; `chain-rx` brings in what functions have made between two walks.
//!
//! What comes in by a routed port is not sent along a wire: `ip4-input` and `ip6-input`, or `wire-output` and `rewrite` where
//! rules apply, lead to the nodes in [`route`].
//!
//! ```text
//! ip4-lookup ─► ip4-rewrite ─┬─► port-tx
//!   ▲                        ├─► punt ─► port-tx
//!   └── neighbor-rx, ip-slow ◄
//! ```
//!
//! With more than one worker, `ip4-input` and `ip6-input` give packets of other workers' flows to `handoff`, and
//! `handoff-rx` brings those of this worker in at `classify` or `flow-lookup`; packets for a port that another worker sends on come in
//! at `port-tx`. Replay and bench run the same nodes between a source and a sink of their own.

mod chain;
mod classify;
mod drop;
mod flow;
mod handoff;
mod ip;
pub(crate) mod ip_input;
mod l2_input;
mod port_rx;
pub(crate) mod port_tx;
mod rewrite;
mod route;
mod wire_output;

use mmb_dpdk::{NodeDef, NodeKind, Packet};
use route::{Ways, lookup, neighbor, punt, slow};

use crate::worker::Worker;

/// How many packets ahead of the one at work the caches are told of its bytes; of its header twice as many, for that says
/// where the bytes are.
const AHEAD: usize = 4;

/// Calls `f` with each packet and its position, while packets further on are on their way into the nearest cache.
#[inline(always)]
pub(crate) fn for_each(packets: &mut [&mut Packet], mut f: impl FnMut(usize, &mut Packet)) {
    begin(packets);
    for at in 0..packets.len() {
        ask(packets, at);
        f(at, packets[at]);
    }
}

/// Tells the caches of a vector's first packets.
#[inline(always)]
pub(crate) fn begin(packets: &[&mut Packet]) {
    packets.iter().take(2 * AHEAD).for_each(|packet| packet.prefetch_header());
}

/// Tells the caches of packets further on than the one at a position.
#[inline(always)]
pub(crate) fn ask(packets: &[&mut Packet], at: usize) {
    if let Some(next) = packets.get(at + 2 * AHEAD) {
        next.prefetch_header();
    }
    if let Some(next) = packets.get(at + AHEAD) {
        next.prefetch_data();
    }
}

/// Where the network header of a routed packet begins: frames with VLAN tags are the kernel's.
pub(crate) const ROUTED_L3: usize = 14;

/// Most packets in a vector.
pub(crate) const VECTOR: usize = 256;

/// A source and a sink: the ports, or what stands in their place.
pub(crate) struct Ends {
    /// The source node; its only edge is `l2-input`.
    pub source: NodeDef<Worker>,
    /// The sink node's name and function.
    pub sink: NodeDef<Worker>,
}

/// The nodes of a worker with real ports; `handoff` if other workers may leave packets for it.
pub(crate) fn live(handoff: bool) -> Vec<NodeDef<Worker>> {
    between(
        Ends {
            source: NodeDef { name: "port-rx", kind: NodeKind::Source(port_rx::emit), next: &["l2-input"] },
            sink: NodeDef { name: "port-tx", kind: NodeKind::Inner(port_tx::process), next: &[] },
        },
        handoff,
    )
}

/// The nodes of a worker between other ends.
pub(crate) fn between(ends: Ends, handoff: bool) -> Vec<NodeDef<Worker>> {
    let mut nodes = inner(ends.sink.name);
    nodes.push(ends.source);
    if handoff {
        let next = Vec::leak(vec!["classify", ends.sink.name, "flow-lookup"]);
        nodes.push(NodeDef { name: "handoff-rx", kind: NodeKind::Source(handoff::emit), next });
    }
    nodes.push(ends.sink);
    nodes
}

fn inner(sink: &'static str) -> Vec<NodeDef<Worker>> {
    let node = |name, process, next: Vec<&'static str>| NodeDef {
        name,
        kind: NodeKind::Inner(process),
        next: Vec::leak(next),
    };
    vec![
        NodeDef { name: "neighbor-rx", kind: NodeKind::Source(neighbor::emit), next: neighbor::NEXT },
        NodeDef {
            name: "chain-rx",
            kind: NodeKind::Source(chain::emit),
            next: Vec::leak(chain::rx_next(sink)),
        },
        node("l2-input", l2_input::process, l2_input::NEXT.to_vec()),
        node("ip4-input", ip_input::process4, ip_input::next("ip4-lookup")),
        node("ip6-input", ip_input::process6, ip_input::next("ip6-lookup")),
        node("classify", classify::process, classify::next()),
        node("flow-lookup", flow::lookup::process, flow::edges("flow-lookup", sink)),
        node("flow-classify", flow::classify::process, flow::edges("flow-classify", sink)),
        node("flow-track", flow::track::process, flow::edges("flow-track", sink)),
        node("chain", chain::process, chain::next(sink)),
        node("rewrite", rewrite::process, [&[sink, "drop"], &Ways::NODES[..]].concat()),
        node("wire-output", wire_output::process, [&[sink, "drop"], &Ways::NODES[..]].concat()),
        node("ip4-lookup", lookup::process4, lookup::NEXT4.to_vec()),
        node("ip6-lookup", lookup::process6, lookup::NEXT6.to_vec()),
        node("ip4-rewrite", route::rewrite::process4, route::rewrite::next(sink)),
        node("ip6-rewrite", route::rewrite::process6, route::rewrite::next(sink)),
        node("ip-slow", slow::process, slow::NEXT.to_vec()),
        node("punt", punt::process, punt::next(sink)),
        node("handoff", handoff::process, vec!["drop"]),
        node("drop", drop::process, vec![]),
    ]
}
