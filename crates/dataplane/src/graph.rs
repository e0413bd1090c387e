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
//! rules apply, lead to the nodes in [`crate::features::route`].
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

use mmb_dpdk::{NodeDef, NodeKind};

use crate::engine::worker::Worker;
use crate::features::chain::node as chain;
use crate::features::classify::{node as classify, rewrite};
use crate::features::drop::node as drop;
use crate::features::handoff::node as handoff;
use crate::features::ip::input as ip_input;
use crate::features::l2::{input as l2_input, wire as wire_output};
use crate::features::port::{rx as port_rx, tx as port_tx};
use crate::features::punt::node as punt;
use crate::features::route::hop::Ways;
use crate::features::route::{self, lookup, neighbor, slow};
use crate::features::session as flow;
use crate::features::session::dispatch;

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
        node("flow-lookup", flow::lookup::process, dispatch::edges("flow-lookup", sink)),
        node("flow-classify", flow::classify::process, dispatch::edges("flow-classify", sink)),
        node("flow-track", flow::track::process, dispatch::edges("flow-track", sink)),
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
