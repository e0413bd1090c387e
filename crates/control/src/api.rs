//! The control API's documents: what requests and replies look like as JSON. Part of the interface: fields are added,
//! never renamed.

mod chains;
mod fast;
mod routing;
mod sessions;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

pub use chains::*;
pub use fast::*;
pub use routing::*;
pub use sessions::*;

/// Which parts of a command's reply the client wants; a long rule list need not be rendered twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// `text` for people.
    Text,
    /// `json` for programs.
    Json,
    /// Both.
    #[default]
    Both,
}

/// One line of the language to run.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CommandRequest {
    /// The line, with or without the leading `mmb`.
    #[schema(example = "add tcp-dport 80 mod tcp-dport 8080")]
    pub line: String,
    /// Which parts of the reply to fill.
    #[serde(default)]
    pub format: Format,
}

/// What a command answered.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct CommandReply {
    /// For people: aligned columns, or a sentence. Ends with a line feed unless empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// For programs: the same document as the matching `GET` endpoint gives, or a [`Done`].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub json: Option<Box<RawValue>>,
}

/// A change that was carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Done {
    /// What happened, in words.
    pub done: String,
    /// The rule concerned, when it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
}

/// A request that was refused; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorReply {
    /// One sentence; of several errors in a file, the first one's.
    pub error: String,
    /// Where in the text the errors are, when they are in a text; at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diagnostics: Vec<DiagnosticEntry>,
}

/// One error in a line or a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiagnosticEntry {
    /// Line number from 1; 0 when the text is one line.
    pub line: u32,
    /// Column of the offending word's first character, in characters from 1.
    pub column: u64,
    /// Where the offending word begins, in bytes from the start of the line.
    pub start: u64,
    /// Where it ends.
    pub end: u64,
    /// What is wrong: one sentence.
    pub message: String,
    /// The way out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

/// A rule to add.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RuleRequest {
    /// The rule as a line of the language, `add …`.
    #[schema(example = "add ip-proto udp drop")]
    pub rule: String,
}

/// `list`: the rules in the order of their indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RuleList {
    /// The rules.
    pub rules: Vec<RuleEntry>,
}

/// A rule and what it matched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RuleEntry {
    /// The rule's index; it stays when other rules are deleted.
    pub index: u32,
    /// Canonical text.
    pub text: String,
    /// Packets that matched.
    pub packets: u64,
    /// Bytes of their frames.
    pub bytes: u64,
}

/// `show tables`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TableList {
    /// The parts of the classifier.
    pub tables: Vec<TableEntry>,
    /// Whether so many rules came or went one by one that the classifier is about to be built anew.
    #[serde(default)]
    pub stale: bool,
}

/// One part of the classifier's tree: each part before those below it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TableEntry {
    /// The bits that a hash table compares: chunks of 16 bytes of the header window, as `NUMBER:HEX`; chunks that are zero
    /// are left out.
    pub mask: String,
    /// Distinct keys of a hash table.
    pub keys: u64,
    /// Rules in it and below it; one that is looked for in several ways counts several times.
    pub rules: u64,
    /// Memory, in bytes, without the parts below.
    pub bytes: u64,
    /// How many parts are above it.
    #[serde(default)]
    pub depth: u64,
    /// How its rules are looked for: `hash` (by the fields of the mask), `leaf` (one by one), `bits` (bit vectors over the
    /// values of fields), `always` (every packet that comes there matches), `predicate` (by what is true of the packet's
    /// bytes).
    #[serde(default)]
    pub structure: String,
    /// The mask in the words of the language; fields of TCP stand for those of UDP and ICMP at the same place.
    #[serde(default)]
    pub fields: String,
    /// Room for keys.
    #[serde(default)]
    pub lanes: u64,
    /// Keys that lead to further parts.
    #[serde(default)]
    pub nodes: u64,
    /// Most rules that are compared with one packet one by one.
    #[serde(default)]
    pub longest: u64,
}

/// `show interfaces`, in the order they were added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InterfaceList {
    /// The interfaces.
    pub interfaces: Vec<InterfaceEntry>,
}

