//! What can be asked of the mirror, and the answers.

use std::net::IpAddr;

use mmb_dataplane::PortId;
use serde::Serialize;

/// Which entries of the tables are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FibSelect {
    /// All of them.
    #[default]
    All,
    /// The prefix with this many bits, and all inside it.
    Subnet(IpAddr, u8),
    /// The one that packets to this address follow, in each table.
    Address(IpAddr),
}

/// A question about the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FibQuery {
    /// The kernel's number of the table; none: all.
    pub table: Option<u32>,
    /// Which entries.
    pub select: FibSelect,
    /// Those behind this one only: [`FibPage::next`] of the page before.
    pub after: Option<FibKey>,
}

/// An entry's place: tables in the order of their numbers, the main one first, IPv4 before IPv6, prefixes in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FibKey {
    /// The kernel's number of the table: 254 for the main one, in which `local` and `default` are merged.
    pub table: u32,
    /// The prefix.
    pub prefix: IpAddr,
    /// Its bits.
    pub length: u8,
}

/// One entry: what packets to a prefix follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FibEntry {
    /// Where it is.
    #[serde(flatten)]
    pub key: FibKey,
    /// `unicast`, `local`, `broadcast`, `multicast`, `anycast`, `blackhole`, `unreachable`, `prohibit`, `throw`;
    /// `neighbor` for the address of a neighbour.
    pub kind: &'static str,
    /// The route's metric, less is better. 0 for neighbours.
    pub metric: u32,
    /// Who made the route: `kernel`, `static`, `bgp`, …, or a number.
    pub protocol: String,
    /// Next hops: of several, each gets flows by its weight. None for those that drop.
    pub hops: Vec<FibHop>,
}

/// A next hop of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FibHop {
    /// The neighbour that gets the packets; none: their destination itself.
    pub gateway: Option<IpAddr>,
    /// The kernel's interface.
    pub interface: String,
    /// The routed port that has this interface; none: packets are left to the kernel.
    pub port: Option<PortId>,
    /// Share of flows.
    pub weight: u16,
    /// What becomes of packets: `forward`, `resolve`, `failed`, `punt`, or `dead` for a link that is down.
    pub state: &'static str,
    /// The neighbour's Ethernet address.
    pub mac: Option<[u8; 6]>,
    /// Largest packet, in bytes.
    pub mtu: u16,
}

/// Entries of the tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FibPage {
    /// In order.
    pub entries: Vec<FibEntry>,
    /// To be given in [`FibQuery::after`] for the next ones; none: there are no more.
    pub next: Option<FibKey>,
}

/// A neighbour as the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NeighborEntry {
    /// Its address.
    pub address: IpAddr,
    /// The kernel's interface.
    pub interface: String,
    /// The routed port that has this interface.
    pub port: Option<PortId>,
    /// Its Ethernet address, if that is known.
    pub mac: Option<[u8; 6]>,
    /// As the kernel calls it: `reachable`, `stale`, `delay`, `probe`, `permanent`, `noarp`, `incomplete`, `failed`, `none`.
    pub state: &'static str,
}

/// What the mirror has done, and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RouterCounters {
    /// Microseconds between the kernel's last message and publication of what it said.
    pub lag_last_us: u64,
    /// The longest that this has ever taken.
    pub lag_max_us: u64,
    /// Times that the mirror compared itself with the kernel as a whole.
    pub resyncs: u64,
    /// Those of them made because messages had been lost.
    pub overruns: u64,
    /// Messages from the kernel.
    pub messages: u64,
    /// Those of them that made no sense.
    pub malformed: u64,
    /// Times that routes were published.
    pub publications: u64,
    /// Neighbours that the kernel was asked to find.
    pub requests: u64,
    /// IPv4 routes in the tables that are mirrored.
    pub routes4: u64,
    /// IPv6 routes in the tables that are mirrored.
    pub routes6: u64,
    /// Next hops, groups of them included.
    pub next_hops: u64,
    /// Neighbours.
    pub neighbors: u64,
}
