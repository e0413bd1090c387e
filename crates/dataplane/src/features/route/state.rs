//! What a worker knows of routes, and what it keeps for packets that are not simply forwarded.

use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

use mmb_dpdk::Mbuf;
use mmb_flow::ErrorBudget;
use mmb_route::Routes;

use super::requests::RequestLog;
use super::waiting::WaitingPackets;
use crate::engine::config::MAX_PORTS;
use crate::engine::shared::Shared;
use crate::features::ip::locals::LocalAddresses;

/// Milliseconds without a change after which routes count as stable. While routes change all the time, next
/// hops that sessions keep are of no use, and each packet would pay for them.
const STABLE_AFTER: u32 = 100;

/// Stands for a port without an Ethernet address; no frame has this destination.
const NO_MAC: u64 = u64::MAX;

/// The routes that a worker forwards by.
pub(crate) struct RoutingState {
    pub routes: Arc<Routes>,
    /// The machine's own addresses: packets to them go to the kernel before rules and sessions see them.
    pub locals: Arc<LocalAddresses>,
    /// The Ethernet address of each routed port: the first eight bytes of a frame to it as a little-endian
    /// number, with the upper two bytes zero.
    pub macs: [u64; MAX_PORTS],
    /// The number of the publication that the worker has taken over.
    generation: u64,
    /// The number of the last one before it that may concern flows.
    pub flow_generation: u64,
    /// When that was taken over, in milliseconds.
    changed_at: u32,
}

impl RoutingState {
    /// The published routes.
    pub fn load(shared: &Shared, now: u32) -> RoutingState {
        // In this order: routes that are newer than their numbers are only taken over once more.
        let generation = shared.routes_generation.load(Acquire);
        let flow_generation = shared.flow_generation.load(Acquire);
        let routes = shared.routes();
        let macs = port_macs(&routes);
        RoutingState { routes, locals: shared.locals(), macs, generation, flow_generation, changed_at: now }
    }

    /// Takes the published routes over. Returns whether flows may have other next hops now.
    pub fn adopt(&mut self, shared: &Shared, now: u32) -> bool {
        let mut new = RoutingState::load(shared, now);
        // Both, since the routes may be newer than the number.
        let keeps_flows =
            new.flow_generation == self.flow_generation && new.routes.keeps_flows_of(&self.routes);
        if keeps_flows {
            new.changed_at = self.changed_at;
        }
        *self = new;
        !keeps_flows
    }

    /// Whether newer routes have been published.
    #[inline]
    pub fn is_outdated(&self, shared: &Shared) -> bool {
        shared.routes_generation.load(Acquire) != self.generation
    }

    /// Whether next hops of flows have not changed for so long that sessions may keep them.
    pub fn is_stable(&self, now: u32) -> bool {
        now.wrapping_sub(self.changed_at) >= STABLE_AFTER
    }
}

fn port_macs(routes: &Routes) -> [u64; MAX_PORTS] {
    std::array::from_fn(|port| match routes.interface(port as u16) {
        Some(interface) => {
            let [a, b, c, d, e, f] = interface.mac;
            u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
        }
        None => NO_MAC,
    })
}

/// What `ip-slow` keeps: packets that wait for a neighbour, and limits of what it sends.
pub(crate) struct SlowPath {
    /// Packets that wait for the Ethernet address of their next hop.
    pub waiting: WaitingPackets,
    /// Neighbours that the kernel was asked for within the last second.
    pub requested: RequestLog,
    /// ICMP errors that may be sent.
    pub errors: ErrorBudget,
    /// Packets of this vector that are to be fragmented.
    pub oversized: Vec<Mbuf>,
    /// The frame of the fragment that is being built.
    pub fragment: Vec<u8>,
}

impl SlowPath {
    /// `vector`: most packets to be fragmented at a time. `frame`: bytes of the longest frame.
    pub fn new(vector: usize, frame: usize) -> SlowPath {
        SlowPath {
            waiting: WaitingPackets::default(),
            requested: RequestLog::default(),
            errors: ErrorBudget::new(0),
            oversized: Vec::with_capacity(vector),
            fragment: Vec::with_capacity(frame),
        }
    }
}
