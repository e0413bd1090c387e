//! Documents about sessions and NAT.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `show connections`, sent while it is read, one connection per line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConnectionList {
    /// The sessions, in no order. Sessions that open or end meanwhile may be missing; all others appear once.
    pub connections: Vec<ConnectionEntry>,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConnectionEntry {
    /// Name of the transport protocol, or its number.
    pub protocol: Cow<'static, str>,
    /// State of the connection tracker.
    pub state: Cow<'static, str>,
    /// Direction of the packet that opened the session.
    pub forward: FlowEntry,
    /// Direction of replies.
    pub reverse: FlowEntry,
    /// Whether addresses or ports are translated, so that one direction is not the reverse of the other.
    pub translated: bool,
    /// Seconds since the session was opened.
    pub age_seconds: u64,
    /// Seconds since the last packet.
    pub idle_seconds: u64,
    /// Seconds until the session ends if no packet arrives.
    pub expires_seconds: u64,
    /// Indexes of the stateful rules of the session.
    pub rules: Vec<u32>,
    /// The service chain of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
    /// The drop reason if a function refused the session: its packets are dropped before the chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// What functions of the chain say about the session, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub functions: BTreeMap<String, String>,
    /// Names the session until it ends: `capture session 0.12.345`.
    #[serde(default)]
    pub id: String,
    /// The worker that owns the session.
    pub worker: u64,
    /// Distinguishes the session from others that use the same slot of the worker's table.
    #[serde(default)]
    pub uid: u32,
}

/// One direction of a session, as its packets are received, before any translation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FlowEntry {
    /// Source address.
    #[schema(value_type = String)]
    pub source: IpAddr,
    /// Source port. For ICMP queries the identifier, for replies the type of the query. Absent without ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// Destination address.
    #[schema(value_type = String)]
    pub destination: IpAddr,
    /// Destination port. For ICMP queries the type, for replies the identifier. Absent without ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<u16>,
    /// The interface that receives its packets, once there was one.
    #[serde(rename = "in", default, skip_serializing_if = "Option::is_none")]
    pub in_: Option<String>,
    /// Packets.
    pub packets: u64,
    /// Bytes of the frames of these packets.
    pub bytes: u64,
}

/// `clear connections`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClearReply {
    /// A sentence on the change.
    pub done: String,
    /// Sessions that were ended.
    pub cleared: u64,
}

/// Sessions now, and counters since the start, of one worker or of all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionCounts {
    /// Open sessions.
    pub sessions: u64,
    /// Open sessions without a reply so far. They are evicted when the table is full.
    pub half_open: u64,
    /// Maximum number of sessions.
    pub capacity: u64,
    /// Packets that functions of chains hold.
    #[serde(default)]
    pub held_packets: u64,
    /// Sessions that were opened.
    pub created: u64,
    /// Source addresses that have reached their limit of sessions, the latest first.
    #[serde(default)]
    pub limited_sources: Vec<LimitedEntry>,
    /// Sessions that ended, by reason: `expired`, `aged`, `replaced`, `evicted`, `ended`, `cleared`.
    pub ended: IndexMap<String, u64>,
    /// Packets that could not open a session, by drop reason.
    pub refused: IndexMap<String, u64>,
}

/// A source address that has reached its limit of sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LimitedEntry {
    /// The source address.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// The limit.
    pub limit: u32,
    /// Seconds since the limit was last reached.
    pub seconds_ago: u64,
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
    /// Name of the pool.
    pub name: String,
    /// First and last address; empty while the interface that the pool follows has none.
    pub addresses: [String; 2],
    /// The interface whose address the pool has, if it follows one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// First and last port.
    pub ports: [u16; 2],
    /// Ports in a block, if ports are allocated in blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<u16>,
    /// Maximum number of sessions of a host, if there is a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Filtering behavior for packets from outside (RFC 4787).
    pub filtering: String,
    /// Inside hosts with a mapping or a block.
    pub hosts: u64,
    /// Sessions opened by inside hosts.
    pub sessions: u64,
    /// Ports in use, by protocol: `udp`, `tcp`, `icmp` (identifiers).
    pub ports_used: IndexMap<String, u64>,
    /// Ports of the pool, for each protocol.
    pub ports_total: u64,
    /// Blocks in use.
    pub blocks_used: u64,
    /// Blocks of the pool; 0 without blocks.
    pub blocks_total: u64,
    /// How often no port was free.
    pub exhausted: u64,
    /// How often a host had reached its limit.
    pub limited: u64,
}

/// A port forward.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ForwardEntry {
    /// `tcp` or `udp`.
    pub protocol: String,
    /// Outside address.
    pub outside: String,
    /// Outside port.
    pub outside_port: u16,
    /// Inside address.
    pub inside: String,
    /// Inside port.
    pub inside_port: u16,
}
