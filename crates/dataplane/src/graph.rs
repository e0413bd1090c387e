//! The graph: which nodes there are, and where their edges lead.
//!
//! ```text
//! port-rx ─► l2-input ─► ip4-input ─► classify ─► rewrite ─► port-tx
//!                │       ip6-input ──┘   │  │                 ▲
//!                └──────► wire-output ◄──┘  └─► drop          │
//!                              └──────────────────────────────┘
//! ```
//!
//! When the policy needs sessions, `flow-lookup` takes the place of `classify`, with `flow-classify` and
//! `flow-track` behind it. The snapshot says which one `ip4-input` and `ip6-input` use. Packets of sessions
//! with a service chain go from these three nodes to `chain`, which has the same next nodes as `rewrite`;
//! `chain-rx` sends frames that functions made between two walks.
//!
//! Packets from routed ports are not sent along a wire. `ip4-input` and `ip6-input` send them to a route
//! lookup, or `wire-output` and `rewrite` do where rules apply.
//!
//! ```text
//! ip4-lookup ─► ip4-rewrite ─┬─► port-tx
//!   ▲                        ├─► punt ─► port-tx
//!   └── neighbor-rx, ip-slow ◄
//! ```
//!
//! With several workers, `ip4-input` and `ip6-input` send packets of other workers' flows to `handoff`.
//! `handoff-rx` receives packets of this worker's flows, and packets for ports on which this worker
//! transmits. Replay and bench run the same nodes between a source and a sink of their own.

use mmb_dpdk::{Emit, NodeDef, NodeKind, Vector};

use crate::engine::node::edges::{Edges, OWN_LOOKUP, OWN_REWRITE, SINK};
use crate::engine::snapshot::PolicyPath;
use crate::engine::worker::Worker;
use crate::features::classify::ingress::ClassifyIngress;
use crate::features::ip::hook::InputNodes;
use crate::features::session::ingress::SessionIngress;
use crate::features::{chain, classify, drop, handoff, ip, l2, port, punt, route, session};

/// A source and a sink: the ports, or what replaces them.
pub(crate) struct Ends {
    /// The source node; its only edge is `l2-input`.
    pub source: NodeDef<Worker>,
    /// The sink node.
    pub sink: NodeDef<Worker>,
}

/// The nodes of a worker with real ports. `has_handoff`: other workers may give it packets.
pub(crate) fn live(has_handoff: bool) -> Vec<NodeDef<Worker>> {
    let ends = Ends {
        source: NodeDef {
            name: "port-rx",
            kind: NodeKind::Source(port::rx::poll),
            next: port::rx::Edge::NAMES,
        },
        sink: NodeDef { name: "port-tx", kind: NodeKind::Inner(port::tx::process), next: &[] },
    };
    between(ends, has_handoff)
}

/// The nodes of a worker between other ends.
pub(crate) fn between(ends: Ends, has_handoff: bool) -> Vec<NodeDef<Worker>> {
    let mut builder = Builder { sink: ends.sink.name, nodes: Vec::new() };
    builder.add_inner();
    builder.nodes.push(ends.source);
    if has_handoff {
        builder.source::<handoff::node::RxEdge>("handoff-rx", handoff::node::receive);
    }
    builder.nodes.push(ends.sink);
    builder.nodes
}

type Process = fn(&mut Worker, Vector<'_>);

/// The input nodes with the hook of `classify`.
const CLASSIFY_INPUT: InputNodes = ip::input::nodes::<ClassifyIngress>();
/// The input nodes with the hook of sessions.
const SESSION_INPUT: InputNodes = ip::input::nodes::<SessionIngress>();

/// Selects the input nodes with the hook of the feature that applies the rules.
#[inline(always)]
fn input_nodes(worker: &Worker) -> InputNodes {
    match worker.snapshot.policy_path {
        PolicyPath::Classify => CLASSIFY_INPUT,
        PolicyPath::Sessions => SESSION_INPUT,
    }
}

/// `ip4-input`.
fn ip4_input(worker: &mut Worker, vector: Vector<'_>) {
    (input_nodes(worker).ip4)(worker, vector);
}

/// `ip6-input`.
fn ip6_input(worker: &mut Worker, vector: Vector<'_>) {
    (input_nodes(worker).ip6)(worker, vector);
}

struct Builder {
    sink: &'static str,
    nodes: Vec<NodeDef<Worker>>,
}

impl Builder {
    fn add_inner(&mut self) {
        self.source::<route::neighbor_rx::Edge>("neighbor-rx", route::neighbor_rx::receive);
        self.source::<chain::node::Edge>("chain-rx", chain::node::receive);
        self.inner::<l2::input::Edge>("l2-input", l2::input::process);
        self.inner::<ip::input::Edge>("ip4-input", ip4_input);
        self.inner::<ip::input::Edge>("ip6-input", ip6_input);
        self.inner::<classify::node::Edge>("classify", classify::node::process);
        self.inner::<session::dispatch::Edge>("flow-lookup", session::lookup::process);
        self.inner::<session::dispatch::Edge>("flow-classify", session::classify::process);
        self.inner::<session::dispatch::Edge>("flow-track", session::track::process);
        self.inner::<chain::node::Edge>("chain", chain::node::process);
        self.inner::<classify::rewrite::Edge>("rewrite", classify::rewrite::process);
        self.inner::<l2::wire::Edge>("wire-output", l2::wire::process);
        self.inner::<route::lookup::Edge>("ip4-lookup", route::lookup::process4);
        self.inner::<route::lookup::Edge>("ip6-lookup", route::lookup::process6);
        self.inner::<route::rewrite::Edge>("ip4-rewrite", route::rewrite::process4);
        self.inner::<route::rewrite::Edge>("ip6-rewrite", route::rewrite::process6);
        self.inner::<route::slow_path::Edge>("ip-slow", route::slow_path::process);
        self.inner::<punt::node::Edge>("punt", punt::node::process);
        self.last("handoff", handoff::node::process);
        self.last("drop", drop::node::process);
        self.last("consume", chain::node::consume);
    }

    fn source<E: Edges>(&mut self, name: &'static str, emit: fn(&mut Worker, &mut Emit<'_>) -> usize) {
        self.nodes.push(NodeDef { name, kind: NodeKind::Source(emit), next: self.next::<E>(name) });
    }

    /// Adds a node without edges.
    fn last(&mut self, name: &'static str, process: Process) {
        self.nodes.push(NodeDef { name, kind: NodeKind::Inner(process), next: &[] });
    }

    fn inner<E: Edges>(&mut self, name: &'static str, process: Process) {
        self.nodes.push(NodeDef { name, kind: NodeKind::Inner(process), next: self.next::<E>(name) });
    }

    /// The names of the next nodes of `node`. The edge of a node to itself, which DPDK refuses and no packet
    /// takes, leads to `drop`.
    fn next<E: Edges>(&self, node: &str) -> &'static [&'static str] {
        let is_ip4 = node.starts_with("ip4");
        let resolve = |name: &&'static str| match *name {
            SINK => self.sink,
            OWN_LOOKUP => {
                if is_ip4 {
                    "ip4-lookup"
                } else {
                    "ip6-lookup"
                }
            }
            OWN_REWRITE => {
                if is_ip4 {
                    "ip4-rewrite"
                } else {
                    "ip6-rewrite"
                }
            }
            own if own == node => "drop",
            other => other,
        };
        Vec::leak(E::NAMES.iter().map(resolve).collect())
    }
}
