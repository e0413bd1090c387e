//! Sends packets where the sessions say.
//!
//! Theory of operation. `flow-lookup` finds every packet's session and applies its cached decision.
//! `flow-classify` finds the rules that each packet of a session must be tested against. `flow-track` handles
//! packets that open sessions, change their state, or need the slow path. The three nodes have the same
//! edges. [`edge_of`] is the one place that maps [`Next`] to an edge. Most vectors have one [`Next`] for all
//! packets and are sent as a whole.
//!
//! Fragments that wait for the first one of their datagram leave the graph ([`super::state::HeldPackets`]).
//! When it has come, `flow-track` sends them to `flow-lookup` again.

use mmb_dpdk::Vector;
use mmb_packet::{DropReason, OUT_ROUTED, PacketFlags};
use mmb_session::{Next, NextSet};

use crate::engine::node::edges::{RoutedEdges, SINK, edges, routed_edges, send, send_all};
use crate::engine::node::vector::VECTOR;
use crate::engine::worker::Worker;
use crate::features::route::next_hop::is_for_kernel;

edges! {
    /// The edges of `flow-lookup`, `flow-classify` and `flow-track`. A node has `drop` in the place of the
    /// edge to itself, which no packet takes.
    pub(crate) enum Edge {
        Wire => "wire-output",
        Transmit => SINK,
        Rewrite => "rewrite",
        Drop => "drop",
        Handoff => "handoff",
        Classify => "flow-classify",
        Track => "flow-track",
        Chain => "chain",
        Lookup => "flow-lookup",
        Ip4Lookup => "ip4-lookup",
        Ip6Lookup => "ip6-lookup",
        Punt => "punt",
    }
}
routed_edges!(Edge);

/// The edge of each [`Next`]. Packets with [`Next::Hold`] have left the vector, and take none. Only chains
/// consume packets.
#[inline(always)]
pub(super) const fn edge_of(next: Next) -> Edge {
    match next {
        Next::Pass => Edge::Wire,
        Next::Send | Next::Reply | Next::Forwarded => Edge::Transmit,
        Next::Edit => Edge::Rewrite,
        Next::Drop | Next::Hold | Next::Consume => Edge::Drop,
        Next::HandOff => Edge::Handoff,
        Next::PerPacketRules => Edge::Classify,
        Next::SlowPath => Edge::Track,
        Next::Chain => Edge::Chain,
        Next::Relookup => Edge::Lookup,
    }
}

/// Sends each packet of a vector along the edge of its `next`.
#[inline]
pub(super) fn dispatch(
    worker: &mut Worker,
    mut vector: Vector<'_>,
    next: &mut [Next; VECTOR],
    kinds: NextSet,
) {
    for next in [Next::Pass, Next::Chain] {
        if kinds.is_only(next) {
            return send_all(vector, edge_of(next));
        }
    }
    if kinds.contains(Next::Hold) {
        worker.flows.held.extract(&mut vector, next);
    }
    let mut edges = [Edge::Wire; VECTOR];
    for (edge, next) in edges.iter_mut().zip(&*next) {
        *edge = edge_of(*next);
    }
    if kinds.contains(Next::Send)
        || (kinds.contains(Next::Drop) && !worker.routing.routes.interfaces.is_empty())
    {
        route(worker, &mut vector, next, &mut edges);
    }
    send(vector, &edges);
}

/// Changes the edges of packets that are to be routed, and of those for the machine itself: NAT may share an
/// address with the machine, and drops packets to it that belong to no mapping.
#[cold]
fn route(worker: &Worker, vector: &mut Vector<'_>, next: &[Next; VECTOR], edges: &mut [Edge; VECTOR]) {
    const NO_MAPPING: u8 = DropReason::NatUnmapped as u8;
    const BAD_QUOTE: u8 = DropReason::IcmpQuote as u8;
    for ((packet, next), edge) in vector.packets().iter().zip(next).zip(edges) {
        let meta = packet.meta();
        if *next == Next::Send && meta.out_port == OUT_ROUTED {
            *edge = Edge::for_routed(packet);
        }
        if *next == Next::Drop
            && (meta.drop_reason == NO_MAPPING || meta.drop_reason == BAD_QUOTE)
            && !meta.flags.contains(PacketFlags::LOOPED)
            && worker.snapshot.is_routed(packet.port())
            && is_for_kernel(&worker.routing.routes, packet)
        {
            *edge = Edge::PUNT;
        }
    }
}
