//! The next hop of one packet, and what a packet's headers say about it.

use mmb_dpdk::Packet;
use mmb_packet::{DropReason, Kind, Meta, parse};
use mmb_route::{NextHopId, NextHopKind, RouteTable, Routes};

use super::martian::{is_link_local, is_martian4, is_martian6};
use crate::engine::node::vector::ROUTED_L3 as L3;

/// Whether a packet is for the machine itself.
pub(crate) fn is_for_kernel(routes: &Routes, packet: &Packet) -> bool {
    routes.hops.get(look_up_one(routes, packet)).kind == NextHopKind::Punt
}

/// Finds the next hops of the packets at the positions in `which`.
///
/// `found` gets a next hop if it holds for all packets of the flow from the same port, until routes change.
pub(crate) fn for_each_lasting_hop(
    routes: &Routes,
    packets: &[&mut Packet],
    which: &[usize],
    mut found: impl FnMut(usize, Option<NextHopId>),
) {
    for packet in which.iter().map(|at| &packets[*at]) {
        prefetch_route(routes, packet);
    }
    for &at in which {
        let packet = &packets[at];
        let is_odd = match packet.meta().kind.l3() {
            Kind::IP4 => addresses4(packet).is_none_or(|(from, to)| is_martian4(from, to)),
            _ => addresses6(packet).is_none_or(|(from, to)| is_martian6(from, to) || is_link_local(to)),
        };
        let id = look_up_one(routes, packet);
        let is_lasting = !is_odd && routes.hops.get(id).kind == NextHopKind::Forward;
        found(at, is_lasting.then_some(id));
    }
}

/// Prefetches what the lookup of a packet's route reads first.
fn prefetch_route(routes: &Routes, packet: &Packet) {
    let Some(table) = table_of(routes, packet.port()) else { return };
    match packet.meta().kind.l3() {
        Kind::IP4 => addresses4(packet).into_iter().for_each(|(_, to)| table.ip4.prefetch(to)),
        _ => addresses6(packet).into_iter().for_each(|(_, to)| table.ip6.prefetch(to)),
    }
}

/// The kind of the next hop that a packet's metadata names.
pub(super) fn next_hop_kind(routes: &Routes, packet: &Packet) -> NextHopKind {
    routes.hops.get(packet.meta().stage.next_hop()).kind
}

/// The route table for packets from `port`; the first one for packets from a wire.
pub(crate) fn table_of(routes: &Routes, port: u16) -> Option<&RouteTable> {
    match routes.interface(port) {
        Some(interface) => routes.tables.get(usize::from(interface.table)),
        None => routes.tables.first(),
    }
}

/// The source and destination of an IPv4 packet, in host order.
#[inline(always)]
pub(super) fn addresses4(packet: &Packet) -> Option<(u32, u32)> {
    let head: &[u8; L3 + 20] = packet.data().first_chunk()?;
    let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    Some((word(L3 + 12), word(L3 + 16)))
}

/// The source and destination of an IPv6 packet, in host order.
#[inline(always)]
pub(super) fn addresses6(packet: &Packet) -> Option<(u128, u128)> {
    let head: &[u8; L3 + 40] = packet.data().first_chunk()?;
    let [source, destination]: [[u8; 16]; 2] = *head[L3 + 8..].as_chunks().0.first_chunk()?;
    Some((u128::from_be_bytes(source), u128::from_be_bytes(destination)))
}

/// The next hop of one packet. Of a group, it is the member that the flow's hash selects.
pub(super) fn look_up_one(routes: &Routes, packet: &Packet) -> NextHopId {
    let Some(table) = table_of(routes, packet.port()) else { return 0 };
    let id = match packet.meta().kind.l3() {
        Kind::IP4 => addresses4(packet).map(|(_, to)| table.ip4.lookup(to)),
        Kind::IP6 => addresses6(packet).map(|(_, to)| table.ip6.lookup(to)),
        _ => None,
    };
    routes.hops.resolve(id.unwrap_or(0), flow_hash(packet))
}

/// The bytes of the longest IP packet that the route of a packet in a chain takes; no limit without a route.
/// `to`: its destination, as in [`mmb_flow::Key`].
pub(crate) fn mtu_of_route(routes: &Routes, packet: &mmb_nf::Packet<'_>, to: &[u8; 16]) -> usize {
    let Some(table) = table_of(routes, packet.in_port) else { return usize::MAX };
    let id = match packet.meta.kind.l3() {
        Kind::IP4 => table.ip4.lookup(u32::from_be_bytes([to[0], to[1], to[2], to[3]])),
        _ => table.ip6.lookup(u128::from_be_bytes(*to)),
    };
    match routes.hops.for_flow(id, packet.meta.flow_hash) {
        hop if hop.mtu != 0 => hop.mtu.into(),
        _ => usize::MAX,
    }
}

/// The hash of a packet's flow. Without rules, `ip4-input` and `ip6-input` have parsed the network header
/// only, and the hash is computed here.
pub(super) fn flow_hash(packet: &Packet) -> u32 {
    match packet.meta().flow_hash {
        0 => parsed(packet).map_or(0, |meta| meta.flow_hash),
        hash => hash,
    }
}

/// The metadata of a packet after a parse of all its headers. None if its network header is malformed.
pub(crate) fn parsed(packet: &Packet) -> Option<Meta> {
    let mut meta = *packet.meta();
    match parse(packet.data(), packet.pkt_len(), &mut meta) {
        Err(reason) if !reason.is_transport_error() => None,
        _ => Some(meta),
    }
}

/// Why packets to a next hop of this kind are not forwarded. [`DropReason::NeighborQueue`]: they wait.
pub(super) fn slow_path_reason(kind: NextHopKind) -> DropReason {
    match kind {
        NextHopKind::NoRoute | NextHopKind::Group | NextHopKind::Forward | NextHopKind::Punt => {
            DropReason::NoRoute
        }
        NextHopKind::Resolve => DropReason::NeighborQueue,
        NextHopKind::Failed => DropReason::NeighborFailed,
        NextHopKind::Blackhole => DropReason::Blackhole,
        NextHopKind::Unreachable => DropReason::UnreachableRoute,
        NextHopKind::Prohibit => DropReason::ProhibitedRoute,
    }
}
