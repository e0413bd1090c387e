//! `wire-output`: sends packets to the other end of their input port's wire, or to be routed.

use mmb_dpdk::Vector;
use mmb_packet::{DropReason, OUT_ROUTED};

use crate::engine::config::PortId;
use crate::engine::node::edges::{RoutedEdges, SINK, edges, routed_edges, send, send_all};
use crate::engine::node::vector::VECTOR;
use crate::engine::worker::Worker;

edges! {
    /// The edges of `wire-output`.
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
    let snapshot = &*worker.snapshot;
    let mut all_wired = true;
    for packet in vector.packets().iter_mut() {
        let peer = snapshot.peer(packet.port());
        packet.meta_mut().out_port = peer;
        all_wired &= peer < OUT_ROUTED;
    }
    if all_wired {
        return send_all(vector, Edge::Transmit);
    }
    let mut edges = [Edge::Transmit; VECTOR];
    for (edge, packet) in edges.iter_mut().zip(vector.packets().iter_mut()) {
        *edge = match PortId(packet.meta().out_port) {
            PortId(OUT_ROUTED) => Edge::for_routed(packet),
            PortId::NONE => {
                packet.meta_mut().drop_reason = DropReason::Unwired as u8;
                Edge::Drop
            }
            _ => Edge::Transmit,
        };
    }
    send(vector, &edges);
}
