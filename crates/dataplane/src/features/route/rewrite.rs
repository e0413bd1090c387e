//! `ip4-rewrite` and `ip6-rewrite`: forward packets to next hops that are known neighbours.
//!
//! Packets with another kind of next hop, with an expired TTL, or longer than the MTU go to `ip-slow` or
//! `punt`. A large frame is as long as its longest segment.

use mmb_dpdk::{Packet, Vector};
use mmb_packet::{DropReason, StageWord};
use mmb_route::{NextHop, NextHopKind, NextHops, forward_ip4, forward_ip6};

use super::forward::{TTL4, TTL6, forward};
use super::next_hop::{flow_hash, slow_path_reason};
use super::resolve::Resolver;
use crate::engine::node::edges::{SINK, edges, send, send_all};
use crate::engine::node::vector::{ROUTED_L3 as L3, VECTOR, for_each_prefetched};
use crate::engine::worker::Worker;

edges! {
    /// The edges of both nodes.
    pub(crate) enum Edge {
        Transmit => SINK,
        Slow => "ip-slow",
        Punt => "punt",
    }
}

pub(crate) fn process4(worker: &mut Worker, vector: Vector<'_>) {
    process(worker, vector, TTL4, forward_ip4);
}

pub(crate) fn process6(worker: &mut Worker, vector: Vector<'_>) {
    process(worker, vector, TTL6, forward_ip6);
}

/// `ttl`: offset of the TTL or hop limit. `rewrite`: forwards a packet with a plain next hop.
#[inline(always)]
fn process(
    worker: &mut Worker,
    mut vector: Vector<'_>,
    ttl: usize,
    rewrite: impl Fn(&mut [u8], usize, &NextHop) -> bool,
) {
    let hops = &worker.routing.routes.hops;
    let mut edges = [Edge::Transmit; VECTOR];
    let (mut has_uncommon, mut has_stale) = (false, false);
    for_each_prefetched(vector.packets(), |at, packet| {
        let (head, meta) = packet.data_and_meta();
        let hop = hops.get(meta.stage.next_hop());
        if !forward(head, meta, hop, ttl, &rewrite) {
            let is_alive = head.get(ttl).is_some_and(|ttl| *ttl > 1);
            edges[at] = process_uncommon(packet, hops, is_alive, &mut has_stale, &rewrite);
            has_uncommon = true;
        }
    });
    if has_stale {
        probe_stale_neighbors(worker, vector.packets());
    }
    if has_uncommon { send(vector, &edges) } else { send_all(vector, Edge::Transmit) }
}

/// The edge of a packet that [`forward`] has not forwarded. It is forwarded here if its next hop is a member
/// of a group, or a neighbour that is to be probed (`has_stale` is set then).
#[inline(never)]
fn process_uncommon(
    packet: &mut Packet,
    hops: &NextHops,
    is_alive: bool,
    has_stale: &mut bool,
    rewrite: &impl Fn(&mut [u8], usize, &NextHop) -> bool,
) -> Edge {
    let mut id = packet.meta().stage.next_hop();
    if hops.get(id).kind == NextHopKind::Group {
        id = hops.resolve(id, flow_hash(packet));
    }
    let hop = hops.get(id);
    *has_stale |= hop.neighbor_stale;
    let segment = packet.is_large().then(|| packet.longest_frame());
    let (head, meta) = packet.data_and_meta();
    (meta.stage, meta.out_port) = (StageWord::from_next_hop(id), hop.port);
    let length = segment.unwrap_or(meta.end.into()).wrapping_sub(L3);
    let reason = match hop.kind {
        NextHopKind::Punt => return Edge::Punt,
        NextHopKind::Forward if !is_alive => DropReason::TtlExpired,
        NextHopKind::Forward if length > usize::from(hop.mtu) => DropReason::FragNeeded,
        NextHopKind::Forward if rewrite(head, L3, hop) => return Edge::Transmit,
        kind => slow_path_reason(kind),
    };
    meta.drop_reason = reason as u8;
    Edge::Slow
}

/// Asks the kernel to probe neighbours that it has not heard of for a while.
#[cold]
fn probe_stale_neighbors(worker: &mut Worker, packets: &mut [&mut Packet]) {
    worker.update_clock();
    let routes = worker.routing.routes.clone();
    for packet in packets {
        let hop = routes.hops.get(packet.meta().stage.next_hop());
        if hop.neighbor_stale && hop.kind == NextHopKind::Forward {
            Resolver::of(worker).request(hop, packet);
        }
    }
}
