//! Documents about network functions and service chains.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `show chains`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChainList {
    /// The chains, in the order they were added.
    pub chains: Vec<ChainEntry>,
    /// The memory that every session of a chain has for functions.
    pub scratchpad: ScratchpadEntry,
    /// What the functions cost: those that stand in a chain.
    pub functions: Vec<CostEntry>,
}

/// A service chain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChainEntry {
    /// Its name.
    pub name: String,
    /// The way through it, as in `chain add`.
    pub body: String,
    /// The traffic that it takes: matches of the language, all of which hold; empty: all.
    pub takes: String,
    /// Whether its functions translate sessions.
    pub translates: bool,
    /// Indexes of the rules that name it.
    pub rules: Vec<u32>,
    /// Bytes of scratchpad up to the end of its last function.
    pub bytes: u64,
    /// The ways through it, one for each choice of outputs.
    pub ways: Vec<WayEntry>,
}

/// One way through a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WayEntry {
    /// Its functions, in the order in which packets of the opener meet them.
    pub functions: Vec<String>,
    /// How many of the last of them stand behind a function `flow`: they have their bytes in sessions of its own.
    #[serde(default)]
    pub behind: u64,
    /// Bytes up to the end of the last one's of the others.
    pub bytes: u64,
    /// Of these, those that one of them or the engine uses; the others are holes.
    pub used: u64,
    /// Whether packets that get to its end are dropped.
    pub drops: bool,
}

/// How the memory that functions have of each session is laid out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScratchpadEntry {
    /// Bytes that the chains need.
    pub bytes: u64,
    /// Bytes that there are (`--scratchpad`).
    pub limit: u64,
    /// Bytes at the beginning that are the engine's.
    pub header: u64,
    /// Where functions keep their bytes, by offset. Functions that no session can meet both of may share some.
    pub places: Vec<PlaceEntry>,
}

/// The bytes of a function in the scratchpads of its sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlaceEntry {
    /// The instance.
    pub function: String,
    /// Its first byte.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
}

/// What an instance has done, in all chains together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CostEntry {
    /// The instance.
    pub name: String,
    /// Packets that it has seen.
    pub packets: u64,
    /// Packets that it has dropped.
    pub drops: u64,
    /// Of these, packets with which their session was refused or ended.
    pub refused: u64,
    /// Clock ticks (TSC) that it took.
    pub ticks: u64,
    /// The same for one packet; 0 without packets.
    pub ticks_per_packet: f64,
}

/// `show functions`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FunctionList {
    /// The instances, in the order they were added.
    pub functions: Vec<FunctionEntry>,
    /// The types there are.
    pub types: Vec<TypeEntry>,
}

/// An instance of a network function.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FunctionEntry {
    /// Its type.
    #[serde(rename = "type")]
    pub type_: String,
    /// The words behind its type.
    pub arguments: Vec<String>,
    /// The chains that it stands in.
    pub chains: Vec<String>,
    /// The traffic that it takes: matches of the language; empty: all.
    pub takes: String,
    /// What it keeps its bytes for: `session`, or all sessions of a `source`, a `destination` or a `pair` of addresses.
    pub key: String,
    /// Bytes that it keeps for each.
    pub bytes: u64,
    /// Its name, and what it has done.
    #[serde(flatten)]
    pub cost: CostEntry,
    /// What it says of itself.
    pub report: IndexMap<String, String>,
}

/// A type of network function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TypeEntry {
    /// Its name.
    pub name: String,
    /// The words that may stand behind it.
    pub usage: String,
    /// What it does.
    pub help: String,
    /// Bytes that it keeps for a session, or whatever it keeps bytes for.
    pub bytes: u64,
}
