//! `neighbor-rx`: returns packets to the graph that have waited for an Ethernet address.

use mmb_dpdk::{Emit, Mbuf};
use mmb_packet::{DropReason, Kind};
use mmb_route::NextHopKind;

use super::next_hop::look_up_one;
use super::resolve::neighbor_of;
use super::waiting::Outcome;
use crate::engine::node::edges::{edges, emit};
use crate::engine::node::vector::VECTOR;
use crate::engine::worker::Worker;

edges! {
    /// The edges of `neighbor-rx`.
    pub(crate) enum Edge {
        Ip4Lookup => "ip4-lookup",
        Ip6Lookup => "ip6-lookup",
        Slow => "ip-slow",
    }
}

pub(crate) fn receive(worker: &mut Worker, walk: &mut Emit<'_>) -> usize {
    if worker.slow_path.waiting.is_empty() { 0 } else { release(worker, walk) }
}

#[cold]
fn release(worker: &mut Worker, walk: &mut Emit<'_>) -> usize {
    let Worker { slow_path, routing, clock, .. } = worker;
    let (waiting, routes) = (&mut slow_path.waiting, &routing.routes);
    let is_decided = waiting.decide(clock.now, |packet, request| {
        let hop = routes.hops.get(look_up_one(routes, packet));
        hop.kind == NextHopKind::Resolve && neighbor_of(hop, packet) == Some(request)
    });
    if !is_decided {
        return 0;
    }
    let is_version = |version| move |packet: &Mbuf| packet.meta().kind.l3() == version;
    let mut n = 0;
    for (edge, version) in [(Edge::Ip4Lookup, Kind::IP4), (Edge::Ip6Lookup, Kind::IP6)] {
        n += emit(walk, edge, VECTOR, |slots| {
            waiting.release(Outcome::Retry, is_version(version), |packet| slots.push(packet));
        });
    }
    n += emit(walk, Edge::Slow, VECTOR, |slots| {
        waiting.release(
            Outcome::TimedOut,
            |_| true,
            |mut packet| {
                packet.meta_mut().drop_reason = DropReason::NeighborFailed as u8;
                slots.push(packet)
            },
        );
    });
    worker.counters().routing.waiting.set(worker.slow_path.waiting.len() as u64);
    worker.ports.received += n;
    n
}
