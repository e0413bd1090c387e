//! Documents about network functions and service chains.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `show chains`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChainList {
    /// The chains, in the order they were added.
    pub chains: Vec<ChainEntry>,
    /// The layout of the scratchpad that every session of a chain has.
    pub scratchpad: ScratchpadEntry,
    /// Cost of the functions that are in a chain.
    pub functions: Vec<CostEntry>,
}

/// A service chain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChainEntry {
    /// Name of the chain.
    pub name: String,
    /// The functions, as in `chain add`.
    pub body: String,
    /// The traffic that the chain processes: matches that must all hold; empty: all traffic.
    pub traffic: String,
    /// Whether its functions translate addresses or ports.
    pub translates: bool,
    /// Indexes of the rules with this chain.
    pub rules: Vec<u32>,
    /// Bytes of scratchpad that the chain needs.
    pub bytes: u64,
    /// The paths through the chain, one for each choice of outputs.
    pub paths: Vec<PathEntry>,
}

/// One path through a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PathEntry {
    /// The functions, in the order in which packets of the opener pass them.
    pub functions: Vec<String>,
    /// Number of functions after a function `flow`. They have their bytes in its own sessions.
    #[serde(default)]
    pub after_flow: u64,
    /// Bytes of scratchpad that the functions before it need.
    pub bytes: u64,
    /// Bytes of these that the functions or the engine use; the others are holes.
    pub used: u64,
    /// Whether packets are dropped at the end of the path.
    pub drops: bool,
}

/// Layout of the scratchpad of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScratchpadEntry {
    /// Bytes that the chains need.
    pub bytes: u64,
    /// Bytes available (`--scratchpad`).
    pub limit: u64,
    /// Bytes at the beginning that the engine uses.
    pub header: u64,
    /// The regions of the functions, by offset. Functions that never share a session may share bytes.
    pub regions: Vec<RegionEntry>,
}

/// The bytes of a function in the scratchpad of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RegionEntry {
    /// Name of the instance.
    pub function: String,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// Counters of an instance over all chains.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CostEntry {
    /// Name of the instance.
    pub name: String,
    /// Packets processed.
    pub packets: u64,
    /// Packets dropped.
    pub drops: u64,
    /// Dropped packets with which the function refused or ended their session.
    pub refused: u64,
    /// Packets in whose place the function sent others with the edited bytes, or none.
    #[serde(default)]
    pub consumed: u64,
    /// Packets that the function held.
    #[serde(default)]
    pub held: u64,
    /// Held packets that went on. Others wait or were dropped.
    #[serde(default)]
    pub released: u64,
    /// Clock ticks (TSC) spent.
    pub ticks: u64,
    /// Clock ticks per packet; 0 without packets.
    pub ticks_per_packet: f64,
}

/// `show functions`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FunctionList {
    /// The domains of functions in processes.
    #[serde(default)]
    pub domains: Vec<DomainEntry>,
    /// The instances, in the order they were added.
    pub functions: Vec<FunctionEntry>,
    /// All types.
    pub types: Vec<TypeEntry>,
}

/// A domain: functions in processes that share memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DomainEntry {
    /// Name of the domain.
    pub name: String,
    /// `private` or `zero-copy`.
    pub kind: String,
    /// Buffers for packets.
    pub buffers: u64,
    /// What becomes of packets while the process of a function is not there: `drop` or `pass`.
    pub on_failure: String,
    /// The functions of the domain.
    pub functions: Vec<String>,
}

/// An instance of a network function.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FunctionEntry {
    /// Type of the function.
    #[serde(rename = "type")]
    pub type_: String,
    /// The arguments of `nf add`.
    pub arguments: Vec<String>,
    /// The chains with this instance.
    pub chains: Vec<String>,
    /// The traffic that the function accepts: matches of the language; empty: all traffic.
    pub traffic: String,
    /// Key of its state: `session`, or all sessions of a `source`, a `destination` or a `pair` of addresses.
    pub key: String,
    /// Bytes of state for each key.
    pub bytes: u64,
    /// Name and counters.
    #[serde(flatten)]
    pub cost: CostEntry,
    /// The domain in whose memory the function runs as a process of its own; empty: it runs in the workers.
    #[serde(default)]
    pub domain: String,
    /// What that process does while there are no packets: `poll`, `event` or `adaptive`; empty without one.
    #[serde(default)]
    pub mode: String,
    /// The processor on which that process runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<u16>,
    /// Values that the function reports.
    pub report: IndexMap<String, String>,
    /// Counters of a stream context, which puts streams in order for the stream functions behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamCounts>,
}

/// Counters of a stream context, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StreamCounts {
    /// Bytes of payload: `read` by functions, `removed` and `inserted` by edits, `pre-acknowledged`.
    pub bytes: IndexMap<String, u64>,
    /// Packets, segments, connections and edits.
    pub events: IndexMap<String, u64>,
    /// What could not be read or edited, by reason.
    pub refused: IndexMap<String, u64>,
}

/// A type of network function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TypeEntry {
    /// Name of the type.
    pub name: String,
    /// Syntax of the arguments.
    pub usage: String,
    /// What functions of this type do.
    pub help: String,
    /// Bytes of state for each key.
    pub bytes: u64,
}
