//! Queries of the mirrored state, and their results.

use std::net::IpAddr;

use serde::Serialize;

use crate::plane::PortNumber;

/// A selection of table entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FibSelect {
    /// All entries.
    #[default]
    All,
    /// A prefix and everything inside it.
    Subnet(IpAddr, u8),
    /// In each table the entry for packets to this address.
    Address(IpAddr),
}

/// A query of the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FibQuery {
    /// The kernel's table number; None: all tables.
    pub table: Option<u32>,
    /// The selected entries.
    pub select: FibSelect,
    /// Only entries behind this one: [`FibPage::next`] of the previous page.
    pub after: Option<FibKey>,
}

/// The position of an entry. Tables are ordered by number, the main table first; IPv4 precedes IPv6; prefixes
/// are in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FibKey {
    /// The kernel's table number. 254 is the main table, which includes `local` and `default`.
    pub table: u32,
    /// The prefix.
    pub prefix: IpAddr,
    /// The prefix length.
    pub length: u8,
}

/// A table entry: the treatment of packets to a prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FibEntry {
    /// Table and prefix.
    #[serde(flatten)]
    pub key: FibKey,
    /// `unicast`, `local`, `broadcast`, `multicast`, `anycast`, `blackhole`, `unreachable`, `prohibit`,
    /// `throw`; `neighbor` for the address of a neighbour.
    pub kind: &'static str,
    /// Metric of the route; lower is better. 0 for neighbours.
    pub metric: u32,
    /// Origin of the route: `kernel`, `static`, `bgp`, …, or a number.
    pub protocol: String,
    /// Next hops; flows are distributed by weight. Empty for routes that drop.
    pub hops: Vec<FibHop>,
}

/// A next hop of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FibHop {
    /// The gateway. None: packets go directly to their destination.
    pub gateway: Option<IpAddr>,
    /// Name of the kernel's interface.
    pub interface: String,
    /// The routed port with this interface. None: packets are left to the kernel.
    pub port: Option<PortNumber>,
    /// Weight in the distribution of flows.
    pub weight: u16,
    /// Treatment of packets: `forward`, `resolve`, `failed`, `punt`, or `dead` if the link is down.
    pub state: &'static str,
    /// The neighbour's Ethernet address.
    pub mac: Option<[u8; 6]>,
    /// Largest packet, in bytes.
    pub mtu: u16,
}

/// A page of entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FibPage {
    /// The entries in ascending order.
    pub entries: Vec<FibEntry>,
    /// The position to continue from, in [`FibQuery::after`]. None: this is the last page.
    pub next: Option<FibKey>,
}

/// A neighbour of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NeighborEntry {
    /// Its address.
    pub address: IpAddr,
    /// Name of the kernel's interface.
    pub interface: String,
    /// The routed port that has this interface.
    pub port: Option<PortNumber>,
    /// Its Ethernet address, if known.
    pub mac: Option<[u8; 6]>,
    /// State as named by the kernel: `reachable`, `stale`, `delay`, `probe`, `permanent`, `noarp`,
    /// `incomplete`, `failed`, `none`.
    pub state: &'static str,
}

/// Counters of the mirror.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RouterCounters {
    /// Time between the arrival of the last change and its publication, in microseconds.
    pub lag_last_us: u64,
    /// The largest such time.
    pub lag_max_us: u64,
    /// Number of comparisons with the kernel's whole state.
    pub resyncs: u64,
    /// Number of these that were caused by lost messages.
    pub overruns: u64,
    /// Messages received from the kernel.
    pub messages: u64,
    /// Malformed messages.
    pub malformed: u64,
    /// Publications of routes.
    pub publications: u64,
    /// Neighbours that the kernel was asked to resolve.
    pub requests: u64,
    /// IPv4 routes in the mirrored tables.
    pub routes4: u64,
    /// IPv6 routes in the mirrored tables.
    pub routes6: u64,
    /// Paths: next hops and groups of them.
    pub next_hops: u64,
    /// Neighbours.
    pub neighbors: u64,
}
