//! Snapshots: the rules, ports and settings of a generation, as one immutable value.
//!
//! Theory of operation. The control side builds a snapshot completely, publishes one pointer, and waits until
//! every worker runs on the new generation. Then no worker can read the old snapshot, and its memory, ports
//! and rule slots are free (quiescent-state reclamation). A worker takes over a new generation between two
//! walks only. So all nodes of a walk see the same rules, ports and wires.

use std::net::IpAddr;
use std::sync::Arc;

use mmb_dpdk::Packet;
use mmb_fastpath::FastPathConfig;
use mmb_flow::{NatConfig, SessionSettings};
use mmb_lang::{ErrorPolicy, ProcessMode, ReversePathMode};
use mmb_nf::Program;
use mmb_packet::OUT_ROUTED;
use mmb_policy::{ElementChange, Policy};
use mmb_route::Routes;
use mmb_session::{Environment, LoggedPacket};

use crate::engine::config::{AddressChecks, Forwarding, MAX_PORTS, PortConfig, PortId};
use crate::engine::counters::RuleTable;
use crate::engine::log_queue::LogQueue;
use crate::features::fastpath;
use crate::features::flow_rules::mark::is_sessionless;
use crate::features::ip::locals::LocalAddresses;
use crate::features::port::device::OpenPort;
use crate::features::punt::limit::PuntLimits;
use crate::features::route::next_hop::mtu_of_route;

/// What happens to packets that come in by a port, as bits. 0: they go to the other end of the wire at once.
pub(crate) mod path {
    /// Rules apply.
    pub const RULES: u8 = 1 << 0;
    /// A kernel device that may hand over frames with stripped tags and unfinished checksums.
    pub const KERNEL: u8 = 1 << 1;
    /// The packets are routed.
    pub const ROUTED: u8 = 1 << 2;
    /// Routes have to confirm the sources of the packets, which are routed.
    pub const REVERSE_PATH: u8 = 1 << 3;
    /// With [`REVERSE_PATH`]: the route to the source leads out of the port.
    pub const STRICT: u8 = 1 << 4;
    /// The packets come from a broker. With [`ROUTED`].
    pub const BROKER: u8 = 1 << 5;
}

/// Which nodes apply rules to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PolicyPath {
    /// Stateless rules: `classify`.
    Classify,
    /// Rules or NAT that need sessions: `flow-lookup`.
    Sessions,
}

/// Where packets for the kernel go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Punt {
    /// The port ([`PortId::NONE`] if there is none).
    pub port: u16,
    /// The destination address that frames get; none for the twin of a port, which has the same address.
    pub mac: Option<[u8; 6]>,
}

const NO_PUNT: Punt = Punt { port: PortId::NONE.0, mac: None };

const _: () = assert!(MAX_PORTS <= u32::BITS as usize);

/// The bit of a port in a set of ports; 0 for [`PortId::NONE`].
#[inline]
pub(crate) fn port_bit(port: u16) -> u32 {
    1u32.checked_shl(port.into()).unwrap_or(0)
}

/// The bits of [`path`] for the reverse path filter of a port.
fn reverse_path_bits(port: &PortConfig, checks: AddressChecks) -> u8 {
    match port.reverse_path.unwrap_or(checks.reverse_path) {
        _ if port.routed.is_none() => 0,
        ReversePathMode::Off => 0,
        ReversePathMode::Loose => path::REVERSE_PATH,
        ReversePathMode::Strict => path::REVERSE_PATH | path::STRICT,
    }
}

/// The way of packets to the kernel, by whatever port.
pub(crate) struct KernelWay {
    /// Packets per second that the kernel gets.
    pub limits: PuntLimits,
    /// The ports that lead there, one bit for each port id.
    pub ports: u32,
}

