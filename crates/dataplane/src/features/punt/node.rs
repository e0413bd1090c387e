//! `punt`: gives packets to the kernel, by the port that leads there.
//!
//! A unicast frame gets the address of the kernel's interface if that differs from the input port's address.
//! Frames that `ip4-input` or `ip6-input` have not parsed may lack a checksum that a kernel peer left to
//! hardware. The kernel would drop them, so the checksum is completed here.

use mmb_dpdk::{Packet, Vector};
use mmb_packet::{DropReason, Kind};

use crate::engine::config::PortId;
use crate::engine::node::edges::{SINK, edges, send};
use crate::engine::node::vector::VECTOR;
use crate::engine::snapshot::path;
use crate::engine::worker::Worker;
use crate::features::ip::checksums::complete_checksum;
use crate::features::route::next_hop::parsed;

edges! {
    /// The edges of `punt`.
    pub(crate) enum Edge {
        Transmit => SINK,
        Drop => "drop",
    }
}

pub(crate) fn process(worker: &mut Worker, mut vector: Vector<'_>) {
    let mut edges = [Edge::Transmit; VECTOR];
    let mut punted = 0;
    for (edge, packet) in edges.iter_mut().zip(vector.packets()) {
        let punt = worker.snapshot.punt(packet.port());
        if punt.port == PortId::NONE.0 {
            packet.meta_mut().drop_reason = DropReason::PuntNone as u8;
            *edge = Edge::Drop;
            continue;
        }
        punted += 1;
        if packet.meta().kind == Kind::default() && worker.snapshot.path(packet.port()) & path::KERNEL != 0 {
            parse_and_complete(packet);
        }
        packet.meta_mut().out_port = punt.port;
        if let Some(mac) = punt.mac {
            set_destination(packet, mac);
        }
    }
    worker.counters().routing.punted.add(punted);
    send(vector, &edges);
}

/// Completes the checksum of an IP packet that has not been parsed.
#[cold]
fn parse_and_complete(packet: &mut Packet) {
    if let Some(meta) = parsed(packet) {
        *packet.meta_mut() = meta;
        complete_checksum(packet);
    }
}

/// Sets the destination address of a unicast frame.
fn set_destination(packet: &mut Packet, mac: [u8; 6]) {
    if let Some(to) = packet.data_mut().first_chunk_mut::<6>()
        && to[0] & 1 == 0
    {
        *to = mac;
    }
}
