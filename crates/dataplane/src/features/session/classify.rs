//! `flow-classify`: of packets of sessions, finds the rules that may match one packet and not the next, and decides.

use mmb_dpdk::{Packet, Vector};
use mmb_session::Next;

use super::dispatch::{Shown, dispatch};
use crate::engine::vector::VECTOR;
use crate::engine::worker::Worker;
use crate::features::classify::node::matches;

pub(crate) fn process(worker: &mut Worker, mut vector: Vector<'_>) {
    let Worker { id, now, snapshot, routes, sessions, per_packet, scratch, edits, .. } = worker;
    let host = snapshot.of(*id);
    let out = |packet: &Packet| sessions.effective_destination(&host, packet.data(), packet.meta());
    match snapshot.policy.per_packet() {
        Some(rules) => {
            matches(&rules, (snapshot, routes), per_packet, vector.packets(), scratch, out);
        }
        // The rules that the packet's session was decided by are gone.
        None => per_packet.hits.clear(),
    }
    let mut next = [Next::Pass; VECTOR];
    let packets = &mut Shown { packets: vector.packets(), hops: None };
    let tally = sessions.process_per_packet(*now, &host, packets, &per_packet.hits, edits, &mut next);
    dispatch(worker, vector, &mut next, tally);
}
