//! The nodes of routed ports: where a packet goes, what a router does to it, and what is rare.
//!
//! Theory of operation. `ip4-lookup` and `ip6-lookup` find the next hop of each packet, all of a vector together, and write its
//! number into the metadata, where edits stood that are done by now. `ip4-rewrite` and `ip6-rewrite` send the packets on to
//! next hops whose Ethernet address is known, and choose one where there are several. What is the kernel's goes to `punt`. Everything else goes to `ip-slow`, with the
//! reason why it cannot be forwarded in its metadata: packets that have to wait, are to be cut into fragments, are dropped, or
//! become ICMP errors. `neighbor-rx` brings back those that have waited.

use mmb_dpdk::Packet;
use mmb_packet::{DropReason, Kind, Meta, parse};
use mmb_route::{NextHopId, NextHopKind, RouteTable, Routes};

use super::lookup;
pub(super) use crate::engine::vector::ROUTED_L3 as L3;

/// The edges that packets to be routed take, for nodes that have them in this order: by IP version, and for what is neither.
#[derive(Clone, Copy)]
pub(crate) struct Ways {
    /// The first one's number.
    pub first: u16,
}

impl Ways {
    pub const NODES: [&str; 3] = ["ip4-lookup", "ip6-lookup", "punt"];

    /// The edge of a packet.
    #[inline]
    pub fn of(self, packet: &Packet) -> u16 {
        self.of_version(packet.meta().kind.l3())
    }

    /// The edge of packets of a version of IP, as [`Kind::l3`] has it.
    #[inline]
    pub fn of_version(self, version: u8) -> u16 {
        match version {
            Kind::IP4 => self.first,
            Kind::IP6 => self.first + 1,
            _ => self.punt(),
        }
    }

    /// The edge of what is the kernel's.
    pub fn punt(self) -> u16 {
        self.first + 2
    }
}

/// Whether a packet is for the machine itself.
pub(crate) fn is_punted(routes: &Routes, packet: &Packet) -> bool {
    routes.hops.get(hop_of(routes, packet)).kind == NextHopKind::Punt
}

/// Finds the next hop of each of some IPv4 packets, by their positions, if it is that of all packets with its addresses and ports that come
/// in where it did, as long as routes do not change.
pub(crate) fn steady_hops(
    routes: &Routes,
    packets: &[&mut Packet],
    which: &[usize],
    mut found: impl FnMut(usize, Option<NextHopId>),
) {
    for packet in which.iter().map(|at| &packets[*at]) {
        if let (Some(table), Some((_, to))) = (table(routes, packet.port()), addresses4(packet)) {
            table.ip4.prefetch(to);
        }
    }
    for &at in which {
        let packet = &packets[at];
        let odd = addresses4(packet).is_none_or(|(from, to)| lookup::is_martian4(from, to));
        let id = hop_of(routes, packet);
        let steady = !odd && routes.hops.get(id).kind == NextHopKind::Forward;
        found(at, steady.then_some(id));
    }
}

/// The kind of the next hop that has been found for a packet.
pub(crate) fn hop_kind(routes: &Routes, packet: &Packet) -> NextHopKind {
    routes.hops.get(packet.meta().stage.next_hop()).kind
}

/// The table by which packets from `port` are routed: for what comes from a wire, the first.
pub(crate) fn table(routes: &Routes, port: u16) -> Option<&RouteTable> {
    match routes.interface(port) {
        Some(face) => routes.tables.get(usize::from(face.table)),
        None => routes.tables.first(),
    }
}

/// The source and destination of an IPv4 packet, in host order.
#[inline(always)]
pub(crate) fn addresses4(packet: &Packet) -> Option<(u32, u32)> {
    let head: &[u8; L3 + 20] = packet.data().first_chunk()?;
    let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    Some((word(L3 + 12), word(L3 + 16)))
}

/// The source and destination of an IPv6 packet.
#[inline(always)]
pub(crate) fn addresses6(packet: &Packet) -> Option<(u128, u128)> {
    let head: &[u8; L3 + 40] = packet.data().first_chunk()?;
    let [source, destination]: [[u8; 16]; 2] = *head[L3 + 8..].as_chunks().0.first_chunk()?;
    Some((u128::from_be_bytes(source), u128::from_be_bytes(destination)))
}

/// The next hop of one packet, a group's member if it is a group.
pub(crate) fn hop_of(routes: &Routes, packet: &Packet) -> NextHopId {
    let Some(table) = table(routes, packet.port()) else { return 0 };
    let id = match packet.meta().kind.l3() {
        Kind::IP4 => addresses4(packet).map(|(_, to)| table.ip4.lookup(to)),
        Kind::IP6 => addresses6(packet).map(|(_, to)| table.ip6.lookup(to)),
        _ => None,
    };
    routes.hops.resolve(id.unwrap_or(0), flow_hash(packet))
}

/// The hash of a packet's flow. Where no rules apply, `ip4-input` and `ip6-input` have not looked behind the network header.
pub(crate) fn flow_hash(packet: &Packet) -> u32 {
    match packet.meta().flow_hash {
        0 => parsed(packet).map_or(0, |meta| meta.flow_hash),
        hash => hash,
    }
}

/// What the whole parse of a packet finds.
pub(crate) fn parsed(packet: &Packet) -> Option<Meta> {
    let mut meta = *packet.meta();
    parse(packet.data(), packet.pkt_len(), &mut meta).ok().map(|()| meta)
}

/// Why packets are not simply forwarded whose next hop is of a kind. [`DropReason::NeighborQueue`]: they have to wait.
pub(crate) fn reason(kind: NextHopKind) -> DropReason {
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
