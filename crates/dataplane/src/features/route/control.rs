//! Routes on the control side: publication, requests of workers, and counters.

use std::net::IpAddr;
use std::sync::Arc;

use mmb_dpdk::Steering;
use mmb_lang::PuntClass;
use mmb_packet::DropReason;
use mmb_route::Routes;
use serde::Serialize;

use super::requests::NeighborRequests;
use crate::engine::config::PortId;
use crate::engine::control::Engine;
use crate::engine::shared::Shared;
use crate::features::port::error::PortError;

/// Counters of routing since the engine started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RoutingCounters {
    /// Packets given to the kernel, in the order of [`PuntClass::ALL`].
    pub punted: [u64; PuntClass::ALL.len()],
    /// ICMP errors sent.
    pub icmp_errors: u64,
    /// ICMP errors not sent because of the rate limit.
    pub icmp_suppressed: u64,
    /// Packets that were fragmented.
    pub fragmented: u64,
    /// Fragments of those packets.
    pub fragments: u64,
    /// Packets that waited for the Ethernet address of their next hop.
    pub queued: u64,
    /// Packets that wait now.
    pub waiting: u64,
    /// Requests to the kernel for Ethernet addresses.
    pub neighbor_requests: u64,
    /// Requests that were lost because their queue was full.
    pub neighbor_requests_lost: u64,
}

impl RoutingCounters {
    pub(crate) fn sum(shared: &Shared) -> RoutingCounters {
        let mut sum = RoutingCounters::default();
        for worker in &shared.workers {
            let counters = &worker.counters.routing;
            for (sum, counter) in sum.punted.iter_mut().zip(&counters.punted) {
                *sum += counter.get();
            }
            sum.icmp_errors += counters.icmp_errors.get();
            sum.icmp_suppressed += counters.icmp_suppressed.get();
            sum.fragmented += counters.fragmented.get();
            sum.fragments += counters.fragments.get();
            sum.queued += counters.queued.get();
            sum.waiting += counters.waiting.get();
            sum.neighbor_requests += counters.requests.get();
            sum.neighbor_requests_lost += counters.requests_lost.get();
        }
        sum
    }
}

impl Engine {
    /// The Ethernet address of a port when it was opened; none if it is not open.
    pub fn port_mac(&self, id: PortId) -> Option<[u8; 6]> {
        self.open(id).map(|port| port.mac())
    }

    /// Publishes routes; each worker takes them over before its next walk. Returns at once. The routes that
    /// were replaced are freed by a later publication.
    pub fn publish_routes(&self, routes: Routes) {
        self.shared().publish_routes(routes);
    }

    /// The published routes.
    pub fn routes(&self) -> Arc<Routes> {
        self.shared().routes()
    }

    /// Neighbours that workers need resolved.
    pub fn neighbor_requests(&self) -> &NeighborRequests {
        &self.shared().requests
    }

    /// Sets which frames that come to a port are for the machine itself. None: those that routes say. The
    /// device selects them if it can; else the workers do, before any rule is applied. `shared`: the
    /// machine's addresses that rules or NAT use, too; the workers select packets to them when neither takes
    /// them.
    ///
    /// # Errors
    /// The device refuses the selection.
    pub fn steer(&self, id: PortId, steering: Option<&Steering>, shared: &[IpAddr]) -> Result<(), PortError> {
        self.shared().set_locals(id, steering.map_or(&[], |steering| &steering.local), shared);
        self.open(id).map_or(Ok(()), |port| port.steer(steering))
    }

    /// Counters of routing.
    pub fn routing_counters(&self) -> RoutingCounters {
        RoutingCounters::sum(self.shared())
    }

    /// Packets of an input port that were dropped since it was opened, by reason.
    pub fn port_drops(&self, id: PortId) -> Vec<(DropReason, u64)> {
        let of = |reason| self.shared().drop_counters().map(|drops| drops.for_port(id.0, reason)).sum();
        DropReason::known().map(|reason| (reason, of(reason))).collect()
    }
}
