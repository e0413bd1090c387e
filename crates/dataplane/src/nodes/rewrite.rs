//! `rewrite`: applies the edits of every matching rule, in rule order. A packet whose edits cannot be made goes on as it
//! came and is counted, or is dropped, as the configuration says. What is routed is then looked up.

use mmb_dpdk::{Packet, Vector};
use mmb_lang::OnError;
use mmb_packet::{DropReason, OUT_ROUTED};
use mmb_policy::Limits;

use crate::nodes::VECTOR;
use crate::nodes::route::Ways;
use crate::snapshot::Snapshot;
use crate::worker::{Worker, WorkerCounters};

const TX: u16 = 0;
const DROP: u16 = 1;
const WAYS: Ways = Ways { first: 2 };

pub(crate) fn process(worker: &mut Worker, mut vector: Vector<'_>) {
    let snapshot = &*worker.snapshot;
    let mut edges = [TX; VECTOR];
    let n = vector.len();
    let mut all = true;
    for (packet, edge) in vector.packets().iter_mut().zip(&mut edges) {
        // A copy, since the packet is borrowed as a whole while its length may change.
        let mut meta = *packet.meta();
        let first = meta.edits_at as usize;
        let slots = worker.edits.get(first..first + usize::from(meta.edits_len)).unwrap_or(&[]);
        let link = meta.l3_off;
        let limits = Limits { frame_max: |port| snapshot.frame_max(port, link) };
        match snapshot.policy.edit(slots, &mut **packet, &mut meta, limits) {
            Ok(()) => *packet.meta_mut() = meta,
            Err(reason) => *edge = unedited(packet, reason, snapshot, worker.counters()),
        }
        if *edge == TX && packet.meta().out_port == OUT_ROUTED {
            *edge = WAYS.of(packet);
        }
        all &= *edge == TX;
    }
    if all { vector.send_all(TX) } else { vector.send(&edges[..n]) }
}

/// Counts a packet whose edits cannot be made, or says why it is dropped; its edge.
#[cold]
fn unedited(packet: &mut Packet, reason: DropReason, snapshot: &Snapshot, counters: &WorkerCounters) -> u16 {
    match snapshot.on_error {
        OnError::Forward => {
            counters.unedited.add(reason as u8, 1);
            TX
        }
        OnError::Drop => {
            packet.meta_mut().drop_reason = reason as u8;
            DROP
        }
    }
}
