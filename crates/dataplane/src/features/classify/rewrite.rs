//! `rewrite`: applies the edits of all matching rules, in rule order.

use mmb_dpdk::Vector;
use mmb_packet::OUT_ROUTED;

use super::edit::apply_edits;
use crate::engine::node::edges::{RoutedEdges, SINK, edges, routed_edges, send, send_all};
use crate::engine::node::vector::VECTOR;
use crate::engine::worker::Worker;

edges! {
    /// The edges of `rewrite`.
    pub(crate) enum Edge {
        Transmit => SINK,
        Drop => "drop",
        Ip4Lookup => "ip4-lookup",
        Ip6Lookup => "ip6-lookup",
        Punt => "punt",
    }
}
routed_edges!(Edge);

pub(crate) fn process(worker: &mut Worker, mut vector: Vector<'_>) {
    let mut edges = [Edge::Transmit; VECTOR];
    let mut all_transmit = true;
    for (packet, edge) in vector.packets().iter_mut().zip(&mut edges) {
        *edge = match apply_edits(&worker.snapshot, &worker.rules.edits, worker.counters(), packet) {
            false => Edge::Drop,
            true if packet.meta().out_port == OUT_ROUTED => Edge::for_routed(packet),
            true => Edge::Transmit,
        };
        all_transmit &= *edge == Edge::Transmit;
    }
    if all_transmit { send_all(vector, Edge::Transmit) } else { send(vector, &edges) }
}
