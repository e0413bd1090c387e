//! Requests for Ethernet addresses of neighbours.

use std::net::IpAddr;

use mmb_dpdk::Packet;
use mmb_packet::Kind;
use mmb_route::NextHop;

use super::next_hop::{addresses4, addresses6};
use super::requests::NeighborRequest;
use crate::engine::worker::Worker;

/// The neighbour that a packet goes to.
pub(super) fn neighbor_of(hop: &NextHop, packet: &Packet) -> Option<NeighborRequest> {
    let destination = || match packet.meta().kind.l3() {
        Kind::IP4 => Some(IpAddr::V4(addresses4(packet)?.1.into())),
        _ => Some(IpAddr::V6(addresses6(packet)?.1.into())),
    };
    Some(NeighborRequest { interface: hop.interface, address: hop.gateway.or_else(destination)? })
}

/// Asks the kernel to resolve the neighbour of a packet, unless that was done within the last second.
pub(super) fn request_neighbor(worker: &mut Worker, hop: &NextHop, packet: &Packet) {
    let Some(request) = neighbor_of(hop, packet) else { return };
    if worker.slow_path.requested.is_due(request, worker.clock.now) {
        let counters = &worker.counters().routing;
        counters.requests.add(1);
        counters.requests_lost.add(u64::from(!worker.shared.requests.push(request)));
    }
}
