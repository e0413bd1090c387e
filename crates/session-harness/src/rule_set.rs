//! A configuration as a value.

use std::cell::RefCell;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use mmb_flow::{NatConfig, SessionSettings};
use mmb_nf::Program;
use mmb_packet::OUT_ROUTED;
use mmb_policy::Policy;
use mmb_session::{Environment, LoggedPacket};

/// The routed ports, and the function that finds the egress port of a destination. No port is routed by
/// default.
#[derive(Clone, Default)]
struct Routing {
    ports: Vec<u16>,
    route: Option<Arc<dyn Fn(IpAddr) -> Option<u16> + Send + Sync>>,
}

impl fmt::Debug for Routing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ports.fmt(f)
    }
}

/// Rules, NAT, chains and settings. Wires connect ports 0 and 1, 2 and 3, and so on, except routed ports.
#[derive(Debug, Default)]
pub struct RuleSet {
    /// The rules.
    pub policy: Policy,
    /// Pools and forwards.
    pub nat: Arc<NatConfig>,
    /// Settings of sessions.
    pub settings: SessionSettings,
    /// The service chains that rules name.
    pub chains: Arc<Program>,
    routing: Routing,
    /// Packets and bytes by slot.
    counts: RefCell<Vec<(u64, u64)>>,
    /// Packets about which rules decided, by slot.
    decided: RefCell<Vec<u64>>,
    /// Packets that rules have logged.
    logged: RefCell<Vec<LoggedPacket>>,
}

impl RuleSet {
    /// Ports from this one on lead to brokers: `broker port8` is the first one.
    pub const FIRST_BROKER: u16 = 8;
    /// Bytes of a session's scratchpad.
    pub const SCRATCHPAD_BYTES: usize = 256;

    /// Returns a rule set without chains, whose counters are zero.
    pub fn new(policy: Policy, nat: NatConfig, settings: SessionSettings) -> RuleSet {
        RuleSet { policy, nat: Arc::new(nat), settings, ..RuleSet::default() }
    }

    /// Makes `ports` routed. `route` returns the egress port of a destination. Frames keep their Ethernet
    /// addresses and their TTL.
    pub fn with_routing(
        self,
        ports: &[u16],
        route: impl Fn(IpAddr) -> Option<u16> + Send + Sync + 'static,
    ) -> RuleSet {
        RuleSet { routing: Routing { ports: ports.to_vec(), route: Some(Arc::new(route)) }, ..self }
    }

    /// Returns the egress port of a packet with this output port, which may be [`OUT_ROUTED`]. Returns 0xffff
    /// without a route.
    pub(crate) fn egress_port(&self, out_port: u16, destination: impl FnOnce() -> Option<IpAddr>) -> u16 {
        match &self.routing.route {
            Some(route) if out_port == OUT_ROUTED => {
                destination().and_then(|to| route(to)).unwrap_or(u16::MAX)
            }
            _ => out_port,
        }
    }

    /// Returns packets and bytes of the rule in a slot. [`crate::SessionHarness::flush_counters`] completes
    /// them.
    pub fn counts(&self, slot: u32) -> (u64, u64) {
        self.counts.borrow().get(slot as usize).copied().unwrap_or_default()
    }
}

impl RuleSet {
    /// Returns the packets about which the rule in a slot decided. [`crate::SessionHarness::flush_counters`]
    /// completes accepted ones.
    pub fn decided(&self, slot: u32) -> u64 {
        self.decided.borrow().get(slot as usize).copied().unwrap_or_default()
    }

    /// Returns the packets that rules have logged since the last call.
    pub fn take_logged(&self) -> Vec<LoggedPacket> {
        self.logged.take()
    }

    /// Returns the packets that rules dropped.
    pub fn decided_drops(&self) -> u64 {
        let slots = self.decided.borrow();
        let drops = (0..).zip(slots.iter()).filter(|(slot, _)| self.policy.rule_info(*slot).drops);
        drops.map(|(_, n)| n).sum()
    }
}

impl Environment for RuleSet {
    fn policy(&self) -> &Policy {
        &self.policy
    }

    fn nat(&self) -> &Arc<NatConfig> {
        &self.nat
    }

    fn chains(&self) -> &Arc<Program> {
        &self.chains
    }

    fn settings(&self) -> SessionSettings {
        self.settings
    }

    fn out_port(&self, in_port: u16) -> u16 {
        if self.routed(in_port) { OUT_ROUTED } else { in_port ^ 1 }
    }

    fn routed(&self, in_port: u16) -> bool {
        self.routing.ports.contains(&in_port) || self.leads_to_broker(in_port)
    }

    fn leads_to_broker(&self, port: u16) -> bool {
        port >= RuleSet::FIRST_BROKER
    }

    fn log(&self, packet: LoggedPacket) {
        self.logged.borrow_mut().push(packet);
    }

    fn count_decided(&self, slot: u32, packets: u32) {
        let mut decided = self.decided.borrow_mut();
        let at = slot as usize;
        if at >= decided.len() {
            decided.resize(at + 1, 0);
        }
        decided[at] += u64::from(packets);
    }

    fn count(&self, slot: u32, packets: u32, bytes: u64) {
        let mut counts = self.counts.borrow_mut();
        let at = slot as usize;
        if at >= counts.len() {
            counts.resize(at + 1, (0, 0));
        }
        counts[at].0 += u64::from(packets);
        counts[at].1 += bytes;
    }
}
