//! `ip4-rewrite` and `ip6-rewrite`: what a router does to a packet, if its next hop is a neighbour that is known and the packet
//! may go on. Otherwise the packet goes where its next hop's kind says, or where the sender will be told.

use mmb_dpdk::{Packet, Vector};
use mmb_packet::{DropReason, Meta, StageWord};
use mmb_route::{NextHop, NextHopKind, NextHops, forward_ip4, forward_ip6};

use super::hop::{L3, flow_hash, reason};
use super::slow::want;
use crate::engine::vector::{VECTOR, for_each};
use crate::engine::worker::Worker;

const TX: u16 = 0;
const SLOW: u16 = 1;
const PUNT: u16 = 2;

pub(crate) fn next(sink: &'static str) -> Vec<&'static str> {
    vec![sink, "ip-slow", "punt"]
}

/// Where the TTL stands, or the hop limit.
const TTL4: usize = L3 + 8;
const TTL6: usize = L3 + 7;

pub(crate) fn process4(worker: &mut Worker, vector: Vector<'_>) {
    process(worker, vector, TTL4, forward_ip4);
}

pub(crate) fn process6(worker: &mut Worker, vector: Vector<'_>) {
    process(worker, vector, TTL6, forward_ip6);
}

/// Sends an IPv4 packet on to a next hop, if that is all there is to do. If not, no byte of it has changed.
#[inline(always)]
pub(crate) fn send_on4(head: &mut [u8], meta: &mut Meta, hop: &NextHop) -> bool {
    send_on(head, meta, hop, TTL4, forward_ip4)
}

#[inline(always)]
fn send_on(
    head: &mut [u8],
    meta: &mut Meta,
    hop: &NextHop,
    ttl: usize,
    forward: impl Fn(&mut [u8], usize, &NextHop) -> bool,
) -> bool {
    let length = usize::from(meta.end).wrapping_sub(L3);
    let lives = head.get(ttl).is_some_and(|ttl| *ttl > 1);
    let plain = (hop.kind == NextHopKind::Forward) & !hop.neighbor_stale;
    meta.out_port = hop.port;
    plain & lives & (length <= usize::from(hop.mtu)) && forward(head, L3, hop)
}

/// `ttl`: where the TTL or hop limit stands.
#[inline(always)]
fn process(
    worker: &mut Worker,
    mut vector: Vector<'_>,
    ttl: usize,
    forward: impl Fn(&mut [u8], usize, &NextHop) -> bool,
) {
    let hops = &worker.routes.hops;
    let n = vector.len();
    let mut edges = [TX; VECTOR];
    let (mut rare, mut nudges) = (false, false);
    for_each(vector.packets(), |at, packet| {
        let (head, meta) = packet.data_and_meta();
        let hop = hops.get(meta.stage.next_hop());
        if !send_on(head, meta, hop, ttl, &forward) {
            let lives = head.get(ttl).is_some_and(|ttl| *ttl > 1);
            edges[at] = detour(packet, hops, lives, &mut nudges, &forward);
            rare = true;
        }
    });
    if nudges {
        nudge(worker, vector.packets());
    }
    if rare { vector.send(&edges[..n]) } else { vector.send_all(TX) }
}

/// A packet that does not simply go on; its edge. It does go on if its next hop is one of several, or is to be probed.
#[inline(never)]
fn detour(
    packet: &mut Packet,
    hops: &NextHops,
    lives: bool,
    nudges: &mut bool,
    forward: &impl Fn(&mut [u8], usize, &NextHop) -> bool,
) -> u16 {
    let mut id = packet.meta().stage.next_hop();
    if hops.get(id).kind == NextHopKind::Group {
        id = hops.resolve(id, flow_hash(packet));
    }
    let hop = hops.get(id);
    *nudges |= hop.neighbor_stale;
    let (head, meta) = packet.data_and_meta();
    (meta.stage, meta.out_port) = (StageWord::from_next_hop(id), hop.port);
    let length = usize::from(meta.end).wrapping_sub(L3);
    let reason = match hop.kind {
        NextHopKind::Punt => return PUNT,
        NextHopKind::Forward if !lives => DropReason::TtlExpired,
        NextHopKind::Forward if length > usize::from(hop.mtu) => DropReason::FragNeeded,
        NextHopKind::Forward if forward(head, L3, hop) => return TX,
        kind => reason(kind),
    };
    meta.drop_reason = reason as u8;
    SLOW
}

/// Asks the kernel to probe the neighbours that it has not heard of for a while.
#[cold]
fn nudge(worker: &mut Worker, packets: &mut [&mut Packet]) {
    worker.tell_time();
    let routes = worker.routes.clone();
    for packet in packets {
        let hop = routes.hops.get(packet.meta().stage.next_hop());
        if hop.neighbor_stale && hop.kind == NextHopKind::Forward {
            want(worker, hop, packet);
        }
    }
}
