//! `flow-lookup`: finds the packets' sessions; those that are under way go on with what was decided before.
//! What has been taken in by `ip4-input` or `ip6-input` in this walk and goes on to be routed needs no look at where it goes. Packets of
//! which the session knows the next hop are sent on here, as `ip4-rewrite` would do.

use arrayvec::ArrayVec;
use mmb_dpdk::{Packet, Vector};
use mmb_session::Next;

use super::dispatch::{Shown, WAYS, dispatch};
use crate::engine::vector::VECTOR;
use crate::engine::worker::Worker;
use crate::features::route::hop::steady_hops;

pub(crate) fn process(worker: &mut Worker, mut vector: Vector<'_>) {
    let Worker { id, now, snapshot, routes, sessions, edits, .. } = worker;
    let mut next = [Next::Pass; VECTOR];
    let hops = snapshot.routed.then_some(&routes.hops);
    let packets = &mut Shown { packets: vector.packets(), hops };
    let tally = sessions.lookup(*now, &snapshot.of(*id), packets, edits, &mut next);
    if tally.all(Next::Forwarded) {
        return vector.send_all(Next::Forwarded as u16);
    }
    if !sessions.next_hop_misses().is_empty() && worker.has_calm_routes() {
        keep_hops(worker, vector.packets());
    }
    if tally.all(Next::Pass)
        && worker.snapshot.routed
        && let Some(version) = worker.sessions.version()
    {
        return vector.send_all(WAYS.of_version(version));
    }
    dispatch(worker, vector, &mut next, tally);
}

/// Has the sessions of packets that are to be routed keep their next hops.
#[inline(never)]
fn keep_hops(worker: &mut Worker, packets: &[&mut Packet]) {
    let Worker { snapshot, routes, sessions, .. } = worker;
    let next_hop_misses: ArrayVec<usize, VECTOR> = sessions
        .next_hop_misses()
        .iter()
        .map(|at| usize::from(*at))
        .filter(|at| *at < packets.len())
        .collect();
    steady_hops(routes, packets, &next_hop_misses, |at, hop| {
        sessions.set_next_hop(at, hop.filter(|_| snapshot.is_routed(packets[at].port())));
    });
}
