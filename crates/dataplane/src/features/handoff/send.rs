//! Sends bursts of packets to other workers.

use mmb_dpdk::{Burst, Mbuf};
use mmb_packet::DropReason;

use crate::engine::worker::Worker;

/// Which ring of the other worker.
#[derive(Clone, Copy)]
pub(crate) enum TargetRing {
    /// Packets of flows that the other worker owns.
    Flows,
    /// Packets for ports on which the other worker transmits.
    Transmits,
}

/// Puts the packets of `burst` into a ring of worker `target`. Packets that do not fit are dropped and
/// counted.
pub(crate) fn send_to_worker(worker: &Worker, target: usize, ring: TargetRing, burst: &mut Burst) {
    if burst.is_empty() {
        return;
    }
    if let Some(shared) = worker.shared.workers.get(target)
        && let Some(inbox) = &shared.inbox
    {
        match ring {
            TargetRing::Flows => inbox.flows.send_burst(burst),
            TargetRing::Transmits => inbox.transmits.send_burst(burst),
        };
        shared.wake_if_sleeping();
    }
    if !burst.is_empty() {
        discard(worker, DropReason::HandoffFull, burst);
    }
}

/// Drops the packets of a burst and counts them.
pub(crate) fn discard(worker: &Worker, reason: DropReason, burst: &mut Burst) {
    for packet in burst.iter() {
        worker.counters().drops.add(packet.port(), reason as u8, 1);
    }
    burst.clear();
}

/// Adds a packet to a burst that has room for a whole vector.
#[inline]
pub(crate) fn push(burst: &mut Burst, packet: Mbuf) {
    // A burst holds as many packets as a vector, and is empty before each vector. One packet too many is
    // freed.
    let _ = burst.push(packet);
}
