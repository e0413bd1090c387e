//! `classify`: finds the rules that match, and decides: pass, rewrite or drop.

use std::net::IpAddr;

use mmb_dpdk::{Packet, Vector};
use mmb_packet::{DropReason, Kind, Meta, OUT_ROUTED, fill_window};
use mmb_policy::{Batch, PerPacketRules, Policy, Verdict};
use mmb_route::Routes;

use crate::engine::snapshot::Snapshot;
use crate::engine::vector::VECTOR;
use crate::engine::worker::Worker;
use crate::features::route::hop::Ways;
use crate::features::route::out;

const WIRE: u16 = 0;
const REWRITE: u16 = 1;
const DROP: u16 = 2;
const WAYS: Ways = Ways { first: 3 };

/// The edges of `classify`.
pub(crate) fn next() -> Vec<&'static str> {
    [&["wire-output", "rewrite", "drop"], &Ways::NODES[..]].concat()
}

pub(crate) fn process(worker: &mut Worker, mut vector: Vector<'_>) {
    let Worker { snapshot, routes, batch, scratch, .. } = worker;
    let n = vector.len();
    let version = matches(&snapshot.policy, (snapshot, routes), batch, vector.packets(), scratch, |_| None);
    if batch.hits.is_empty() {
        return vector.send_all(version.map_or(WIRE, |version| WAYS.of_version(version)));
    }
    let edges = decide(worker, vector.packets());
    vector.send(&edges[..n]);
}

/// Rules to look among: all of a policy's, or those that have to be asked for each packet of a session.
pub(crate) trait Rules {
    fn chunks(&self) -> u8;
    fn needs_bytes(&self) -> bool;
    fn needs_inspection(&self, frame: &[u8], meta: &Meta) -> bool;
    fn inspect(&self, batch: &mut Batch, at: usize, frame: &[u8], meta: &Meta);
    fn classify(&self, batch: &mut Batch);
}

macro_rules! rules {
    ($type:ty) => {
        impl Rules for $type {
            #[inline]
            fn chunks(&self) -> u8 {
                self.chunks()
            }

            #[inline]
            fn needs_bytes(&self) -> bool {
                self.needs_bytes()
            }

            #[inline]
            fn needs_inspection(&self, frame: &[u8], meta: &Meta) -> bool {
                self.needs_inspection(frame, meta)
            }

            #[inline]
            fn inspect(&self, batch: &mut Batch, at: usize, frame: &[u8], meta: &Meta) {
                self.inspect(batch, at, frame, meta);
            }

            #[inline]
            fn classify(&self, batch: &mut Batch) {
                self.classify(batch);
            }
        }
    };
}

rules!(Policy);
rules!(PerPacketRules<'_>);

/// Finds the rules that match, for each packet of a vector. `destination` answers where a packet will go once it is translated,
/// if not where it says; it is asked if rules want to know the port by which routed packets go out. Answers the version of IP of
/// the packets, as [`Kind::l3`] has it, if all are to be routed, are of one version, and were not asked about.
#[inline]
pub(crate) fn matches(
    rules: &impl Rules,
    (snapshot, routes): (&Snapshot, &Routes),
    batch: &mut Batch,
    packets: &mut [&mut Packet],
    scratch: &mut Vec<u8>,
    destination: impl Fn(&Packet) -> Option<IpAddr>,
) -> Option<u8> {
    let chunks = rules.chunks();
    let (mut any, mut all, mut routed) = (0, u8::MAX, !snapshot.asks_out);
    if snapshot.asks_out {
        let outs = out::ports(routes, snapshot, packets, destination);
        for ((packet, window), out) in packets.iter().zip(batch.windows.iter_mut()).zip(outs) {
            fill_window(packet.data(), packet.meta(), packet.port(), out, chunks, window);
        }
    } else {
        for (packet, window) in packets.iter().zip(batch.windows.iter_mut()) {
            let (port, kind) = (packet.port(), packet.meta().kind.0);
            let peer = snapshot.peer(port);
            (any, all, routed) = (any | kind, all & kind, routed & (peer == OUT_ROUTED));
            fill_window(packet.data(), packet.meta(), port, peer, chunks, window);
        }
    }
    batch.len = packets.len();
    if rules.needs_bytes() {
        inspect(rules, batch, packets, scratch);
    }
    rules.classify(batch);
    let (any, all) = (Kind(any).l3(), Kind(all).l3());
    (routed && any == all).then_some(any)
}

/// Finds out what rules ask about the packets' bytes. A packet in several buffers is copied into one piece first.
#[inline(never)]
fn inspect(rules: &impl Rules, batch: &mut Batch, packets: &[&mut Packet], scratch: &mut Vec<u8>) {
    let (mut asked, mut n) = ([0; VECTOR], 0);
    for (at, packet) in packets.iter().enumerate() {
        asked[n % VECTOR] = at;
        // Headers that go on in another buffer are looked at, whatever this one says.
        n += usize::from((packet.nb_segs() != 1) | rules.needs_inspection(packet.data(), packet.meta()));
    }
    for &at in &asked[..n.min(VECTOR)] {
        let packet = &packets[at];
        let frame = if packet.nb_segs() == 1 {
            packet.data()
        } else {
            scratch.clear();
            packet.segments().for_each(|segment| scratch.extend_from_slice(segment));
            scratch.as_slice()
        };
        rules.inspect(batch, at, frame, packet.meta());
    }
}

/// Counts the rules that match, writes each packet's edits or drop reason into its metadata, and returns the edges.
fn decide(worker: &mut Worker, packets: &mut [&mut Packet]) -> [u16; VECTOR] {
    let Worker { id, snapshot, batch, edits, random, .. } = worker;
    let mut edges = [WIRE; VECTOR];
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
        if verdict.drop {
            meta.drop_reason = DropReason::Rule as u8;
            edges[at] = DROP;
        } else if verdict.edits_len > 0 {
            meta.set_edits(verdict.edits_at, verdict.edits_len);
            meta.out_port = out_port;
            edges[at] = REWRITE;
        }
    };
    snapshot.policy.decide(batch, edits, || random.next(), count, verdict);
    edges
}
