//! `flow-track`: packets that open sessions or change their state, one by one, with all rules that match
//! them.

use mmb_dpdk::{Packet, Vector};
use mmb_packet::DropReason;
use mmb_session::{Next, NextSet, ReleasedFragment};

use super::dispatch::{Edge, dispatch};
use super::state::count_lost;
use crate::engine::node::edges::inject;
use crate::engine::node::vector::{AHEAD, VECTOR};
use crate::engine::worker::Worker;
use crate::features::classify::matching::find_matches;

pub(crate) fn process(worker: &mut Worker, mut vector: Vector<'_>) {
    let Worker { id, clock, snapshot, routing, flows, rules, shared, .. } = worker;
    let (sessions, (batch, frame, edits)) = (&mut flows.sessions, rules.lookup_parts());
    let drops = &shared.workers[*id].counters.drops;
    let environment =
        snapshot.for_worker(*id).with_log(&shared.workers[*id].log).with_locals(&routing.locals);
    let out = |packet: &Packet| sessions.effective_destination(&environment, packet.data(), packet.meta());
    find_matches(
        snapshot.policy.classifier(),
        (snapshot, &routing.routes),
        batch,
        vector.packets(),
        frame,
        out,
    );
    let (mut next, mut kinds) = ([Next::Pass; VECTOR], NextSet::default());
    let mut hits = batch.hits.as_slice();
    let packets = vector.packets();
    for at in 0..packets.len().min(VECTOR) {
        // The headers of a vector do not fit in the first-level cache.
        if let Some(ahead) = packets.get(at + AHEAD) {
            ahead.prefetch_header();
            ahead.prefetch_data();
        }
        let packet = &mut *packets[at];
        let count = hits.iter().take_while(|hit| usize::from(hit.pkt) == at).count();
        let (of_packet, rest) = hits.split_at(count);
        hits = rest;
        // A copy, since the packet is borrowed as a whole while its length may change.
        let (mut meta, port) = (*packet.meta(), packet.port());
        next[at] =
            sessions.process_slow_path(clock.now, &environment, packet, &mut meta, port, of_packet, edits);
        *packet.meta_mut() = meta;
        if next[at] == Next::Reply {
            drops.add(port, meta.drop_reason, 1);
        }
        kinds.insert(next[at]);
    }
    if kinds.contains(Next::Hold) {
        worker.flows.held.extract(&mut vector, &mut next);
    }
    release_fragments(worker, &mut vector);
    dispatch(worker, vector, &mut next, kinds);
}

/// Sends fragments that waited to `flow-lookup`, and drops those that waited in vain.
fn release_fragments(worker: &mut Worker, vector: &mut Vector<'_>) {
    let drops = &worker.shared.workers[worker.id].counters.drops;
    while let Some(released) = worker.flows.sessions.next_released_fragment() {
        match released {
            ReleasedFragment::Retry(ticket) => {
                let packet = worker.flows.held.release(ticket);
                if let Some(Err(packet)) = packet.map(|packet| inject(vector, Edge::Lookup, packet)) {
                    // The walk is full.
                    count_lost(&packet, drops);
                }
            }
            ReleasedFragment::TimedOut(ticket) => {
                worker.flows.held.drop_held(ticket, DropReason::FragmentLost, drops);
            }
        }
    }
}