/// A published forwarding configuration, resolved for the nodes.
pub(crate) struct Snapshot {
    pub generation: u64,
    /// The snapshot differs from the one before by this change of elements of sets, and by nothing else.
    pub elements: Option<Arc<ElementChange>>,
    /// The first generation whose flows in the fast path this one goes on with.
    pub fast_generation: u64,
    pub policy: Policy,
    /// What happens to packets whose edits fail.
    pub on_error: ErrorPolicy,
    /// Checks of the addresses of packets.
    pub address_checks: AddressChecks,
    /// NAT's pools and forwards.
    pub nat: Arc<NatConfig>,
    /// Timeouts and other settings of sessions.
    pub settings: SessionSettings,
    /// Service chains.
    pub chains: Arc<Program>,
    /// Which nodes apply the rules.
    pub policy_path: PolicyPath,
    /// The mark of packets that need no session, set by flow rules of ports
    /// ([`crate::features::flow_rules`]); 0: none.
    pub mark: u32,
    /// What workers do while there are no packets.
    pub worker_mode: ProcessMode,
    /// Ports that take part, by port id.
    pub ports: [Option<Arc<OpenPort>>; MAX_PORTS],
    /// Other end of each port's wire ([`PortId::NONE`] if it has none), or [`OUT_ROUTED`].
    pub peer: [u16; MAX_PORTS],
    /// Where packets for the kernel go, for each routed port.
    pub punt: [Punt; MAX_PORTS],
    /// The way of packets to the kernel.
    pub kernel: KernelWay,
    /// Rules test the output port, and packets are routed: routes are looked up before rules.
    pub needs_out_port: bool,
    /// Bits of [`path`] for each input port.
    pub path: [u8; MAX_PORTS],
    /// Every port has a wire, and none is routed.
    pub all_wired: bool,
    /// Rules apply to packets of some port.
    pub has_policy: bool,
    /// All ports to which rules apply are routed.
    pub all_routed: bool,
    /// No port needs its packets parsed.
    pub bypass: bool,
    /// Each worker's rule counters.
    pub counters: Vec<RuleTable>,
    /// The fast path, where there are ports with one.
    pub fast: Option<Arc<FastPathConfig>>,
}

impl Snapshot {
    /// Resolves `forwarding`; `open` returns the device of a port (none in replay and bench).
    pub fn new(
        generation: u64,
        forwarding: Forwarding,
        open: impl Fn(PortId) -> Option<Arc<OpenPort>>,
        counters: Vec<RuleTable>,
    ) -> Snapshot {
        let is_learning = fastpath::config::is_learning(&forwarding);
        let (needs_sessions, fast_path) = (forwarding.needs_sessions(), forwarding.fast_path);
        let mut snapshot = Snapshot {
            generation,
            elements: None,
            fast_generation: generation,
            ports: std::array::from_fn(|_| None),
            peer: [PortId::NONE.0; MAX_PORTS],
            punt: [NO_PUNT; MAX_PORTS],
            kernel: KernelWay { limits: forwarding.punt_limits, ports: 0 },
            needs_out_port: forwarding.policy.needs_out_port()
                && forwarding.ports.iter().any(|p| p.routed.is_some()),
            path: [0; MAX_PORTS],
            all_wired: true,
            has_policy: false,
            all_routed: true,
            bypass: true,
            policy: forwarding.policy,
            on_error: forwarding.on_error,
            address_checks: forwarding.address_checks,
            nat: forwarding.nat,
            settings: forwarding.settings,
            chains: forwarding.chains,
            policy_path: if needs_sessions { PolicyPath::Sessions } else { PolicyPath::Classify },
            mark: 0,
            worker_mode: forwarding.worker_mode,
            counters,
            fast: None,
        };
        for config in &forwarding.ports {
            let Some(index) = config.id.index() else { continue };
            let port = open(config.id);
            let rules = config.enabled && (needs_sessions || !snapshot.policy.is_empty());
            let bit = |on: bool, bit: u8| if on { bit } else { 0 };
            snapshot.path[index] = bit(rules, path::RULES)
                | bit(port.as_ref().is_some_and(|p| p.checks_frames()), path::KERNEL)
                | bit(config.routed.is_some(), path::ROUTED)
                | bit(config.routed.is_some_and(|routed| routed.is_broker), path::BROKER)
                | reverse_path_bits(config, forwarding.address_checks);
            snapshot.peer[index] = match config.routed {
                Some(_) => OUT_ROUTED,
                None => config.peer.unwrap_or(PortId::NONE).0,
            };
            snapshot.all_wired &= snapshot.peer[index] < OUT_ROUTED;
            snapshot.has_policy |= rules;
            snapshot.all_routed &= config.routed.is_some() || !rules;
            if snapshot.path[index] & path::BROKER != 0 {
                snapshot.kernel.ports |= port_bit(config.id.0);
            }
            if let Some(punt) = config.routed.and_then(|routed| routed.punt) {
                let is_twin = forwarding.ports.iter().any(|p| p.id == punt && p.peer == Some(config.id));
                let mac = if is_twin { None } else { open(punt).map(|port| port.mac()) };
                snapshot.kernel.ports |= port_bit(punt.0);
                snapshot.punt[index] = Punt { port: punt.0, mac };
            }
            snapshot.ports[index] = port;
        }
        let fast = (is_learning, needs_sessions, snapshot.is_plain());
        snapshot.fast = fastpath::config::new(&snapshot.ports, &snapshot.policy, fast_path, fast);
        snapshot.bypass = snapshot.path.iter().all(|&p| p == 0);
        snapshot
    }

