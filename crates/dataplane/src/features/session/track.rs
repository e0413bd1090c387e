//! `flow-track`: packets that open sessions or change their state, one by one, with all rules that match them.

use mmb_dpdk::{Packet, Vector};
use mmb_session::{Next, NextSet, ReleasedFragment};

use super::dispatch::{AGAIN, dispatch, set_aside};
use crate::engine::vector::VECTOR;
use crate::engine::worker::Worker;
use crate::features::classify::node::matches;

/// How many packets ahead memory is asked for.
const AHEAD: usize = 4;

pub(crate) fn process(worker: &mut Worker, mut vector: Vector<'_>) {
    let Worker { id, now, snapshot, routes, sessions, batch, scratch, edits, shared, .. } = worker;
    let drops = &shared.workers[*id].counters.drops;
    let host = snapshot.of(*id);
    let out = |packet: &Packet| sessions.effective_destination(&host, packet.data(), packet.meta());
    matches(&snapshot.policy, (snapshot, routes), batch, vector.packets(), scratch, out);
    let (mut next, mut tally) = ([Next::Pass; VECTOR], NextSet::default());
    let mut hits = batch.hits.as_slice();
    let packets = vector.packets();
    for at in 0..packets.len().min(VECTOR) {
        // A vector's headers do not fit in the nearest cache.
        if let Some(coming) = packets.get(at + AHEAD) {
            coming.prefetch_header();
            coming.prefetch_data();
        }
        let packet = &mut *packets[at];
        let of_packet = hits.iter().take_while(|hit| usize::from(hit.pkt) == at).count();
        let (of_packet, rest) = hits.split_at(of_packet);
        hits = rest;
        // A copy, since the packet is borrowed as a whole while its length may change.
        let (mut meta, port) = (*packet.meta(), packet.port());
        next[at] = sessions.process_slow_path(*now, &host, packet, &mut meta, port, of_packet, edits);
        *packet.meta_mut() = meta;
        if next[at] == Next::Reply {
            drops.add(port, meta.drop_reason, 1);
        }
        tally.add(next[at]);
    }
    if tally.has(Next::Hold) {
        set_aside(worker, &mut vector, &mut next);
    }
    bring_back(worker, &mut vector);
    dispatch(worker, vector, &mut next, tally);
}

/// Sends fragments that waited back to where they came from, and drops those that waited in vain.
fn bring_back(worker: &mut Worker, vector: &mut Vector<'_>) {
    while let Some(ticket) = worker.sessions.next_released_fragment() {
        match ticket {
            ReleasedFragment::Retry(place) => {
                let packet = worker.held.get_mut(place as usize).and_then(Option::take);
                if let Some(Err(packet)) = packet.map(|packet| vector.inject(AGAIN, packet)) {
                    // The walk is full; in its place again, it can be lost.
                    worker.held[place as usize] = Some(packet);
                    worker.lose(place);
                }
            }
            ReleasedFragment::TimedOut(place) => worker.lose(place),
        }
    }
}
