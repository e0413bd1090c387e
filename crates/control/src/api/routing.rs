//! Documents about routing.

use std::borrow::Cow;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How an interface is routed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RoutedEntry {
    /// The kernel's interface that has its addresses.
    pub interface: String,
    /// If that is a TAP twin: what went through it. Else it is the interface that the port is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub twin: Option<TwinEntry>,
}

/// What went through the TAP twin of a routed interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TwinEntry {
    /// Packets that the kernel got.
    pub to_kernel: u64,
    /// Packets that the kernel sent.
    pub from_kernel: u64,
}

/// `show fib`. It is written while it is sent, one route a line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FibList {
    /// The routes: by table, IPv4 before IPv6, then by prefix. Routes that come or go meanwhile may be told of or not, the
    /// others once.
    pub routes: Vec<RouteEntry>,
    /// Whether there are more than were asked for.
    #[serde(default)]
    pub more: bool,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RouteEntry {
    /// Destinations, as `ADDRESS/LENGTH`.
    #[schema(example = "198.51.100.0/24")]
    pub prefix: String,
    /// The kernel's number of the table; 254 is the main one, with which the table of local addresses is merged.
    pub table: u32,
    /// The kernel's word for its type: `unicast`, `local`, `blackhole`, …; `neighbor` for a host on a connected network.
    pub kind: Cow<'static, str>,
    /// Who made it: `kernel`, `static`, `bgp`, …, or a number.
    pub protocol: String,
    /// Of two routes to the same prefix, the one with the lower metric counts.
    pub metric: u32,
    /// Where packets go: of several, by the hash of their flow. None where they are the machine's own, or dropped.
    pub next_hops: Vec<NextHopEntry>,
}

/// A next hop of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NextHopEntry {
    /// The router that gets the packets; absent: they go to their destination itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub gateway: Option<IpAddr>,
    /// The kernel's interface.
    pub kernel_interface: String,
    /// The routed interface that it belongs to; absent: packets are left to the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// `forward`; `resolve`: the kernel has to find the neighbour first; `failed`: it does not answer; `punt`: left to the
    /// kernel; `dead`: the link is down.
    pub state: Cow<'static, str>,
    /// Share of the flows.
    pub weight: u16,
    /// The neighbour's Ethernet address, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Largest IP packet, in bytes.
    pub mtu: u16,
}

/// `show neighbors`, by address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NeighborList {
    /// The neighbours.
    pub neighbors: Vec<NeighborEntry>,
}

/// A host or router on a connected network, as the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NeighborEntry {
    /// Its address.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// The kernel's interface.
    pub kernel_interface: String,
    /// The routed interface that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Its Ethernet address, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// The kernel's word for what it knows: `reachable`, `stale`, `incomplete`, `failed`, `permanent`, ….
    pub state: Cow<'static, str>,
}

/// Routing since the first interface was routed: the mirror of the kernel's routes, and what workers did beside forwarding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RoutingCounts {
    /// IPv4 routes.
    pub routes_ip4: u64,
    /// IPv6 routes.
    pub routes_ip6: u64,
    /// Next hops, groups of them included.
    pub next_hops: u64,
    /// Neighbours.
    pub neighbors: u64,
    /// Microseconds from the kernel's last change until packets went by it.
    pub lag_last_us: u64,
    /// The longest that this took.
    pub lag_max_us: u64,
    /// Times that the mirror was compared with the kernel as a whole.
    pub resyncs: u64,
    /// Of these, those because the kernel told more than could be read.
    pub overruns: u64,
    /// Messages from the kernel.
    pub messages: u64,
    /// Times that other routes were given to the workers.
    pub publications: u64,
    /// Times that the kernel was asked to find a neighbour.
    pub requests: u64,
    /// Packets handed to the kernel.
    pub punted: u64,
    /// ICMP errors sent.
    pub icmp_errors: u64,
    /// ICMP errors that were due and not sent: there were too many.
    pub icmp_suppressed: u64,
    /// Packets that were cut into fragments.
    pub fragmented: u64,
    /// The fragments.
    pub fragments: u64,
    /// Packets that waited until a neighbour was found.
    pub queued: u64,
    /// Packets that wait now.
    pub waiting: u64,
}
