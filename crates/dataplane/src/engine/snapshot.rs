//! What the workers run on: one immutable value, replaced as a whole.
//!
//! Theory of operation. The control side builds a snapshot completely, publishes one pointer, and waits until every
//! worker has said that it runs on the new generation; then nobody can see the old one and its memory, ports and
//! rule slots may go (quiescent-state reclamation). A worker looks for a new generation between two graph walks
//! only, so within a walk all nodes see the same rules, ports and wires.

use std::sync::Arc;

use mmb_fastpath::FastPathConfig;
use mmb_flow::{NatConfig, SessionSettings};
use mmb_lang::ErrorPolicy;
use mmb_nf::Program;
use mmb_packet::OUT_ROUTED;
use mmb_policy::Policy;
use mmb_session::Environment;

use crate::engine::config::{Forwarding, MAX_PORTS, PortId};
use crate::engine::counters::RuleTable;
use crate::features::fastpath;
use crate::features::ip::input as ip_input;
use crate::features::port::device::OpenPort;

/// What happens to packets that enter by a port, as bits: 0 means straight to the other end of the wire.
pub(crate) mod path {
    /// Rules apply.
    pub const RULES: u8 = 1 << 0;
    /// A kernel device that may hand over frames with stripped tags and unfinished checksums.
    pub const KERNEL: u8 = 1 << 1;
    /// Service tags come disguised (see [`mmb_dpdk::FrameSizeGuard`]).
    pub const STAND_IN: u8 = 1 << 2;
    /// They are routed.
    pub const ROUTED: u8 = 1 << 3;
}

/// The way to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Punt {
    /// The port ([`PortId::NONE`] if there is none).
    pub port: u16,
    /// The Ethernet address that frames get; none for a twin, which has the port's own.
    pub mac: Option<[u8; 6]>,
}

const NO_PUNT: Punt = Punt { port: PortId::NONE.0, mac: None };

/// A published forwarding configuration, resolved for the nodes.
pub(crate) struct Snapshot {
    pub generation: u64,
    pub policy: Policy,
    /// What becomes of packets whose edits cannot be made.
    pub on_error: ErrorPolicy,
    /// NAT's pools and forwards.
    pub nat: Arc<NatConfig>,
    /// What operators set about sessions.
    pub settings: SessionSettings,
    /// The chains that rules give sessions to.
    pub chains: Arc<Program>,
    /// Rules or NAT need sessions.
    pub flows: bool,
    /// The edge of `ip4-input` and `ip6-input` that packets take which rules apply to.
    pub rules: u16,
    /// What ports mark packets with that need no flow manager ([`crate::features::flow_rules`]); 0: nothing.
    pub mark: u32,
    /// Ports that take part, by port id.
    pub ports: [Option<Arc<OpenPort>>; MAX_PORTS],
    /// Other end of each port's wire ([`PortId::NONE`] if it has none), or [`OUT_ROUTED`].
    pub peer: [u16; MAX_PORTS],
    /// For each routed port, the port by which the kernel gets what is its, and that one's Ethernet address.
    pub punt: [Punt; MAX_PORTS],
    /// Rules ask by which port packets go out that are routed: they are looked up before rules are.
    pub asks_out: bool,
    /// Bits of [`path`] for each input port.
    pub path: [u8; MAX_PORTS],
    /// No port is routed or without another end.
    pub wired: bool,
    /// Rules apply to what comes in by some port.
    pub ruled: bool,
    /// What rules apply to is all to be routed.
    pub routed: bool,
    /// No input port needs a look at its packets.
    pub straight: bool,
    /// Each worker's rule counters.
    pub counters: Vec<RuleTable>,
    /// The fast path, where there are ports with one.
    pub fast: Option<Arc<FastPathConfig>>,
}

