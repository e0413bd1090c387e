//! `port-rx`: polls the ports whose receive queues this worker owns.

use mmb_dpdk::Emit;

use crate::engine::config::MAX_PORTS;
use crate::engine::vector::VECTOR;
use crate::engine::worker::Worker;

const L2_INPUT: u16 = 0;

pub(crate) fn emit(worker: &mut Worker, emit: &mut Emit<'_>) -> usize {
    let mut total = 0;
    // Begin with another port each time: under overload no port starves the ones behind it.
    let first = worker.first_port;
    for step in 0..MAX_PORTS {
        let id = (first + step) % MAX_PORTS;
        let Some(port) = &worker.snapshot.ports[id] else { continue };
        let Some(queue) = port.rx_queue(worker.id, worker.shared.workers.len(), id) else { continue };
        let room = VECTOR - total;
        if room == 0 {
            worker.first_port = id;
            break;
        }
        total += emit.emit(L2_INPUT, room, |slots| {
            // Only this worker uses the queue, so nobody else can have it.
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
    worker.received += total;
    total
}
