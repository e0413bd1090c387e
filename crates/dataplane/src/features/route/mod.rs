//! Routing: next-hop lookup, forwarding, fragmentation, ICMP errors and neighbour resolution.
//!
//! Theory of operation. `ip4-lookup` and `ip6-lookup` find the next hops of all packets of a vector together,
//! and write their numbers into the metadata. `ip4-rewrite` and `ip6-rewrite` forward packets to next hops
//! whose Ethernet address is known, and choose a member where the next hop is a group. Packets for the kernel
//! go to `punt`. All other packets go to `ip-slow`, with the reason why they are not forwarded in their
//! metadata: they wait, are fragmented, are dropped, or become ICMP errors. `neighbor-rx` returns packets
//! that waited to the graph.

pub(crate) mod control;
pub(crate) mod forward;
mod fragment;
pub(crate) mod lookup;
pub(crate) mod martian;
pub(crate) mod neighbor_rx;
pub(crate) mod next_hop;
pub(crate) mod out;
pub(crate) mod requests;
mod resolve;
pub(crate) mod rewrite;
pub(crate) mod slow_path;
pub(crate) mod state;
mod table_lookup;
pub(crate) mod waiting;
