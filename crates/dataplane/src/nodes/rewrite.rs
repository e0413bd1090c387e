//! `rewrite`: applies the edits of every matching rule, in rule order.

use mmb_dpdk::Vector;

use crate::worker::Worker;

const TX: u16 = 0;

pub(crate) fn process(worker: &mut Worker, mut vector: Vector<'_>) {
    let policy = &worker.snapshot.policy;
    for packet in vector.packets().iter_mut() {
        let (data, meta) = packet.data_and_meta();
        let first = meta.edits_at as usize;
        let slots = worker.edits.get(first..first + usize::from(meta.edits_len)).unwrap_or(&[]);
        for &slot in slots {
            policy.edit(slot, data, meta);
        }
    }
    vector.send_all(TX);
}
