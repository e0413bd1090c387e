//! `ip-slow`: packets that are not simply forwarded. Why not stands in their metadata, as the reason for which they are dropped in
//! the end: those that the sender has to know about become ICMP errors (RFC 792, 1812 chapters 4.3 and 5.2.7, 4443), which are
//! routed themselves; those without an Ethernet address to go to wait for it; IPv4 packets too long for the way out are cut.

use std::net::IpAddr;

use mmb_dpdk::{Mbuf, Packet, Vector};
use mmb_flow::{FlowRef, IcmpErrorKind, rewrite_as_icmp_error};
use mmb_packet::{DropReason, Kind, OUT_ROUTED, checksum, flags};
use mmb_route::{NextHop, NextHopKind, Routes};

use super::fragment::cut;
use super::hop::{L3, addresses4, addresses6, parsed};
use crate::engine::snapshot::path;
use crate::engine::vector::VECTOR;
use crate::engine::worker::Worker;
use crate::features::route::requests::Want;

pub(crate) const NEXT: [&str; 4] = ["drop", "ip4-lookup", "ip6-lookup", "ip4-rewrite"];
const DROP: u16 = 0;
const IP4: u16 = 1;
const IP6: u16 = 2;
pub(crate) const REWRITE: u16 = 3;
/// No edges: packets that leave the graph, to wait, or to be cut.
const WAIT: u16 = u16::MAX;
const CUT: u16 = u16::MAX - 1;

pub(crate) fn process(worker: &mut Worker, mut vector: Vector<'_>) {
    worker.tell_time();
    let routes = worker.routes.clone();
    let mut edges = [DROP; VECTOR];
    let mut leave = false;
    for (edge, packet) in edges.iter_mut().zip(vector.packets()) {
        *edge = judge(worker, &routes, packet);
        leave |= *edge >= CUT;
    }
    if leave {
        take_out(worker, &routes, &mut vector, &mut edges);
    }
    let n = vector.len();
    vector.send(&edges[..n]);
}

/// Decides about a packet; its edge.
fn judge(worker: &mut Worker, routes: &Routes, packet: &mut Packet) -> u16 {
    // Packets that `ip4-input` or `ip6-input` sends here have no next hop, and no reason that asks for one.
    let hop = |packet: &Packet| routes.hops.get(packet.meta().stage.next_hop());
    let reason = DropReason::from_number(packet.meta().drop_reason).unwrap_or(DropReason::NoRoute);
    let complaint = match reason {
        DropReason::NeighborQueue if lives(packet) => {
            want(worker, hop(packet), packet);
            return WAIT;
        }
        DropReason::NeighborQueue | DropReason::TtlExpired => {
            packet.meta_mut().drop_reason = DropReason::TtlExpired as u8;
            IcmpErrorKind::TIME_EXCEEDED
        }
        DropReason::NeighborFailed => {
            let hop = hop(packet);
            if matches!(hop.kind, NextHopKind::Failed | NextHopKind::Resolve) {
                want(worker, hop, packet);
            }
            IcmpErrorKind::NO_NEIGHBOR
        }
        DropReason::FragNeeded if may_be_cut(packet) => return CUT,
        DropReason::FragNeeded => IcmpErrorKind::too_big(hop(packet).mtu.into()),
        DropReason::NoRoute => IcmpErrorKind::NO_ROUTE,
        DropReason::UnreachableRoute => IcmpErrorKind::UNREACHABLE,
        DropReason::ProhibitedRoute => IcmpErrorKind::PROHIBITED,
        _ => return DROP,
    };
    complain(worker, routes, packet, complaint)
}

/// Whether a packet may go one hop further.
fn lives(packet: &Packet) -> bool {
    let at = if packet.meta().kind.l3() == Kind::IP4 { L3 + 8 } else { L3 + 7 };
    packet.data().get(at).is_some_and(|ttl| *ttl > 1)
}

/// Whether its sender lets routers cut it.
fn may_be_cut(packet: &Packet) -> bool {
    packet.meta().kind.l3() == Kind::IP4 && packet.data().get(L3 + 6).is_some_and(|flags| flags & 0x40 == 0)
}

/// The neighbour that a packet goes to.
pub(crate) fn neighbor(hop: &NextHop, packet: &Packet) -> Option<Want> {
    let destination = || match packet.meta().kind.l3() {
        Kind::IP4 => Some(IpAddr::V4(addresses4(packet)?.1.into())),
        _ => Some(IpAddr::V6(addresses6(packet)?.1.into())),
    };
    Some(Want { interface: hop.interface, address: hop.gateway.or_else(destination)? })
}

