//! `flow-classify`: tests packets of sessions against the rules that may match one packet and not the next.

use mmb_dpdk::{Packet, Vector};
use mmb_session::Next;

use super::dispatch::dispatch;
use super::packets::PacketBatch;
use crate::engine::node::vector::VECTOR;
use crate::engine::worker::Worker;
use crate::features::classify::matching::find_matches;

pub(crate) fn process(worker: &mut Worker, mut vector: Vector<'_>) {
    let Worker { id, clock, snapshot, routing, flows, rules, .. } = worker;
    let (sessions, per_packet) = (&mut flows.sessions, &mut flows.per_packet);
    let environment = snapshot.for_worker(*id);
    let out = |packet: &Packet| sessions.effective_destination(&environment, packet.data(), packet.meta());
    match snapshot.policy.per_packet() {
        Some(classifier) => {
            let routes = (&**snapshot, &*routing.routes);
            find_matches(classifier, routes, per_packet, vector.packets(), &mut rules.frame, out);
        }
        // The rules by which the packet's session was decided are gone.
        None => per_packet.hits.clear(),
    }
    let mut next = [Next::Pass; VECTOR];
    let packets = &mut PacketBatch { packets: vector.packets(), hops: None };
    let (hits, edits) = (&per_packet.hits, &mut rules.edits);
    let kinds = sessions.process_per_packet(clock.now, &environment, packets, hits, edits, &mut next);
    dispatch(worker, vector, &mut next, kinds);
}
