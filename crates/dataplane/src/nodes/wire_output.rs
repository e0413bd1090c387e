//! `wire-output`: sends a packet to the other end of its input port's wire.

use mmb_dpdk::Vector;
use mmb_packet::DropReason;

use crate::config::PortId;
use crate::nodes::VECTOR;
use crate::worker::Worker;

const TX: u16 = 0;
const DROP: u16 = 1;

pub(crate) fn process(worker: &mut Worker, mut vector: Vector<'_>) {
    let snapshot = &*worker.snapshot;
    let mut unwired = 0;
    for packet in vector.packets().iter_mut() {
        let peer = snapshot.peer(packet.port());
        packet.meta_mut().out_port = peer;
        unwired += usize::from(peer == PortId::NONE.0);
    }
    if unwired == 0 {
        return vector.send_all(TX);
    }
    let n = vector.len();
    let mut edges = [TX; VECTOR];
    for (edge, packet) in edges.iter_mut().zip(vector.packets().iter_mut()) {
        if packet.meta().out_port == PortId::NONE.0 {
            packet.meta_mut().drop_reason = DropReason::Unwired as u8;
            *edge = DROP;
        }
    }
    vector.send(&edges[..n]);
}