/// Asks the kernel for the neighbour, unless that was done a moment ago.
pub(crate) fn want(worker: &mut Worker, hop: &NextHop, packet: &Packet) {
    let Some(want) = neighbor(hop, packet) else { return };
    if worker.asked.may(want, worker.now) {
        let counters = &worker.counters().routing;
        counters.wants.add(1);
        counters.wants_lost.add(u64::from(!worker.shared.wants.push(want)));
    }
}

/// Makes an ICMP error of a packet, if there may be one; its edge.
fn complain(worker: &mut Worker, routes: &Routes, packet: &mut Packet, complaint: IcmpErrorKind) -> u16 {
    let (port, reason) = (packet.port(), packet.meta().drop_reason);
    if packet.meta().flags & flags::OURS != 0 {
        return DROP;
    }
    let Some(source) = complainer(routes, port, packet.meta().kind.l3()) else { return DROP };
    if !worker.errors.has_some(worker.now) {
        worker.counters().routing.icmp_suppressed.add(1);
        return DROP;
    }
    // A packet at its end has not been translated.
    let has_met_rules =
        worker.snapshot.path(port) & path::RULES != 0 && reason != DropReason::TtlExpired as u8;
    if worker.snapshot.flows && has_met_rules {
        // The sender knows nothing of the translation; nothing to undo is no fault.
        let (head, meta) = packet.data_and_meta();
        let _ = worker.sessions.untranslate(head, meta);
    }
    // Anew: where no rules apply, only the network header has been looked at.
    let Some(mut meta) = parsed(packet) else { return DROP };
    if !rewrite_as_icmp_error(packet, &mut meta, complaint, source) {
        return DROP;
    }
    meta.flags |= flags::OURS;
    meta.session = FlowRef::NONE.0;
    meta.out_port = OUT_ROUTED;
    *packet.meta_mut() = meta;
    worker.errors.take(worker.now);
    worker.counters().routing.icmp_errors.add(1);
    worker.counters().drops.add(port, reason, 1);
    one_hop_more(packet);
    if meta.kind.l3() == Kind::IP4 { IP4 } else { IP6 }
}

/// The address that complains about a packet from `port`: that port's, else that of another one with the same routes
/// (RFC 1812, 4.3.2.4). As [`rewrite_as_icmp_error`] wants it.
fn complainer(routes: &Routes, port: u16, l3: u8) -> Option<[u8; 16]> {
    let face = routes.interface(port);
    let table = face.map_or(0, |face| face.table);
    let others = routes.interfaces.iter().flatten().filter(|other| other.table == table);
    let faces = || face.into_iter().chain(others);
    if l3 == Kind::IP4 {
        let [a, b, c, d] = faces().find_map(|face| face.ip4)?.octets();
        Some([a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    } else {
        faces().find_map(|face| face.ip6).map(|address| address.octets())
    }
}

/// What is made here has not come a hop yet: it is routed as all packets are, which takes one off.
fn one_hop_more(packet: &mut Packet) {
    let l3 = packet.meta().kind.l3();
    let Some(head) = packet.data_mut().first_chunk_mut::<{ L3 + 20 }>() else { return };
    if l3 == Kind::IP4 {
        let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let (old, csum) = (word(L3 + 8), word(L3 + 10));
        let new = old.wrapping_add(0x100);
        head[L3 + 8..L3 + 10].copy_from_slice(&new.to_be_bytes());
        head[L3 + 10..L3 + 12].copy_from_slice(&checksum::update16(csum, old, new).to_be_bytes());
    } else {
        head[L3 + 7] = head[L3 + 7].wrapping_add(1);
    }
}

/// Takes the packets out of the graph that wait or are to be cut, and brings in the pieces. The others move up, as their edges
/// do.
#[cold]
fn take_out(worker: &mut Worker, routes: &Routes, vector: &mut Vector<'_>, edges: &mut [u16; VECTOR]) {
    let all = *edges;
    let stay = all[..vector.len()].iter().filter(|edge| **edge < CUT);
    edges.iter_mut().zip(stay).for_each(|(to, edge)| *to = *edge);
    vector.extract_if(
        |at| all[at] >= CUT,
        |packet| match packet.meta().drop_reason == DropReason::FragNeeded as u8 {
            true => worker.long.push(packet),
            false => wait(worker, routes, packet),
        },
    );
    while let Some(packet) = worker.long.pop() {
        cut(worker, routes, &packet, vector);
    }
}

/// Keeps a packet until the Ethernet address of its next hop is known.
fn wait(worker: &mut Worker, routes: &Routes, packet: Mbuf) {
    let Some(neighbor) = neighbor(routes.hops.get(packet.meta().stage.next_hop()), &packet) else { return };
    worker.counters().routing.queued.add(1);
    if let Some(evicted) = worker.waiting.push(packet, neighbor, worker.now) {
        worker.counters().drops.add(evicted.port(), DropReason::NeighborQueue as u8, 1);
    }
    worker.counters().routing.waiting.set(worker.waiting.len() as u64);
}
