//! Documents about routing.

use std::borrow::Cow;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The kernel's side of a routed interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RoutedEntry {
    /// The kernel interface with its addresses.
    pub interface: String,
    /// Counters of its TAP twin; absent for a port that has no twin (af-xdp).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub twin: Option<TwinEntry>,
}

/// Counters of the TAP twin of a routed interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TwinEntry {
    /// Packets sent to the kernel.
    pub to_kernel: u64,
    /// Packets received from the kernel.
    pub from_kernel: u64,
}

/// `show fib`, sent while it is read, one route per line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FibList {
    /// The routes, ordered by table, by family (IPv4 first) and by prefix. Routes that change meanwhile may
    /// be missing; all others appear once.
    pub routes: Vec<RouteEntry>,
    /// Whether there are more routes than the limit.
    #[serde(default)]
    pub more: bool,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RouteEntry {
    /// Destination prefix, as `ADDRESS/LENGTH`.
    #[schema(example = "198.51.100.0/24")]
    pub prefix: String,
    /// Number of the kernel's table. 254 is the main table; it includes the table of local addresses.
    pub table: u32,
    /// Type of the route in the kernel: `unicast`, `local`, `blackhole`, …; `neighbor` for a host on a
    /// connected network.
    pub kind: Cow<'static, str>,
    /// Origin of the route: `kernel`, `static`, `bgp`, …, or a number.
    pub protocol: String,
    /// Metric; of two routes to a prefix the one with the lower metric is used.
    pub metric: u32,
    /// Next hops; a hash of the flow chooses among several. Empty for local routes and routes that drop.
    pub next_hops: Vec<NextHopEntry>,
}

/// A next hop of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NextHopEntry {
    /// The next router; absent if the destination is on a connected network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub gateway: Option<IpAddr>,
    /// The kernel interface.
    pub kernel_interface: String,
    /// The routed interface of mmb; absent if packets are left to the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// `forward`; `resolve`: the kernel must resolve the neighbour first; `failed`: the neighbour does not
    /// answer; `punt`: left to the kernel; `dead`: the link is down.
    pub state: Cow<'static, str>,
    /// Relative share of the flows.
    pub weight: u16,
    /// Ethernet address of the neighbour, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Largest IP packet, in bytes.
    pub mtu: u16,
}

/// `show neighbors`, ordered by address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NeighborList {
    /// The neighbours.
    pub neighbors: Vec<NeighborEntry>,
}

/// A host or router on a connected network, from the kernel's neighbour table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NeighborEntry {
    /// IP address.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// The kernel interface.
    pub kernel_interface: String,
    /// The routed interface of mmb.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Ethernet address, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// State in the kernel: `reachable`, `stale`, `incomplete`, `failed`, `permanent`, ….
    pub state: Cow<'static, str>,
}

/// Packets handed to the kernel, by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PuntCounts {
    /// ARP and IPv6 neighbour discovery.
    pub neighbor: u64,
    /// Routing protocols.
    pub routing: u64,
    /// Other IP packets to a unicast address.
    pub local: u64,
    /// All other frames.
    pub other: u64,
}

/// Counters of routing since the first interface was routed: the mirror of the kernel's routes, and the
/// workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RoutingCounts {
    /// IPv4 routes.
    pub routes_ip4: u64,
    /// IPv6 routes.
    pub routes_ip6: u64,
    /// Next hops and groups of next hops.
    pub next_hops: u64,
    /// Neighbours.
    pub neighbors: u64,
    /// Microseconds from the last change in the kernel until packets followed it.
    pub lag_last_us: u64,
    /// Maximum of this time, in microseconds.
    pub lag_max_us: u64,
    /// How often the whole mirror was compared with the kernel.
    pub resyncs: u64,
    /// How often this was because the kernel sent more messages than could be read.
    pub overruns: u64,
    /// Messages from the kernel.
    pub messages: u64,
    /// How often new routes were published to the workers.
    pub publications: u64,
    /// How often the kernel was asked to resolve a neighbour.
    pub requests: u64,
    /// Packets handed to the kernel.
    pub punted: u64,
    /// These packets by class.
    pub punted_by_class: PuntCounts,
    /// ICMP errors sent.
    pub icmp_errors: u64,
    /// ICMP errors that were not sent because of the rate limit.
    pub icmp_suppressed: u64,
    /// Packets that were fragmented.
    pub fragmented: u64,
    /// Fragments sent for these packets.
    pub fragments: u64,
    /// Packets that were queued until their neighbour was resolved.
    pub queued: u64,
    /// Packets that are queued now.
    pub waiting: u64,
}
