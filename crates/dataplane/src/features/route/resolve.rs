//! Requests for Ethernet addresses of neighbours.

use std::net::IpAddr;

use mmb_dpdk::Packet;
use mmb_packet::Kind;
use mmb_route::NextHop;

use super::next_hop::{addresses4, addresses6};
use super::requests::{NeighborRequest, NeighborRequests, RequestLog};
use crate::engine::counters::RoutingTally;
use crate::engine::worker::Worker;

/// The neighbour that a packet goes to.
pub(super) fn neighbor_of(hop: &NextHop, packet: &Packet) -> Option<NeighborRequest> {
    let destination = || match packet.meta().kind.l3() {
        Kind::IP4 => Some(IpAddr::V4(addresses4(packet)?.1.into())),
        _ => Some(IpAddr::V6(addresses6(packet)?.1.into())),
    };
    Some(NeighborRequest { interface: hop.interface, address: hop.gateway.or_else(destination)? })
}

/// Asks the kernel to resolve neighbours.
pub(super) struct Resolver<'a> {
    requested: &'a mut RequestLog,
    requests: &'a NeighborRequests,
    counters: &'a RoutingTally,
    now: u32,
}

impl<'a> Resolver<'a> {
    /// The resolver of a worker.
    pub fn of(worker: &'a mut Worker) -> Resolver<'a> {
        let Worker { id, shared, slow_path, clock, .. } = worker;
        Resolver {
            requested: &mut slow_path.requested,
            requests: &shared.requests,
            counters: &shared.workers[*id].counters.routing,
            now: clock.now,
        }
    }

    /// Asks the kernel to resolve the neighbour of a packet, unless that was done within the last second.
    pub fn request(&mut self, hop: &NextHop, packet: &Packet) {
        let Some(request) = neighbor_of(hop, packet) else { return };
        if self.requested.is_due(request, self.now) {
            self.counters.requests.add(1);
            self.counters.requests_lost.add(u64::from(!self.requests.push(request)));
        }
    }
}