/// An interface. Numbers are 0 while it is down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InterfaceEntry {
    /// Its name.
    pub name: String,
    /// Kind and device as in `interface add`.
    pub kind: String,
    /// Whether the device is open.
    pub state: InterfaceState,
    /// Why it is down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether there is a carrier.
    pub link: bool,
    /// The other end of its wire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire: Option<String>,
    /// How it is routed, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routed: Option<RoutedEntry>,
    /// Whether rules apply to what comes in here.
    pub enabled: bool,
    /// Driver; empty while the interface is down.
    pub driver: String,
    /// What the driver opened.
    pub device: String,
    /// Ethernet address.
    pub mac: String,
    /// Largest IP packet, in bytes.
    pub mtu: u16,
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets that the device lost for want of buffers.
    pub rx_missed: u64,
    /// Packets received in error.
    pub rx_errors: u64,
    /// Packets that could not be sent.
    pub tx_errors: u64,
    /// Packets that came in here and were dropped, by reason, for every reason that has happened.
    #[serde(default)]
    pub drops: IndexMap<String, u64>,
    /// What was set up or found on the device and is worth knowing.
    pub notes: Vec<String>,
    /// What else the device could do for mmb; its driver is asked for `show interfaces verbose` only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<CapabilityEntry>,
}

/// Something that a device may do for mmb.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CapabilityEntry {
    /// What.
    pub name: String,
    /// Whether it does.
    pub yes: bool,
    /// What its driver was asked, and what it said.
    pub answer: String,
}

/// Whether an interface's device is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum InterfaceState {
    /// It is.
    Up,
    /// It could not be opened; `interface add` with the same name tries again.
    #[default]
    Down,
}

/// `show drops`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DropList {
    /// Packets by reason, for every reason there is.
    pub drops: IndexMap<String, u64>,
    /// Packets that went on as they came because their edits could not be made, for every reason there is.
    #[serde(default)]
    pub unedited: IndexMap<String, u64>,
}

/// `show runtime`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Runtime {
    /// The workers.
    pub workers: Vec<WorkerEntry>,
    /// Sessions of all workers.
    #[serde(default)]
    pub sessions: SessionCounts,
    /// Routing, while there is a routed interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing: Option<RoutingCounts>,
}

/// A worker since its start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WorkerEntry {
    /// Its number from 0.
    pub worker: u64,
    /// The core it is bound to.
    pub cpu: Option<u64>,
    /// How often it went to sleep for want of packets.
    pub sleeps: u64,
    /// Transport checksums it completed that a kernel peer had left to hardware.
    pub checksum_repairs: u64,
    /// Sessions that live with it.
    #[serde(default)]
    pub sessions: u64,
    /// Its graph's nodes by name.
    pub nodes: IndexMap<String, NodeEntry>,
}

/// A node of a worker's graph.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeEntry {
    /// Packets it has seen.
    pub packets: u64,
    /// Vectors of packets it has seen.
    pub vectors: u64,
    /// Clock ticks (TSC) it took.
    pub cycles: u64,
    /// The same for one packet; 0 without packets.
    pub cycles_per_packet: f64,
    /// Packets in one vector; 0 without vectors.
    pub packets_per_vector: f64,
}

/// `show fields`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldList {
    /// The fields of the language.
    pub fields: Vec<FieldEntry>,
}

/// A field of the language.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldEntry {
    /// Its name.
    pub name: String,
    /// The protocol it belongs to.
    pub protocol: String,
    /// Width in bits; 0 where it varies.
    pub bits: u32,
    /// Whether rules can match it.
    #[serde(rename = "match")]
    pub match_: bool,
    /// Whether `mod` can write it.
    #[serde(rename = "mod")]
    pub modify: bool,
    /// How rules can match it: conditions, or `no: ` and why not.
    #[serde(default)]
    pub matched: String,
    /// The targets that write it, or `no: ` and why not.
    #[serde(default)]
    pub written: String,
    /// What it is.
    pub help: String,
    /// A match, as one would write it.
    pub example: String,
}

/// The daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VersionEntry {
    /// Release.
    pub version: String,
    /// Workers, pages and memory in use.
    pub engine: String,
    /// Process.
    pub pid: u32,
    /// Seconds since its start.
    pub uptime_seconds: u64,
    /// Rules loaded.
    pub rules: u64,
}

/// A configuration as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfigEntry {
    /// The lines of a file that gives this configuration.
    pub config: String,
}

/// What applying a text did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApplyReply {
    /// What happened, in words.
    pub done: String,
    /// Rules now.
    pub rules: u64,
    /// Rules that are new.
    pub added: u64,
    /// Rules that went.
    pub removed: u64,
    /// Rules that stayed, with their counters.
    pub kept: u64,
    /// Interfaces now.
    pub interfaces: u64,
}

/// What applying a text would change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiffReply {
    /// Lines that would go.
    pub removed: Vec<String>,
    /// Lines that would come.
    pub added: Vec<String>,
    /// Whether rules that stay would change their order, and so the order of their edits.
    pub reordered: bool,
}

/// A text that would be accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckReply {
    /// Rules in it.
    pub rules: u64,
    /// Interfaces in it.
    pub interfaces: u64,
}
