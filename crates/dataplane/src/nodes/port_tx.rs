//! `port-tx`: sends packets on their output ports, in runs.

use mmb_dpdk::{Burst, Vector};
use mmb_packet::DropReason;

use crate::config::PortId;
use crate::nodes::handoff::{Ring, push, send};
use crate::snapshot::Snapshot;
use crate::worker::Worker;

/// Tries without progress before what a port does not take is dropped. A kernel port needs the kernel to run in
/// between, so a try takes a system call or so there.
const TRIES: u32 = 64;

pub(crate) fn process(worker: &mut Worker, vector: Vector<'_>) {
    let Some(mut burst) = worker.burst.take() else { return vector.free() };
    let mut current = PortId::NONE.0;
    vector.take(|packet| {
        let out = packet.meta().out_port;
        if out != current {
            flush(worker, current, &mut burst);
            current = out;
        }
        push(&mut burst, packet);
    });
    flush(worker, current, &mut burst);
    worker.burst = Some(burst);
}

/// Sends a run of packets for port `out`.
fn flush(worker: &Worker, out: u16, burst: &mut Burst) {
    if burst.is_empty() {
        return;
    }
    let snapshot: &Snapshot = &worker.snapshot;
    let Some(port) = snapshot.port(out) else {
        let reason = if out == PortId::NONE.0 { DropReason::Unwired } else { DropReason::PortGone };
        return discard(worker, reason, burst);
    };
    let (owner, queue) = port.tx_queue(worker.id, worker.shared.workers.len(), usize::from(out));
    if owner != worker.id {
        return send(worker, owner, Ring::Sends, burst);
    }
    // Only this worker uses the queue, so nobody else can have it.
    let Some(mut queue) = queue.and_then(|queue| queue.try_lock().ok()) else {
        return discard(worker, DropReason::PortGone, burst);
    };
    let mut tries = 0;
    while !burst.is_empty() {
        let count = queue.send(burst);
        if count.too_big > 0 {
            // The port has freed them already; which ports they came in by is not known.
            worker.counters().drops.add(PortId::NONE.0, DropReason::TooBig as u8, count.too_big as u64);
        }
        if count.sent > 0 {
            tries = 0;
            continue;
        }
        tries += 1;
        if tries == TRIES {
            return discard(worker, DropReason::TxFull, burst);
        }
        std::hint::spin_loop();
    }
}

pub(super) fn discard(worker: &Worker, reason: DropReason, burst: &mut Burst) {
    for packet in burst.iter() {
        worker.counters().drops.add(packet.port(), reason as u8, 1);
    }
    burst.clear();
}
