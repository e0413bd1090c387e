//! `rewrite`: applies the edits of every matching rule, in rule order. A packet whose edits cannot be made goes on as it
//! came and is counted, or is dropped, as the configuration says. What is routed is then looked up.

use mmb_dpdk::{Packet, Vector};
use mmb_lang::ErrorPolicy;
use mmb_packet::{DropReason, OUT_ROUTED};
use mmb_policy::EditLimits;

use crate::engine::snapshot::Snapshot;
use crate::engine::vector::VECTOR;
use crate::engine::worker::{Worker, WorkerCounters};
use crate::features::route::hop::Ways;

const TX: u16 = 0;
const DROP: u16 = 1;
const WAYS: Ways = Ways { first: 2 };

pub(crate) fn process(worker: &mut Worker, mut vector: Vector<'_>) {
    let mut edges = [TX; VECTOR];
    let n = vector.len();
    let mut all = true;
    for (packet, edge) in vector.packets().iter_mut().zip(&mut edges) {
        *edge = match edit(worker, packet) {
            false => DROP,
            true if packet.meta().out_port == OUT_ROUTED => WAYS.of(packet),
            true => TX,
        };
        all &= *edge == TX;
    }
    if all { vector.send_all(TX) } else { vector.send(&edges[..n]) }
}

/// Applies the edits in a packet's metadata. False: that cannot be done, and the packet is to be dropped, for the reason that
/// stands there then.
#[inline]
pub(crate) fn edit(worker: &Worker, packet: &mut Packet) -> bool {
    let snapshot = &*worker.snapshot;
    // A copy, since the packet is borrowed as a whole while its length may change.
    let mut meta = *packet.meta();
    let slots = worker.edits.get(meta.edits()).unwrap_or(&[]);
    let link = meta.l3_off;
    let limits = EditLimits { frame_max: |port| snapshot.frame_max(port, link) };
    match snapshot.policy.edit(slots, packet, &mut meta, limits) {
        Ok(()) => {
            *packet.meta_mut() = meta;
            true
        }
        Err(reason) => unedited(packet, reason, snapshot, worker.counters()),
    }
}

/// Counts a packet whose edits cannot be made, or says why it is dropped.
#[cold]
fn unedited(packet: &mut Packet, reason: DropReason, snapshot: &Snapshot, counters: &WorkerCounters) -> bool {
    match snapshot.on_error {
        ErrorPolicy::Forward => {
            counters.unedited.add(reason as u8, 1);
            true
        }
        ErrorPolicy::Drop => {
            packet.meta_mut().drop_reason = reason as u8;
            false
        }
    }
}
