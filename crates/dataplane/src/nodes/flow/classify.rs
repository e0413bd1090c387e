//! `flow-classify`: of packets of sessions, finds the rules that may match one packet and not the next, and decides.

use mmb_dpdk::Vector;
use mmb_session::Next;

use super::{Shown, dispatch};
use crate::nodes::VECTOR;
use crate::nodes::classify::matches;
use crate::worker::Worker;

pub(crate) fn process(worker: &mut Worker, mut vector: Vector<'_>) {
    let Worker { id, now, snapshot, sessions, per_packet, scratch, edits, .. } = worker;
    match snapshot.policy.per_packet() {
        Some(rules) => matches(&rules, snapshot, per_packet, vector.packets(), scratch),
        // The rules that the packet's session was decided by are gone.
        None => per_packet.hits.clear(),
    }
    let mut next = [Next::Pass; VECTOR];
    let packets = &mut Shown(vector.packets());
    let tally = sessions.per_packet(*now, &snapshot.of(*id), packets, &per_packet.hits, edits, &mut next);
    dispatch(worker, vector, &mut next, tally);
}
