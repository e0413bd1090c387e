//! `drop`: counts packets by reason and frees them.

use mmb_dpdk::Vector;

use crate::engine::worker::Worker;

pub(crate) fn process(worker: &mut Worker, mut vector: Vector<'_>) {
    let counters = worker.counters();
    for packet in vector.packets().iter() {
        counters.drops.add(packet.port(), packet.meta().drop_reason, 1);
    }
    vector.free();
}
