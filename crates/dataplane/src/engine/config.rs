//! Configuration of the engine: its size at start, and the forwarding configuration that is published.

use std::sync::Arc;

use mmb_flow::{NatConfig, SessionSettings};
use mmb_lang::{ErrorPolicy, FastPathMode, ProcessMode, ReversePathMode};
use mmb_nf::Program;
use mmb_policy::Policy;
use mmb_system::FileAccess;
use serde::Serialize;

use crate::features::punt::limit::PuntLimits;

/// Most workers an engine runs.
pub const MAX_WORKERS: usize = 16;
/// Most ports an engine holds at a time.
pub const MAX_PORTS: usize = 32;

/// Default of [`EngineConfig::sessions`].
pub const DEFAULT_SESSIONS: usize = 524_288;

/// Default of [`EngineConfig::scratchpad`].
pub const DEFAULT_SCRATCHPAD: usize = 256;

/// Limit of [`EngineConfig::scratchpad`].
pub const MAX_SCRATCHPAD: usize = 4096;

/// Limit of [`EngineConfig::sessions`]; a session's number and direction have 32 bits.
pub const MAX_SESSIONS: usize = 1 << 30;

/// A port's index in the engine's port table; what `in` and `out` compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct PortId(pub u16);

impl PortId {
    /// The output port of a packet that has none.
    pub const NONE: PortId = PortId(u16::MAX);
    /// The output port of packets whose port has gone.
    pub const GONE: PortId = PortId(MAX_PORTS as u16);

    /// The id as an index, for ids below [`MAX_PORTS`].
    pub fn index(self) -> Option<usize> {
        let index = usize::from(self.0);
        (index < MAX_PORTS).then_some(index)
    }
}

/// The engine's size, fixed at start.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Worker threads, 1 to [`MAX_WORKERS`]; each runs a graph of its own.
    pub workers: usize,
    /// Memory for packets, in MiB.
    pub memory_mb: u32,
    /// Whether AF_XDP ports register the memory of all packets with the kernel. Otherwise, of as many as
    /// ports and workers need ([`crate::Engine::plan_buffers`]).
    pub registers_all: bool,
    /// Most sessions of all workers together. A place that no session has used takes no memory.
    pub sessions: usize,
    /// Most bytes of a session for functions of chains, 0 to [`MAX_SCRATCHPAD`]. A session takes what the
    /// published program needs.
    pub scratchpad: usize,
    /// Whether scratchpads lie in files that other processes can map ([`crate::Engine::scratchpads`]). The
    /// kernel may back such files by small pages only, which makes chains slower.
    pub share_scratchpads: bool,
    /// The files that ports may name.
    pub files: Arc<FileAccess>,
    /// Seed of all secrets, for tests: the same flows then get the same workers, ports and back ends. None:
    /// the seed is random.
    pub seed: Option<u64>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        EngineConfig {
            workers: 1,
            memory_mb: 256,
            registers_all: false,
            sessions: DEFAULT_SESSIONS,
            scratchpad: DEFAULT_SCRATCHPAD,
            share_scratchpads: false,
            files: Arc::default(),
            seed: None,
        }
    }
}

/// The forwarding configuration, published as one immutable value; see [`crate::Engine::publish`].
#[derive(Clone, Default)]
pub struct Forwarding {
    /// The rules.
    pub policy: Policy,
    /// What happens to packets whose edits fail.
    pub on_error: ErrorPolicy,
    /// Pools and forwards of NAT.
    pub nat: Arc<NatConfig>,
    /// Timeouts of sessions, and settings of their tracker.
    pub settings: SessionSettings,
    /// The chains that the rules name, and their functions.
    pub chains: Arc<Program>,
    /// Checks of the addresses of packets.
    pub address_checks: AddressChecks,
    /// Packets per second that the kernel gets.
    pub punt_limits: PuntLimits,
    /// Which ports' flows may stay in the kernel ([`crate::fast_path_obstacle`]).
    pub fast_path: FastPathMode,
    /// What workers do while there are no packets.
    pub worker_mode: ProcessMode,
    /// Whether TCP segments leave as they are by ports that take large frames, too.
    pub keeps_segments: bool,
    /// The ports that take part; others neither receive nor send.
    pub ports: Vec<PortConfig>,
}

impl Forwarding {
    /// Whether packets need sessions, or their slow path: for rules that are stateful, reject or log, for
    /// NAT, or for connections that functions have edited or that end at a broker.
    pub fn needs_sessions(&self) -> bool {
        self.policy.is_stateful()
            || self.policy.has_reject()
            || self.policy.has_log()
            || !self.nat.is_empty()
            || self.chains.may_have_offsets()
            || self.ports.iter().any(|port| port.routed.is_some_and(|routed| routed.is_broker))
    }
}

/// Checks of the addresses of packets as they come in, before rules, sessions and translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressChecks {
    /// Drop packets with addresses that no packet has, where rules apply.
    pub martians: bool,
    /// Check sources against routes, on routed ports that set nothing else (RFC 3704).
    pub reverse_path: ReversePathMode,
}

impl Default for AddressChecks {
    fn default() -> Self {
        AddressChecks { martians: true, reverse_path: ReversePathMode::Off }
    }
}

/// One port's part in the forwarding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// The port.
    pub id: PortId,
    /// The other end of the port's wire. Of the twin of a routed port: the routed port.
    pub peer: Option<PortId>,
    /// Whether rules apply to packets that come in by the port.
    pub enabled: bool,
    /// Set if packets that come in by the port are routed and not sent along a wire.
    pub routed: Option<Routed>,
    /// How routes confirm the sources of packets that come in by the port, if it is routed. None: as
    /// [`AddressChecks::reverse_path`].
    pub reverse_path: Option<ReversePathMode>,
}

/// Settings of a routed port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Routed {
    /// The port that leads to the kernel, for ARP, packets for the machine itself and others. None: they are
    /// dropped.
    pub punt: Option<PortId>,
    /// The port leads to a broker on the TCP of the kernel.
    pub is_broker: bool,
}

impl PortConfig {
    /// One end of a wire whose rules apply.
    pub fn wire(id: PortId, peer: PortId) -> PortConfig {
        PortConfig { id, peer: Some(peer), enabled: true, routed: None, reverse_path: None }
    }

    /// A routed port whose rules apply.
    pub fn routed(id: PortId, punt: Option<PortId>) -> PortConfig {
        let routed = Some(Routed { punt, is_broker: false });
        PortConfig { id, peer: None, enabled: true, routed, reverse_path: None }
    }

    /// A port that leads to a broker. Packets from there have the sources that their receivers know.
    pub fn broker(id: PortId) -> PortConfig {
        let routed = Some(Routed { punt: None, is_broker: true });
        PortConfig { id, peer: None, enabled: true, routed, reverse_path: Some(ReversePathMode::Off) }
    }
}