    /// The snapshot behind `before` that differs by a change of elements. Workers judge the sessions that it
    /// concerns anew, and revoke their flows in the fast path. Without sessions, all flows are learned again.
    pub fn with_elements(mut self, change: ElementChange, before: &Snapshot) -> Snapshot {
        if self.needs_sessions() && before.needs_sessions() {
            self.elements = Some(Arc::new(change));
            self.fast_generation = before.fast_generation;
        }
        self
    }

    /// Whether nothing but routes and wires decides about packets: neither rules nor a reverse path filter.
    pub fn is_plain(&self) -> bool {
        !self.has_policy && self.path.iter().all(|path| path & path::REVERSE_PATH == 0)
    }

    /// Whether rules or NAT need sessions.
    #[inline]
    pub fn needs_sessions(&self) -> bool {
        self.policy_path == PolicyPath::Sessions
    }

    /// Whether all packets take the same policy path, whatever marks ports set.
    #[inline]
    pub fn has_uniform_path(&self) -> bool {
        self.mark == 0
    }

    /// The policy path of one packet, whose headers are parsed.
    #[inline]
    pub fn policy_path_of(&self, packet: &Packet) -> PolicyPath {
        if self.mark != 0 && is_sessionless(packet, self.mark) {
            PolicyPath::Classify
        } else {
            self.policy_path
        }
    }

    /// Bits of [`path`] for packets that came in by `port`.
    #[inline]
    pub fn path(&self, port: u16) -> u8 {
        self.path.get(usize::from(port)).copied().unwrap_or(0)
    }

    /// Whether packets that come in by `port` are routed.
    #[inline]
    pub fn is_routed(&self, port: u16) -> bool {
        self.path(port) & path::ROUTED != 0
    }

    /// Whether `port` leads to a broker.
    #[inline]
    pub fn leads_to_broker(&self, port: u16) -> bool {
        self.path(port) & path::BROKER != 0
    }

    /// Where packets for the kernel go that came in by `port`.
    pub fn punt(&self, port: u16) -> Punt {
        self.punt.get(usize::from(port)).copied().unwrap_or(NO_PUNT)
    }

    /// Whether `port` leads to the kernel, and so is written by a thread of its own.
    #[inline]
    pub fn leads_to_kernel(&self, port: u16) -> bool {
        self.kernel.ports & port_bit(port) != 0
    }

    /// The other end of `port`'s wire, or [`PortId::NONE`], or [`OUT_ROUTED`].
    #[inline]
    pub fn peer(&self, port: u16) -> u16 {
        self.peer.get(usize::from(port)).copied().unwrap_or(PortId::NONE.0)
    }

