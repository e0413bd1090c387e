//! What the engine has to do with routes: taking them from the control side, and telling it what workers want and count.

use std::sync::Arc;

use mmb_dpdk::Steering;
use mmb_packet::DropReason;
use mmb_route::Routes;
use serde::Serialize;

use crate::engine::config::PortId;
use crate::engine::control::Engine;
use crate::engine::shared::Shared;
use crate::features::port::open::PortError;
use crate::features::route::requests::Wants;

/// What routing has done since the engine started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RoutingCounters {
    /// Packets given to the kernel.
    pub punted: u64,
    /// ICMP errors sent.
    pub icmp_errors: u64,
    /// ICMP errors not sent, since there would have been too many.
    pub icmp_suppressed: u64,
    /// Datagrams sent in fragments.
    pub fragmented: u64,
    /// Those fragments.
    pub fragments: u64,
    /// Packets that had to wait for the Ethernet address of their next hop.
    pub queued: u64,
    /// Those that wait now.
    pub waiting: u64,
    /// Questions to the kernel for Ethernet addresses.
    pub wants: u64,
    /// Questions that were lost since nobody took them in time.
    pub wants_lost: u64,
}

impl RoutingCounters {
    pub(crate) fn of(shared: &Shared) -> RoutingCounters {
        let mut sum = RoutingCounters::default();
        for worker in &shared.workers {
            let counters = &worker.counters.routing;
            sum.punted += counters.punted.get();
            sum.icmp_errors += counters.icmp_errors.get();
            sum.icmp_suppressed += counters.icmp_suppressed.get();
            sum.fragmented += counters.fragmented.get();
            sum.fragments += counters.fragments.get();
            sum.queued += counters.queued.get();
            sum.waiting += counters.waiting.get();
            sum.wants += counters.wants.get();
            sum.wants_lost += counters.wants_lost.get();
        }
        sum
    }
}

impl Engine {
    /// A port's Ethernet address when it was opened; none if it is not open.
    pub fn port_mac(&self, id: PortId) -> Option<[u8; 6]> {
        self.open(id).map(|port| port.mac())
    }

    /// Makes the workers route by `routes`: they take them over between two walks. Returns at once. What only the old ones
    /// used is freed when the next ones are published.
    pub fn publish_routes(&self, routes: Routes) {
        self.shared().publish_routes(routes);
    }

    /// The routes that were published last.
    pub fn routes(&self) -> Arc<Routes> {
        self.shared().routes()
    }

    /// What the workers want the kernel to find out.
    pub fn wants(&self) -> &Wants {
        &self.shared().wants
    }

    /// Says which frames that come to a port are the machine's own; None: no more than routes say. A device that can tells them
    /// apart itself, for others the workers do, before any rule is asked.
    ///
    /// # Errors
    /// One sentence, if the device does not take it.
    pub fn steer(&self, id: PortId, steering: Option<&Steering>) -> Result<(), PortError> {
        self.shared().set_locals(id, steering.map_or(&[], |steering| &steering.local));
        self.open(id).map_or(Ok(()), |port| port.steer(steering))
    }

    /// What routing has done.
    pub fn routing_counters(&self) -> RoutingCounters {
        RoutingCounters::of(self.shared())
    }

    /// Packets dropped that had come in by a port, by each reason there is, since it was opened.
    pub fn port_drops(&self, id: PortId) -> Vec<(DropReason, u64)> {
        let of = |reason| {
            let workers = self.shared().workers.iter();
            workers.map(|worker| worker.counters.drops.of_port(id.0, reason)).sum()
        };
        DropReason::known().map(|reason| (reason, of(reason))).collect()
    }
}
