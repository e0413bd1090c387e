//! `punt`: gives packets to the kernel, by the port that leads there.
//!
//! Each class of packets has a limit ([`super::limit`]); packets above it are dropped. So a flood of the
//! machine's own address takes little from packets that are forwarded, and nothing from routing protocols.
//!
//! A unicast frame gets the address of the kernel's interface if that differs from the input port's address.
//! Frames that `ip4-input` or `ip6-input` have not parsed may lack a checksum that a kernel peer left to
//! hardware. The kernel would drop them, so the checksum is completed here.

use mmb_dpdk::{Packet, Vector};
use mmb_lang::PuntClass;
use mmb_packet::{DropReason, Kind};

use super::class::class_of;
use super::limit::PuntCount;
use crate::engine::config::PortId;
use crate::engine::node::edges::{SINK, edges, send};
use crate::engine::node::vector::VECTOR;
use crate::engine::snapshot::{Punt, path};
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
    let mut classes = [PuntClass::Other; VECTOR];
    let mut wanted = PuntCount::default();
    for (class, packet) in classes.iter_mut().zip(vector.packets()) {
        *class = class_of(packet.data());
        wanted[*class as usize] += 1;
    }
    let now = worker.clock.nanoseconds();
    let mut granted = worker.shared.punt.buckets.take(&worker.snapshot.kernel.limits, &wanted, now);
    let mut punted = PuntCount::default();
    let mut edges = [Edge::Transmit; VECTOR];
    for ((edge, class), packet) in edges.iter_mut().zip(classes).zip(vector.packets()) {
        let punt = worker.snapshot.punt(packet.port());
        let granted = &mut granted[class as usize];
        let reason = match punt.port {
            port if port == PortId::NONE.0 => Some(DropReason::PuntNone),
            _ if *granted == 0 => Some(limit_reason(class)),
            _ => None,
        };
        if let Some(reason) = reason {
            packet.meta_mut().drop_reason = reason as u8;
            *edge = Edge::Drop;
            continue;
        }
        *granted -= 1;
        punted[class as usize] += 1;
        if packet.meta().kind == Kind::default() && worker.snapshot.path(packet.port()) & path::KERNEL != 0 {
            parse_and_complete(packet);
        }
        address(packet, punt);
    }
    for (counter, n) in worker.counters().routing.punted.iter().zip(punted) {
        counter.add(n.into());
    }
    send(vector, &edges);
}

/// Why a packet above the limit of its class is dropped.
fn limit_reason(class: PuntClass) -> DropReason {
    match class {
        PuntClass::Neighbor => DropReason::PuntLimitNeighbor,
        PuntClass::Routing => DropReason::PuntLimitRouting,
        PuntClass::Local => DropReason::PuntLimitLocal,
        PuntClass::Other => DropReason::PuntLimitOther,
    }
}

/// Completes the checksum of an IP packet that has not been parsed.
#[cold]
fn parse_and_complete(packet: &mut Packet) {
    if let Some(meta) = parsed(packet) {
        *packet.meta_mut() = meta;
        complete_checksum(packet);
    }
}

/// Sets the output port, and the destination address of a unicast frame.
fn address(packet: &mut Packet, punt: Punt) {
    packet.meta_mut().out_port = punt.port;
    if let Some(mac) = punt.mac
        && let Some(to) = packet.data_mut().first_chunk_mut::<6>()
        && to[0] & 1 == 0
    {
        *to = mac;
    }
}