    /// Bytes of the longest frame that `port` transmits, with its network header at offset `link`. No limit
    /// without a device.
    #[inline]
    pub fn frame_max(&self, port: u16, link: u16) -> usize {
        self.port(port).map_or(usize::MAX, |port| port.max_frame_behind(link))
    }

    /// The open port with this id.
    #[inline]
    pub fn port(&self, port: u16) -> Option<&OpenPort> {
        self.ports.get(usize::from(port)).and_then(|p| p.as_deref())
    }

    /// The ports that have another device in `new` or none, one bit for each port id.
    pub fn replaced_ports(&self, new: &Snapshot) -> u32 {
        let pairs = self.ports.iter().zip(&new.ports).enumerate();
        let is_replaced = |old: &Arc<OpenPort>, new: &Option<Arc<OpenPort>>| {
            new.as_ref().is_none_or(|new| !Arc::ptr_eq(old, new))
        };
        let replaced = pairs.filter(|(_, (old, new))| old.as_ref().is_some_and(|old| is_replaced(old, new)));
        replaced.fold(0, |bits, (index, _)| bits | port_bit(index as u16))
    }

    /// The snapshot with the rule counters of `worker`.
    #[inline]
    pub fn for_worker(&self, worker: usize) -> WorkerSnapshot<'_> {
        WorkerSnapshot {
            snapshot: self,
            counters: &self.counters[worker],
            routes: None,
            log: None,
            locals: None,
        }
    }
}

/// A snapshot with the rule counters of one worker.
pub(crate) struct WorkerSnapshot<'a> {
    pub snapshot: &'a Snapshot,
    counters: &'a RuleTable,
    /// Routes of packets in chains.
    routes: Option<&'a Routes>,
    /// Where packets that rules log go.
    log: Option<&'a LogQueue>,
    /// The machine's own addresses.
    locals: Option<&'a LocalAddresses>,
}

impl<'a> WorkerSnapshot<'a> {
    /// The snapshot with routes.
    pub fn with_routes(self, routes: &'a Routes) -> WorkerSnapshot<'a> {
        WorkerSnapshot { routes: Some(routes), ..self }
    }

    /// The snapshot with a queue for packets that rules log.
    pub fn with_log(self, log: &'a LogQueue) -> WorkerSnapshot<'a> {
        WorkerSnapshot { log: Some(log), ..self }
    }

    /// The snapshot with the machine's own addresses.
    pub fn with_locals(self, locals: &'a LocalAddresses) -> WorkerSnapshot<'a> {
        WorkerSnapshot { locals: Some(locals), ..self }
    }

    /// Whether rules or NAT need sessions.
    pub fn needs_sessions(&self) -> bool {
        self.snapshot.needs_sessions()
    }
}

impl Environment for WorkerSnapshot<'_> {
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

    fn is_shared(&self, in_port: u16, address: IpAddr) -> bool {
        self.locals.is_some_and(|locals| locals.is_shared(in_port, Some(address)))
    }

    fn leads_to_broker(&self, port: u16) -> bool {
        self.snapshot.leads_to_broker(port)
    }

    fn mac_of(&self, port: u16) -> Option<[u8; 6]> {
        self.snapshot.port(port).map(OpenPort::mac)
    }

    fn mtu(&self, packet: &mmb_nf::Packet<'_>, to: &[u8; 16]) -> usize {
        match self.routes {
            Some(routes) if packet.meta.out_port == OUT_ROUTED => mtu_of_route(routes, packet, to),
            _ => {
                let (port, link) = (packet.meta.out_port, packet.meta.l3_off);
                self.snapshot.frame_max(port, link).saturating_sub(link.into())
            }
        }
    }

    #[inline]
    fn count(&self, slot: u32, packets: u32, bytes: u64) {
        self.counters.count(slot, packets, bytes);
    }

    fn count_decided(&self, slot: u32, packets: u32) {
        self.counters.count_decided(slot, packets);
    }

    fn log(&self, packet: LoggedPacket) {
        if let Some(log) = self.log {
            log.put(packet);
        }
    }

    #[inline]
    fn prefetch_count(&self, slot: u32) {
        self.counters.prefetch(slot);
    }
}
