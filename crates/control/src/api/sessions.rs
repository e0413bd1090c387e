//! Documents about sessions and NAT.

use std::borrow::Cow;
use std::net::IpAddr;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `show connections`. It is written while it is sent, one connection a line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConnectionList {
    /// The sessions, in no order. Those that begin or end meanwhile may be told of or not, the others once.
    pub connections: Vec<ConnectionEntry>,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConnectionEntry {
    /// The transport protocol's name, or its number where it has none.
    pub protocol: Cow<'static, str>,
    /// Its state, in the tracker's words.
    pub state: Cow<'static, str>,
    /// The direction of the packet that opened it.
    pub forward: FlowEntry,
    /// The direction of replies.
    pub reverse: FlowEntry,
    /// Whether what comes in by one direction is not what goes out: the two are not each other's reverse.
    pub translated: bool,
    /// Seconds since it was opened.
    pub age_seconds: u64,
    /// Seconds since its last packet.
    pub idle_seconds: u64,
    /// Seconds until it ends, should no packet come.
    pub expires_seconds: u64,
    /// Indexes of the stateful rules that it has.
    pub rules: Vec<u32>,
    /// The service chain that its packets go through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
    /// Why its packets are dropped before they get there: the reason that a function refused it for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The worker that it lives with.
    pub worker: u64,
    /// Tells it from others that have had or will have its place with the worker.
    #[serde(default)]
    pub uid: u32,
}

/// One direction of a session: what its packets look like as they come in, before any translation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FlowEntry {
    /// Source address.
    #[schema(value_type = String)]
    pub source: IpAddr,
    /// Source port. ICMP queries: their identifier; replies: the type of the query. Absent for protocols without ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// Destination address.
    #[schema(value_type = String)]
    pub destination: IpAddr,
    /// Destination port. ICMP queries: their type; replies: their identifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<u16>,
    /// The interface by which its packets come in, once one has.
    #[serde(rename = "in", default, skip_serializing_if = "Option::is_none")]
    pub in_: Option<String>,
    /// Packets.
    pub packets: u64,
    /// Bytes of their frames.
    pub bytes: u64,
}

/// `clear connections`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClearReply {
    /// What happened, in words.
    pub done: String,
    /// Sessions that were ended.
    pub cleared: u64,
}

/// What there is of sessions, and what became of them since the start: one worker's, or all workers' in sum.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionCounts {
    /// Sessions there are.
    pub sessions: u64,
    /// Of these, half open: nobody has answered yet. They make room for others when there is none.
    pub half_open: u64,
    /// Most sessions there can be.
    pub capacity: u64,
    /// Sessions that were opened.
    pub created: u64,
    /// Sessions that ended, by reason: `expired`, `replaced`, `evicted`, `ended`, `cleared`.
    pub ended: IndexMap<String, u64>,
    /// Packets that would have opened a session and were refused, by the reason they were dropped for.
    pub refused: IndexMap<String, u64>,
}

/// `show nat`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NatReply {
    /// The pools.
    pub pools: Vec<PoolEntry>,
    /// The forwards.
    pub forwards: Vec<ForwardEntry>,
}

/// A NAT pool and its use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolEntry {
    /// Its name.
    pub name: String,
    /// First and last address.
    pub addresses: [String; 2],
    /// First and last port.
    pub ports: [u16; 2],
    /// Ports in a block, if hosts get ports in blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<u16>,
    /// Most sessions of a host, if there is a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Who may send from outside.
    pub filtering: String,
    /// Hosts inside that have a mapping or a block.
    pub hosts: u64,
    /// Sessions that hosts inside have opened.
    pub sessions: u64,
    /// Ports in use, by protocol: `udp`, `tcp`, `icmp` (identifiers).
    pub ports_used: IndexMap<String, u64>,
    /// Ports there are, for each protocol.
    pub ports_total: u64,
    /// Blocks in use.
    pub blocks_used: u64,
    /// Blocks there are; 0 without blocks.
    pub blocks_total: u64,
    /// How often there was no port left.
    pub exhausted: u64,
    /// How often a host was at its limit.
    pub limited: u64,
}

/// A forward.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ForwardEntry {
    /// `tcp` or `udp`.
    pub protocol: String,
    /// The address that it is known by outside.
    pub outside: String,
    /// The port there.
    pub outside_port: u16,
    /// The host behind.
    pub inside: String,
    /// Its port.
    pub inside_port: u16,
}
