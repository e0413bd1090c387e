//! `port-rx`: polls the ports whose receive queues this worker owns.

use mmb_dpdk::Emit;

use crate::engine::config::MAX_PORTS;
use crate::engine::node::edges::{edges, emit};
use crate::engine::node::vector::VECTOR;
use crate::engine::worker::Worker;

edges! {
    /// The edge of `port-rx`.
    pub(crate) enum Edge {
        L2Input => "l2-input",
    }
}

pub(crate) fn poll(worker: &mut Worker, walk: &mut Emit<'_>) -> usize {
    let mut total = 0;
    // Each walk begins with the port where the last one ran out of room, so that no port starves.
    let first = worker.ports.first;
    for step in 0..MAX_PORTS {
        let id = (first + step) % MAX_PORTS;
        let Some(port) = &worker.snapshot.ports[id] else { continue };
        let Some(queue) = port.rx_queue(worker.id, worker.shared.workers.len(), id) else { continue };
        let room = VECTOR - total;
        if room == 0 {
            worker.ports.first = id;
            break;
        }
        total += emit(walk, Edge::L2Input, room, |slots| {
            // Only this worker uses the queue, so the lock is free.
            if let Ok(mut queue) = queue.try_lock() {
                queue.receive(slots);
            }
            for at in 0..slots.len() {
                if let Some(packet) = slots.get_mut(at) {
                    packet.set_port(id as u16);
                }
            }
            if worker.fast.is_learning() {
                worker.fast.sample(slots, false);
            }
        });
    }
    worker.ports.received += total;
    total
}