impl Snapshot {
    /// Resolves `forwarding`; `open` finds a port's device (none in replay and in bench).
    pub fn new(
        generation: u64,
        forwarding: Forwarding,
        open: impl Fn(PortId) -> Option<Arc<OpenPort>>,
        counters: Vec<RuleTable>,
    ) -> Snapshot {
        let is_learning = fastpath::config::is_learning(&forwarding);
        let flows = forwarding.policy.is_stateful() || !forwarding.nat.is_empty();
        let mut snapshot = Snapshot {
            generation,
            ports: std::array::from_fn(|_| None),
            peer: [PortId::NONE.0; MAX_PORTS],
            punt: [NO_PUNT; MAX_PORTS],
            asks_out: forwarding.policy.needs_out_port()
                && forwarding.ports.iter().any(|p| p.routed.is_some()),
            path: [0; MAX_PORTS],
            wired: true,
            ruled: false,
            routed: true,
            straight: true,
            policy: forwarding.policy,
            on_error: forwarding.on_error,
            nat: forwarding.nat,
            settings: forwarding.settings,
            chains: forwarding.chains,
            flows,
            rules: if flows { ip_input::FLOW_LOOKUP } else { ip_input::CLASSIFY },
            mark: 0,
            counters,
            fast: None,
        };
        for config in &forwarding.ports {
            let Some(index) = config.id.index() else { continue };
            let port = open(config.id);
            let rules = config.enabled && (flows || !snapshot.policy.is_empty());
            let bit = |on: bool, bit: u8| if on { bit } else { 0 };
            snapshot.path[index] = bit(rules, path::RULES)
                | bit(port.as_ref().is_some_and(|p| p.checks_frames()), path::KERNEL)
                | bit(port.as_ref().is_some_and(|p| p.replaces_service_tags()), path::STAND_IN)
                | bit(config.routed.is_some(), path::ROUTED);
            snapshot.peer[index] = match config.routed {
                Some(_) => OUT_ROUTED,
                None => config.peer.unwrap_or(PortId::NONE).0,
            };
            snapshot.wired &= snapshot.peer[index] < OUT_ROUTED;
            snapshot.ruled |= rules;
            snapshot.routed &= config.routed.is_some() || !rules;
            if let Some(punt) = config.routed.and_then(|routed| routed.punt) {
                let is_twin = forwarding.ports.iter().any(|p| p.id == punt && p.peer == Some(config.id));
                let mac = if is_twin { None } else { open(punt).map(|port| port.mac()) };
                snapshot.punt[index] = Punt { port: punt.0, mac };
            }
            snapshot.ports[index] = port;
        }
        let fast = (is_learning, flows, !snapshot.ruled);
        snapshot.fast = fastpath::config::new(&snapshot.ports, &snapshot.policy, fast);
        snapshot.straight = snapshot.path.iter().all(|&p| p == 0);
        snapshot
    }

    /// Bits of [`path`] for packets that entered by `port`.
    #[inline]
    pub fn path(&self, port: u16) -> u8 {
        self.path.get(usize::from(port)).copied().unwrap_or(0)
    }

    /// Whether what comes in by `port` is routed.
    #[inline]
    pub fn is_routed(&self, port: u16) -> bool {
        self.path(port) & path::ROUTED != 0
    }

    /// The way to the kernel of what came in by `port`.
    pub fn punt(&self, port: u16) -> Punt {
        self.punt.get(usize::from(port)).copied().unwrap_or(NO_PUNT)
    }

    /// The other end of `port`'s wire, or [`PortId::NONE`], or [`OUT_ROUTED`].
    #[inline]
    pub fn peer(&self, port: u16) -> u16 {
        self.peer.get(usize::from(port)).copied().unwrap_or(PortId::NONE.0)
    }

    /// Bytes of the longest frame that goes out at `port` if its network header stands behind `link` bytes; any length
    /// where there is no device.
    #[inline]
    pub fn frame_max(&self, port: u16, link: u16) -> usize {
        self.port(port).map_or(usize::MAX, |port| port.max_frame_behind(link))
    }

    /// The open port with this id.
    #[inline]
    pub fn port(&self, port: u16) -> Option<&OpenPort> {
        self.ports.get(usize::from(port)).and_then(|p| p.as_deref())
    }

    /// The snapshot as the sessions of `worker` see it.
    #[inline]
    pub fn of(&self, worker: usize) -> OfWorker<'_> {
        OfWorker { snapshot: self, counters: &self.counters[worker] }
    }
}

/// A snapshot with the rule counters of one worker.
pub(crate) struct OfWorker<'a> {
    pub snapshot: &'a Snapshot,
    counters: &'a RuleTable,
}

impl Environment for OfWorker<'_> {
    #[inline]
    fn policy(&self) -> &Policy {
        &self.snapshot.policy
    }

    fn nat(&self) -> &Arc<NatConfig> {
        &self.snapshot.nat
    }

    fn settings(&self) -> SessionSettings {
        self.snapshot.settings
    }

    fn chains(&self) -> &Arc<Program> {
        &self.snapshot.chains
    }

    #[inline]
    fn out_port(&self, in_port: u16) -> u16 {
        self.snapshot.peer(in_port)
    }

    fn routed(&self, in_port: u16) -> bool {
        self.snapshot.is_routed(in_port)
    }

    #[inline]
    fn count(&self, slot: u32, packets: u32, bytes: u64) {
        self.counters.count(slot, packets, bytes);
    }

    #[inline]
    fn prefetch_count(&self, slot: u32) {
        self.counters.prefetch(slot);
    }
}
