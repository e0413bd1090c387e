//! `handoff` and `handoff-rx`: packets on their way to the worker that owns their flow, and in from others.

use mmb_dpdk::{Burst, Emit, Vector};
use mmb_packet::DropReason;

use crate::engine::vector::VECTOR;
use crate::engine::worker::Worker;
use crate::features::port::tx::discard;

/// Edges of `handoff-rx`: `classify`, the sink, `flow-lookup`.
const CLASSIFY: u16 = 0;
const TX: u16 = 1;
const FLOW_LOOKUP: u16 = 2;

/// Sends parsed packets to the workers whose numbers stand in their metadata, in runs.
pub(crate) fn process(worker: &mut Worker, vector: Vector<'_>) {
    let Some(mut burst) = worker.burst.take() else { return vector.free() };
    let mut target = worker.id;
    vector.drain(|packet| {
        let owner = usize::from(packet.meta().stage.worker());
        if owner != target {
            send(worker, target, Ring::Flows, &mut burst);
            target = owner;
        }
        push(&mut burst, packet);
    });
    send(worker, target, Ring::Flows, &mut burst);
    worker.burst = Some(burst);
}

/// Brings in what other workers left.
pub(crate) fn emit(worker: &mut Worker, emit: &mut Emit<'_>) -> usize {
    let Some(inbox) = &mut worker.inbox else { return 0 };
    let mut received = 0;
    let rules = if worker.snapshot.flows { FLOW_LOOKUP } else { CLASSIFY };
    for (edge, ring) in [(rules, &mut inbox.flows), (TX, &mut inbox.sends)] {
        if !ring.is_empty() {
            received += emit.emit(edge, VECTOR, |slots| {
                ring.receive(slots);
                if worker.fast.is_learning() && edge != TX {
                    worker.fast.sample(slots, true);
                }
            });
        }
    }
    worker.received += received;
    received
}

/// Which of another worker's rings.
#[derive(Clone, Copy)]
pub(crate) enum Ring {
    Flows,
    Sends,
}

/// Leaves the packets of `burst` with worker `target`; what does not fit its ring is dropped and counted.
pub(crate) fn send(worker: &Worker, target: usize, ring: Ring, burst: &mut Burst) {
    if burst.is_empty() {
        return;
    }
    if let Some(shared) = worker.shared.workers.get(target)
        && let Some(inbox) = &shared.inbox
    {
        match ring {
            Ring::Flows => inbox.flows.send_burst(burst),
            Ring::Sends => inbox.sends.send_burst(burst),
        };
        shared.wake_if_sleeping();
    }
    if !burst.is_empty() {
        discard(worker, DropReason::HandoffFull, burst);
    }
}

/// Adds a packet to a burst that has room for a whole vector.
#[inline]
pub(crate) fn push(burst: &mut Burst, packet: mmb_dpdk::Mbuf) {
    // A burst holds as many packets as a vector and is emptied before each one; a packet too many is freed.
    let _ = burst.push(packet);
}
