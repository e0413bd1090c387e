//! `punt`: gives packets to the kernel, by the port that leads there. A frame for the port that it came in by is readdressed if the
//! interface at the other end has another address. Frames that have not come by `ip4-input` or `ip6-input` may still lack a checksum
//! that a kernel peer has left to hardware; the kernel at this end would not take them.

use mmb_dpdk::{Packet, Vector};
use mmb_packet::{DropReason, Kind};

use crate::engine::config::PortId;
use crate::engine::snapshot::path;
use crate::engine::vector::VECTOR;
use crate::engine::worker::Worker;
use crate::features::ip::input::finish_checksum;
use crate::features::route::hop::parsed;

const TX: u16 = 0;
const DROP: u16 = 1;

pub(crate) fn next(sink: &'static str) -> Vec<&'static str> {
    vec![sink, "drop"]
}

pub(crate) fn process(worker: &mut Worker, mut vector: Vector<'_>) {
    let n = vector.len();
    let mut edges = [TX; VECTOR];
    let mut punted = 0;
    for (edge, packet) in edges.iter_mut().zip(vector.packets()) {
        let punt = worker.snapshot.punt(packet.port());
        if punt.port == PortId::NONE.0 {
            packet.meta_mut().drop_reason = DropReason::PuntNone as u8;
            *edge = DROP;
            continue;
        }
        punted += 1;
        if packet.meta().kind == Kind::default() && worker.snapshot.path(packet.port()) & path::KERNEL != 0 {
            finish(packet);
        }
        packet.meta_mut().out_port = punt.port;
        if let Some(mac) = punt.mac {
            readdress(packet, mac);
        }
    }
    worker.counters().routing.punted.add(punted);
    vector.send(&edges[..n]);
}

/// Completes the checksum of an IP packet that nobody has looked at.
#[cold]
fn finish(packet: &mut Packet) {
    if let Some(meta) = parsed(packet) {
        *packet.meta_mut() = meta;
        finish_checksum(packet);
    }
}

fn readdress(packet: &mut Packet, mac: [u8; 6]) {
    if let Some(to) = packet.data_mut().first_chunk_mut::<6>()
        && to[0] & 1 == 0
    {
        *to = mac;
    }
}
