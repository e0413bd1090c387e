//! `classify`: finds the rules that match, and decides: forward, edit or drop.

use mmb_dpdk::{Packet, Vector};
use mmb_packet::DropReason;
use mmb_policy::{DecisionSink, Outcome, Verdict};

use super::matching::{find_matches, find_matches_of_filled};
use crate::engine::counters::RuleTable;
use crate::engine::node::edges::{RoutedEdges, edges, routed_edges, send, send_all};
use crate::engine::node::vector::{VECTOR, WholeVector};
use crate::engine::snapshot::Snapshot;
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
    let Worker { id, snapshot, routing, rules, .. } = worker;
    let filled = rules.take_filled().filter(|filled| filled.is(vector.packets()));
    let (batch, frame, _) = rules.lookup_parts();
    let (classifier, packets) = (snapshot.policy.classifier(), vector.packets());
    let version = match filled {
        Some(WholeVector { version, .. }) => {
            find_matches_of_filled(classifier, snapshot, batch, packets, frame, version)
        }
        None => find_matches(classifier, (snapshot, &routing.routes), batch, packets, frame, |_| None),
    };
    let pass = version.map_or(Edge::Wire, Edge::for_version);
    if batch.hits.is_empty() {
        return send_all(vector, pass);
    }
    if let Some((slot, outcome)) = snapshot.policy.decide_alike(batch) {
        count_alike(&snapshot.counters[*id], slot, outcome, vector.packets());
        return match outcome.drop {
            true => drop_all(vector),
            false => send_all(vector, pass),
        };
    }
    let edges = decide(worker, vector.packets());
    send(vector, &edges);
}

/// Counts the packets of a vector, of which one rule matches each.
#[inline]
fn count_alike(counters: &RuleTable, slot: u32, outcome: Outcome, packets: &[&mut Packet]) {
    if counters.is_empty() {
        return;
    }
    let n = packets.len() as u32;
    counters.count(slot, n, packets.iter().map(|packet| packet.pkt_len() as u64).sum());
    if let Some(slot) = outcome.decider {
        counters.count_decided(slot, n);
    }
}

/// Sends all packets of a vector to `drop`.
fn drop_all(mut vector: Vector<'_>) {
    for packet in vector.packets().iter_mut() {
        packet.meta_mut().drop_reason = DropReason::Rule as u8;
    }
    send_all(vector, Edge::Drop);
}

/// Takes the decisions about the packets of a vector.
struct VectorDecisions<'a, 'b> {
    packets: &'a mut [&'b mut Packet],
    edges: [Edge; VECTOR],
    counters: &'a RuleTable,
    snapshot: &'a Snapshot,
}

impl DecisionSink for VectorDecisions<'_, '_> {
    #[inline(always)]
    fn count(&mut self, slot: u32, packet: u16) {
        self.counters.count(slot, 1, self.packets[usize::from(packet)].pkt_len() as u64);
    }

    #[inline(always)]
    fn verdict(&mut self, verdict: Verdict) {
        let at = usize::from(verdict.pkt);
        if let Some(slot) = verdict.outcome.decider {
            self.counters.count_decided(slot, 1);
        }
        if verdict.outcome.drop {
            self.packets[at].meta_mut().drop_reason = DropReason::Rule as u8;
            self.edges[at] = Edge::Drop;
        } else if verdict.edits_len > 0 {
            let packet = &mut self.packets[at];
            let out_port = self.snapshot.peer(packet.port());
            let meta = packet.meta_mut();
            meta.set_edits(verdict.edits_at, verdict.edits_len);
            meta.out_port = out_port;
            self.edges[at] = Edge::Rewrite;
        }
    }
}

/// Counts the rules that match, writes edits or a drop reason into each packet's metadata, and returns the
/// edges.
fn decide(worker: &mut Worker, packets: &mut [&mut Packet]) -> [Edge; VECTOR] {
    let Worker { id, snapshot, rules, .. } = worker;
    let (batch, edits, random) = rules.decision_parts();
    let counters = &snapshot.counters[*id];
    if snapshot.policy.exceeds_cache() {
        batch.hits.iter().for_each(|hit| counters.prefetch(hit.slot));
    }
    let mut decisions = VectorDecisions { packets, edges: [Edge::Wire; VECTOR], counters, snapshot };
    snapshot.policy.decide(batch, edits, random, &mut decisions);
    decisions.edges
}
