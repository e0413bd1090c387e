//! `port-tx`: transmits packets on their output ports, in runs for one port.

use std::sync::MutexGuard;

use mmb_dpdk::{Burst, TxQueue, Vector};
use mmb_packet::DropReason;

use crate::engine::config::PortId;
use crate::engine::worker::Worker;
use crate::features::fastpath::learn::learn_from_tx;
use crate::features::handoff::send::{TargetRing, discard, push, send_to_worker};
use crate::features::punt::queue::PuntQueue;

/// Attempts without progress after which packets that a port does not take are dropped. On a kernel port, an
/// attempt takes about a system call, since the kernel must run in between.
const TRIES: u32 = 64;

pub(crate) fn process(worker: &mut Worker, mut vector: Vector<'_>) {
    if worker.fast.has_samples() {
        learn_from_tx(worker, vector.packets());
    }
    let Some(mut burst) = worker.ports.burst.take() else { return vector.free() };
    if let Err(vector) = transmit_whole(worker, vector, &mut burst) {
        transmit_in_runs(worker, vector, &mut burst);
    }
    worker.ports.burst = Some(burst);
}

/// Transmits packets that are all for one port, as on a wire, without moving them. Returns the vector if they
/// are for several ports, or for a port on which another worker transmits.
fn transmit_whole<'a>(worker: &Worker, mut vector: Vector<'a>, burst: &mut Burst) -> Result<(), Vector<'a>> {
    let packets = vector.packets();
    let out = packets.first().map_or(PortId::NONE.0, |packet| packet.meta().out_port);
    if packets.iter().fold(0, |others, packet| others | (packet.meta().out_port ^ out)) != 0 {
        return Err(vector);
    }
    let Some(mut queue) = own_queue(worker, out) else { return Err(vector) };
    let count = vector.transmit(&mut queue, burst);
    drop(queue);
    count_oversized(worker, count.too_big);
    flush(worker, out, burst);
    Ok(())
}

fn transmit_in_runs(worker: &Worker, vector: Vector<'_>, burst: &mut Burst) {
    let mut current = PortId::NONE.0;
    vector.drain(|packet| {
        let out = packet.meta().out_port;
        if out != current {
            flush(worker, current, burst);
            current = out;
        }
        push(burst, packet);
    });
    flush(worker, current, burst);
}

/// The queue of port `out`, if this worker transmits there.
fn own_queue(worker: &Worker, out: u16) -> Option<MutexGuard<'_, TxQueue>> {
    if punt_queue(worker, out).is_some() {
        return None;
    }
    let port = worker.snapshot.port(out)?;
    let (owner, queue) = port.tx_queue(worker.id, worker.shared.workers.len(), usize::from(out));
    // Only this worker uses the queue, so the lock is free.
    if owner == worker.id { queue?.try_lock().ok() } else { None }
}

/// The queue of packets for the kernel, if port `out` leads there.
fn punt_queue(worker: &Worker, out: u16) -> Option<&PuntQueue> {
    worker.shared.punt.queue.as_ref().filter(|_| worker.snapshot.leads_to_kernel(out))
}

/// Writes a packet to a port that leads to the kernel, in place of the thread that does so. It stays in the
/// burst if the port is in use or has no room.
fn write_to_kernel(worker: &Worker, out: u16, burst: &mut Burst) {
    if let Some(queue) = worker.snapshot.port(out).and_then(|port| port.punt_queue())
        && let Ok(mut queue) = queue.try_lock()
    {
        count_oversized(worker, queue.send(burst).too_big);
    }
}

fn count_oversized(worker: &Worker, packets: usize) {
    if packets > 0 {
        // The port has freed them already; their input ports are not known.
        worker.counters().drops.add(PortId::NONE.0, DropReason::TooBig as u8, packets as u64);
    }
}

/// Transmits a run of packets for port `out`.
fn flush(worker: &Worker, out: u16, burst: &mut Burst) {
    if burst.is_empty() {
        return;
    }
    if let Some(queue) = punt_queue(worker, out) {
        if worker.ports.has_single_packet() && burst.len() == 1 && queue.is_idle() {
            write_to_kernel(worker, out, burst);
        }
        if !burst.is_empty() {
            queue.send(burst);
        }
        if !burst.is_empty() {
            discard(worker, DropReason::PuntFull, burst);
        }
        return;
    }
    let snapshot = &*worker.snapshot;
    let Some(port) = snapshot.port(out) else {
        let reason = if out == PortId::NONE.0 { DropReason::Unwired } else { DropReason::PortGone };
        return discard(worker, reason, burst);
    };
    let (owner, queue) = port.tx_queue(worker.id, worker.shared.workers.len(), usize::from(out));
    if owner != worker.id {
        return send_to_worker(worker, owner, TargetRing::Transmits, burst);
    }
    // Only this worker uses the queue, so the lock is free.
    let Some(mut queue) = queue.and_then(|queue| queue.try_lock().ok()) else {
        return discard(worker, DropReason::PortGone, burst);
    };
    let mut tries = 0;
    while !burst.is_empty() {
        let count = queue.send(burst);
        count_oversized(worker, count.too_big);
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
