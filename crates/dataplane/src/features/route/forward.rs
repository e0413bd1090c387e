//! Forwards a packet to its next hop: TTL, checksum and Ethernet header.

use mmb_packet::Meta;
use mmb_route::{NextHop, NextHopKind, forward_ip4, forward_ip6};

use crate::engine::node::vector::ROUTED_L3 as L3;

/// Offset of the TTL.
pub(super) const TTL4: usize = L3 + 8;
/// Offset of the hop limit.
pub(super) const TTL6: usize = L3 + 7;

/// Forwards an IPv4 packet to a next hop. Returns false, and changes no byte, if the packet needs more than
/// that.
#[inline(always)]
pub(crate) fn forward4(head: &mut [u8], meta: &mut Meta, hop: &NextHop) -> bool {
    forward(head, meta, hop, TTL4, forward_ip4)
}

/// Forwards an IPv6 packet to a next hop; see [`forward4`].
#[inline(always)]
pub(crate) fn forward6(head: &mut [u8], meta: &mut Meta, hop: &NextHop) -> bool {
    forward(head, meta, hop, TTL6, forward_ip6)
}

/// Forwards a packet whose TTL or hop limit is at offset `ttl`; see [`forward4`].
#[inline(always)]
pub(super) fn forward(
    head: &mut [u8],
    meta: &mut Meta,
    hop: &NextHop,
    ttl: usize,
    rewrite: impl Fn(&mut [u8], usize, &NextHop) -> bool,
) -> bool {
    let length = usize::from(meta.end).wrapping_sub(L3);
    let is_alive = head.get(ttl).is_some_and(|ttl| *ttl > 1);
    let is_plain = (hop.kind == NextHopKind::Forward) & !hop.neighbor_stale;
    meta.out_port = hop.port;
    is_plain & is_alive & (length <= usize::from(hop.mtu)) && rewrite(head, L3, hop)
}
