//! `handoff` and `handoff-rx`: packets to the worker that owns their flow, and from other workers.

use mmb_dpdk::{Emit, Vector};
use mmb_packet::DropReason;

use super::admission::Admission;
use super::send::{TargetRing, push, send_to_worker};
use crate::engine::node::edges::{SINK, edges, emit};
use crate::engine::node::vector::VECTOR;
use crate::engine::snapshot::PolicyPath;
use crate::engine::worker::Worker;

edges! {
    /// The edges of `handoff-rx`.
    pub(crate) enum RxEdge {
        Classify => "classify",
        FlowLookup => "flow-lookup",
        Transmit => SINK,
    }
}

impl From<PolicyPath> for RxEdge {
    fn from(path: PolicyPath) -> RxEdge {
        match path {
            PolicyPath::Classify => RxEdge::Classify,
            PolicyPath::Sessions => RxEdge::FlowLookup,
        }
    }
}

/// Sends parsed packets to the workers that own their flows, in runs for one worker.
pub(crate) fn process(worker: &mut Worker, vector: Vector<'_>) {
    let Some(mut burst) = worker.ports.burst.take() else { return vector.free() };
    let mut target = worker.id;
    let mut admission = Admission::default();
    vector.drain(|packet| {
        let owner = usize::from(packet.meta().stage.worker());
        if owner != target {
            send_to_worker(worker, target, TargetRing::Flows, &mut burst);
            target = owner;
            admission = Admission::to(worker, target);
        }
        if admission.admits(&packet) {
            push(&mut burst, packet);
        } else {
            worker.counters().drops.add(packet.port(), DropReason::HandoffFull as u8, 1);
        }
    });
    send_to_worker(worker, target, TargetRing::Flows, &mut burst);
    worker.ports.burst = Some(burst);
}

/// Receives packets that other workers left.
pub(crate) fn receive(worker: &mut Worker, walk: &mut Emit<'_>) -> usize {
    let Some(inbox) = &mut worker.handoff.inbox else { return 0 };
    let mut received = 0;
    let rules = RxEdge::from(worker.snapshot.policy_path);
    for (edge, ring) in [(rules, &mut inbox.flows), (RxEdge::Transmit, &mut inbox.transmits)] {
        if !ring.is_empty() {
            received += emit(walk, edge, VECTOR, |slots| {
                ring.receive(slots);
                if worker.fast.is_learning() && edge != RxEdge::Transmit {
                    worker.fast.sample(slots, true);
                }
            });
        }
    }
    worker.ports.received += received;
    received
}
