//! `classify`: finds the rules that match, and decides: forward, edit or drop.

use mmb_dpdk::{Packet, Vector};
use mmb_packet::DropReason;
use mmb_policy::Verdict;

use super::matching::find_matches;
use super::state::RuleScratch;
use crate::engine::node::edges::{RoutedEdges, edges, routed_edges, send, send_all};
use crate::engine::node::vector::VECTOR;
use crate::engine::worker::Worker;

edges! {
    /// The edges of `classify`.
    pub(crate) enum Edge {
        Wire => "wire-output",
        Rewrite => "rewrite",
        Drop => "drop",
        Ip4Lookup => "ip4-lookup",
        Ip6Lookup => "ip6-lookup",
        Punt => "punt",
    }
}
routed_edges!(Edge);

pub(crate) fn process(worker: &mut Worker, mut vector: Vector<'_>) {
    let Worker { snapshot, routing, rules, .. } = worker;
    let (routes, RuleScratch { batch, frame, .. }) = (&routing.routes, rules);
    let version =
        find_matches(&snapshot.policy, (snapshot, routes), batch, vector.packets(), frame, |_| None);
    if batch.hits.is_empty() {
        return send_all(vector, version.map_or(Edge::Wire, Edge::for_version));
    }
    let edges = decide(worker, vector.packets());
    send(vector, &edges);
}

/// Counts the rules that match, writes edits or a drop reason into each packet's metadata, and returns the
/// edges.
fn decide(worker: &mut Worker, packets: &mut [&mut Packet]) -> [Edge; VECTOR] {
    let Worker { id, snapshot, rules, .. } = worker;
    let (batch, edits, random) = rules.decision_parts();
    let mut edges = [Edge::Wire; VECTOR];
    let mut lengths = [0u32; VECTOR];
    for (length, packet) in lengths.iter_mut().zip(packets.iter()) {
        *length = packet.pkt_len() as u32;
    }
    let counters = &snapshot.counters[*id];
    batch.hits.iter().for_each(|hit| counters.prefetch(hit.slot));
    let count = |slot, packet: u16| counters.count(slot, 1, lengths[usize::from(packet)].into());
    let verdict = |verdict: Verdict| {
        let at = usize::from(verdict.pkt);
        let packet = &mut packets[at];
        let out_port = snapshot.peer(packet.port());
        let meta = packet.meta_mut();
        if let Some(slot) = verdict.outcome.decider {
            counters.count_decided(slot, 1);
        }
        if verdict.outcome.drop {
            meta.drop_reason = DropReason::Rule as u8;
            edges[at] = Edge::Drop;
        } else if verdict.edits_len > 0 {
            meta.set_edits(verdict.edits_at, verdict.edits_len);
            meta.out_port = out_port;
            edges[at] = Edge::Rewrite;
        }
    };
    snapshot.policy.decide(batch, edits, random, count, verdict);
    edges
}
