//! `wire-output`: sends a packet to the other end of its input port's wire, or to be routed.

use mmb_dpdk::Vector;
use mmb_packet::{DropReason, OUT_ROUTED};

use crate::engine::config::PortId;
use crate::engine::vector::VECTOR;
use crate::engine::worker::Worker;
use crate::features::route::hop::Ways;

const TX: u16 = 0;
const DROP: u16 = 1;
const WAYS: Ways = Ways { first: 2 };

pub(crate) fn process(worker: &mut Worker, mut vector: Vector<'_>) {
    let snapshot = &*worker.snapshot;
    let mut wired = true;
    for packet in vector.packets().iter_mut() {
        let peer = snapshot.peer(packet.port());
        packet.meta_mut().out_port = peer;
        wired &= peer < OUT_ROUTED;
    }
    if wired {
        return vector.send_all(TX);
    }
    let n = vector.len();
    let mut edges = [TX; VECTOR];
    for (edge, packet) in edges.iter_mut().zip(vector.packets().iter_mut()) {
        *edge = match PortId(packet.meta().out_port) {
            PortId(OUT_ROUTED) => WAYS.of(packet),
            PortId::NONE => {
                packet.meta_mut().drop_reason = DropReason::Unwired as u8;
                DROP
            }
            _ => TX,
        };
    }
    vector.send(&edges[..n]);
}
