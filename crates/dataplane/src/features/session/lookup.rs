//! `flow-lookup`: finds the sessions of packets, and applies the cached decision of established ones.
//!
//! Theory of operation. The input nodes prefetch sessions and leave one token for a vector
//! ([`super::ingress`]); its packets need not be read again. Packets whose session knows the next hop are
//! forwarded here, as by `ip4-rewrite`.

use arrayvec::ArrayVec;
use mmb_dpdk::{Packet, Vector};
use mmb_session::Next;

use super::dispatch::{Edge, dispatch, edge_of};
use super::packets::PacketBatch;
use crate::engine::node::edges::{RoutedEdges, send_all};
use crate::engine::node::vector::VECTOR;
use crate::engine::worker::Worker;
use crate::features::route::next_hop::for_each_lasting_hop;

pub(crate) fn process(worker: &mut Worker, mut vector: Vector<'_>) {
    let Worker { id, clock, snapshot, routing, flows, rules, .. } = worker;
    let sessions = &mut flows.sessions;
    let mut next = [Next::Pass; VECTOR];
    let hops = snapshot.all_routed.then_some(&routing.routes.hops);
    let prefetched = flows.prefetched.take().filter(|(_, whole)| whole.is(vector.packets()));
    let (token, version) = prefetched.map(|(token, whole)| (token, whole.version)).unzip();
    let packets = &mut PacketBatch { packets: vector.packets(), hops };
    let kinds =
        sessions.lookup(token, clock.now, &snapshot.for_worker(*id), packets, &mut rules.edits, &mut next);
    if kinds.is_only(Next::Forwarded) {
        return send_all(vector, edge_of(Next::Forwarded));
    }
    if !sessions.next_hop_misses().is_empty() && worker.routes_stable() {
        keep_next_hops(worker, vector.packets());
    }
    if kinds.is_only(Next::Pass)
        && worker.snapshot.all_routed
        && let Some(version) = version
    {
        return send_all(vector, Edge::for_version(version));
    }
    dispatch(worker, vector, &mut next, kinds);
}

/// Looks up the next hops that sessions of routed packets lack, for the sessions to keep.
#[inline(never)]
fn keep_next_hops(worker: &mut Worker, packets: &[&mut Packet]) {
    let Worker { snapshot, routing, flows, .. } = worker;
    let sessions = &mut flows.sessions;
    let misses: ArrayVec<usize, VECTOR> = sessions
        .next_hop_misses()
        .iter()
        .map(|at| usize::from(*at))
        .filter(|at| *at < packets.len())
        .collect();
    for_each_lasting_hop(&routing.routes, packets, &misses, |at, hop| {
        sessions.set_next_hop(at, hop.filter(|_| snapshot.is_routed(packets[at].port())));
    });
}
