//! `ip4-input` and `ip6-input`: the one parse of a packet's headers, and the choice of the flow's worker. On a routed port, also
//! what a router has to hold against a packet before it does anything with it (RFC 1812, 5.2.2, 5.3.1).

use mmb_dpdk::{Packet, Vector};
use mmb_flow::{Found, Key};
use mmb_packet::{DropReason, Kind, checksum};

use crate::nodes::ip::{Ip, Ip4, Ip6};
use crate::nodes::{ROUTED_L3 as L3, VECTOR, for_each};
use crate::offload::is_free;
use crate::snapshot::{Snapshot, path};
use crate::worker::Worker;

/// Where packets go that rules apply to: the one edge or the other, as the snapshot says.
pub(crate) const CLASSIFY: u16 = 0;
/// The same, if the rules need sessions.
pub(crate) const FLOW_LOOKUP: u16 = 4;
const WIRE: u16 = 1;
const DROP: u16 = 2;
const HANDOFF: u16 = 3;
const LOOKUP: u16 = 5;
const SLOW: u16 = 6;
const PUNT: u16 = 7;
/// Segments behind the first one that a checksum is completed over; a frame of more is left as it came.
const SEGMENTS: usize = 32;

/// The edges of a node whose packets are routed by `lookup`.
pub(crate) fn next(lookup: &'static str) -> Vec<&'static str> {
    vec!["classify", "wire-output", "drop", "handoff", "flow-lookup", lookup, "ip-slow", "punt"]
}

pub(crate) fn process4(worker: &mut Worker, vector: Vector<'_>) {
    process::<Ip4>(worker, vector);
}

pub(crate) fn process6(worker: &mut Worker, vector: Vector<'_>) {
    process::<Ip6>(worker, vector);
}

#[inline(always)]
fn process<I: Ip>(worker: &mut Worker, mut vector: Vector<'_>) {
    let snapshot = &*worker.snapshot;
    let n = vector.len();
    let mut edges = [snapshot.rules; VECTOR];
    let mut repairs = 0;
    for_each(vector.packets(), |at, packet| {
        let path = snapshot.path(packet.port());
        if path & (path::ROUTED | path::RULES | path::KERNEL) == path::ROUTED {
            let length = packet.pkt_len();
            let (data, meta) = packet.data_and_meta();
            if I::look(data, length, meta) {
                edges[at] = LOOKUP;
                return;
            }
        }
        edges[at] = input::<I>(worker, packet, path, &mut repairs);
    });
    worker.counters().repairs.add(repairs);
    vector.send(&edges[..n]);
}

/// Parses a packet, and answers its edge.
#[inline(always)]
fn input<I: Ip>(worker: &Worker, packet: &mut Packet, path: u8, repairs: &mut u64) -> u16 {
    let snapshot = &*worker.snapshot;
    let length = packet.pkt_len();
    let (data, meta) = packet.data_and_meta();
    let parsed = I::parse(data, length, meta);
    let hash = meta.flow_hash;
    if path & path::KERNEL != 0 && parsed.is_ok() {
        *repairs += u64::from(finish_checksum(packet));
    }
    if let Err(reason) = parsed {
        return malformed(packet, snapshot, reason);
    }
    if path & path::ROUTED != 0 {
        if !I::goes_on(packet.data())
            && let Some(edge) = stopped(packet, snapshot)
        {
            return edge;
        }
        if worker.locals.may_have(packet.port(), I::hash_to(packet.data()))
            && worker.locals.has(packet.port(), I::to(packet.data()))
        {
            return PUNT;
        }
    }
    if path & path::RULES == 0 {
        return unruled(path);
    }
    match worker.owner_of_flow(hash) {
        owner if owner == worker.id => {
            // The device's own, if it tells: the flow table guesses by it where the session stands.
            if let Some(hash) = packet.rss_hash() {
                packet.meta_mut().flow_hash = hash;
            }
            if snapshot.mark != 0 && is_free(packet, snapshot.mark) { CLASSIFY } else { snapshot.rules }
        }
        owner => hand_off(packet, owner),
    }
}

/// The edge of a packet that no rules apply to.
#[inline(always)]
fn unruled(path: u8) -> u16 {
    if path & path::ROUTED != 0 { LOOKUP } else { WIRE }
}

/// A packet on a routed port whose header has options, or is damaged, or does not let it go on; its edge, if that is special.
/// One that is at its end is not shown to rules or NAT, as with Linux: it is for the machine itself, or its sender is told.
#[cold]
fn stopped(packet: &mut Packet, snapshot: &Snapshot) -> Option<u16> {
    let (head, meta) = packet.data_and_meta();
    let header = head.get(L3..usize::from(meta.l4_off))?;
    let is_ip4 = meta.kind.l3() == Kind::IP4;
    if is_ip4 && checksum::fold(checksum::sum(header, 0)) != 0xffff {
        meta.drop_reason = DropReason::Ip4Checksum as u8;
        return Some(DROP);
    }
    if *header.get(if is_ip4 { 8 } else { 7 })? > 1 {
        return None;
    }
    meta.session = Found::NONE.0;
    let mut key = Key { kind: meta.kind.0, proto: meta.proto, ..Key::default() };
    if is_ip4 && let Some(to) = header.get(16..20) {
        key.destination[..4].copy_from_slice(to);
    }
    if snapshot.nat.claims(&key) {
        // Not the machine's own, whatever routes say: it would be translated and sent on.
        meta.drop_reason = DropReason::TtlExpired as u8;
        return Some(SLOW);
    }
    Some(LOOKUP)
}

/// Marks a packet for another worker.
#[inline]
fn hand_off(packet: &mut Packet, owner: usize) -> u16 {
    packet.meta_mut().out_port = owner as u16;
    HANDOFF
}

/// Completes a transport checksum that a kernel peer left to hardware that is not there.
pub(super) fn finish_checksum(packet: &mut Packet) -> bool {
    let meta = *packet.meta();
    let (head, segments) = packet.head_and_rest();
    let mut rest: [&[u8]; SEGMENTS] = [&[]; SEGMENTS];
    let mut n = 0;
    for (to, segment) in rest.iter_mut().zip(segments) {
        *to = segment;
        n += 1;
    }
    checksum::complete_partial(head, &rest[..n], &meta)
}

/// A packet whose IP header is wrong: dropped where rules apply, since nobody can say that it complies with them, and by a
/// router (RFC 1812, 5.2.2); passed on by a plain wire. A frame that the kernel cut because it is too large for any buffer is damaged and goes.
#[cold]
fn malformed(packet: &mut Packet, snapshot: &Snapshot, reason: DropReason) -> u16 {
    let cut = snapshot.port(packet.port()).is_some_and(|port| packet.pkt_len() >= port.max_frame());
    let truncated = matches!(reason, DropReason::Ip4Truncated | DropReason::Ip6Truncated);
    let reason = if cut && truncated { DropReason::GsoFrame } else { reason };
    let path = snapshot.path(packet.port());
    if reason != DropReason::GsoFrame && path & (path::RULES | path::ROUTED) == 0 {
        return WIRE;
    }
    packet.meta_mut().drop_reason = reason as u8;
    DROP
}
