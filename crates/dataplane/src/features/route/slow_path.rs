//! `ip-slow`: packets that are not simply forwarded.
//!
//! Theory of operation. A packet's metadata names the reason why it is not forwarded; it is also the reason
//! for a drop. If the sender must know, the packet becomes an ICMP error (RFC 792; RFC 1812, 4.3 and 5.2.7;
//! RFC 4443), which is routed itself. A packet without an Ethernet address for its next hop waits for it. An
//! IPv4 packet that exceeds the MTU is fragmented.

use arrayvec::ArrayVec;
use mmb_dpdk::{Mbuf, Packet, Vector};
use mmb_flow::{ErrorBudget, FlowRef, IcmpErrorKind, rewrite_as_icmp_error};
use mmb_packet::{DropReason, Kind, OUT_ROUTED, PacketFlags, checksum};
use mmb_route::{NextHopKind, Routes};
use mmb_session::Sessions;

use super::fragment::fragment;
use super::next_hop::parsed;
use super::resolve::{Resolver, neighbor_of};
use crate::engine::counters::WorkerCounters;
use crate::engine::node::edges::{Edges, SINK, edges};
use crate::engine::node::vector::{ROUTED_L3 as L3, VECTOR};
use crate::engine::snapshot::{Snapshot, path};
use crate::engine::worker::Worker;

edges! {
    /// The edges of `ip-slow`.
    pub(crate) enum Edge {
        Drop => "drop",
        Ip4Lookup => "ip4-lookup",
        Ip6Lookup => "ip6-lookup",
        Ip4Rewrite => "ip4-rewrite",
        Transmit => SINK,
    }
}

/// What happens to a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    /// It goes along an edge.
    Send(Edge),
    /// It leaves the graph and waits for its neighbour.
    Wait,
    /// It leaves the graph and is fragmented.
    Fragment,
}

impl Action {
    fn is_leaving(self) -> bool {
        !matches!(self, Action::Send(_))
    }
}

pub(crate) fn process(worker: &mut Worker, mut vector: Vector<'_>) {
    worker.update_clock();
    let routes = worker.routing.routes.clone();
    let mut actions = ArrayVec::<Action, VECTOR>::new();
    for packet in vector.packets() {
        actions.push(decide(worker, &routes, packet));
    }
    if actions.iter().any(|action| action.is_leaving()) {
        take_out(worker, &routes, &mut vector, &actions);
    }
    let edges: ArrayVec<u16, VECTOR> = actions
        .iter()
        .filter_map(|action| match action {
            Action::Send(edge) => Some(edge.number()),
            _ => None,
        })
        .collect();
    vector.send(&edges);
}

/// Decides what happens to a packet.
fn decide(worker: &mut Worker, routes: &Routes, packet: &mut Packet) -> Action {
    // Packets that `ip4-input` or `ip6-input` sends here have no next hop, and no reason that needs one.
    let hop = |packet: &Packet| routes.hops.get(packet.meta().stage.next_hop());
    let reason = DropReason::from_number(packet.meta().drop_reason).unwrap_or(DropReason::NoRoute);
    let error = match reason {
        DropReason::NeighborQueue if is_alive(packet) => {
            Resolver::of(worker).request(hop(packet), packet);
            return Action::Wait;
        }
        DropReason::NeighborQueue | DropReason::TtlExpired => {
            packet.meta_mut().drop_reason = DropReason::TtlExpired as u8;
            IcmpErrorKind::TIME_EXCEEDED
        }
        DropReason::NeighborFailed => {
            let hop = hop(packet);
            if matches!(hop.kind, NextHopKind::Failed | NextHopKind::Resolve) {
                Resolver::of(worker).request(hop, packet);
            }
            IcmpErrorKind::NO_NEIGHBOR
        }
        DropReason::FragNeeded if may_be_fragmented(packet) => return Action::Fragment,
        DropReason::FragNeeded => IcmpErrorKind::too_big(hop(packet).mtu.into()),
        DropReason::NoRoute => IcmpErrorKind::NO_ROUTE,
        DropReason::UnreachableRoute => IcmpErrorKind::UNREACHABLE,
        DropReason::ProhibitedRoute => IcmpErrorKind::PROHIBITED,
        _ => return Action::Send(Edge::Drop),
    };
    Action::Send(ErrorSender::of(worker).make(routes, packet, error))
}

/// Whether the TTL lets a packet go one hop further.
fn is_alive(packet: &Packet) -> bool {
    let at = if packet.meta().kind.l3() == Kind::IP4 { L3 + 8 } else { L3 + 7 };
    packet.data().get(at).is_some_and(|ttl| *ttl > 1)
}

/// Whether the sender lets routers fragment a packet.
fn may_be_fragmented(packet: &Packet) -> bool {
    packet.meta().kind.l3() == Kind::IP4 && packet.data().get(L3 + 6).is_some_and(|flags| flags & 0x40 == 0)
}

/// Makes ICMP errors of packets.
struct ErrorSender<'a> {
    budget: &'a mut ErrorBudget,
    counters: &'a WorkerCounters,
    snapshot: &'a Snapshot,
    sessions: &'a mut Sessions,
    now: u32,
}

impl<'a> ErrorSender<'a> {
    /// The sender of a worker.
    fn of(worker: &'a mut Worker) -> ErrorSender<'a> {
        let Worker { id, shared, snapshot, slow_path, flows, clock, .. } = worker;
        ErrorSender {
            budget: &mut slow_path.errors,
            counters: &shared.workers[*id].counters,
            snapshot,
            sessions: &mut flows.sessions,
            now: clock.now,
        }
    }

    /// Makes an ICMP error of a packet, if one may be sent, and returns the edge.
    fn make(&mut self, routes: &Routes, packet: &mut Packet, error: IcmpErrorKind) -> Edge {
        let (port, reason) = (packet.port(), packet.meta().drop_reason);
        if packet.meta().flags.contains(PacketFlags::OURS) {
            return Edge::Drop;
        }
        let Some(source) = error_source(routes, port, packet.meta().kind.l3()) else { return Edge::Drop };
        if !self.budget.has_some(self.now) {
            self.counters.routing.icmp_suppressed.add(1);
            return Edge::Drop;
        }
        // A packet whose TTL has run out has not been translated.
        let has_passed_rules =
            self.snapshot.path(port) & path::RULES != 0 && reason != DropReason::TtlExpired as u8;
        if self.snapshot.needs_sessions() && has_passed_rules {
            // The sender does not know the translated addresses. Without a translation there is nothing to
            // undo.
            let (head, meta) = packet.data_and_meta();
            let _ = self.sessions.untranslate(head, meta);
        }
        // Parsed again: without rules, only the network header has been parsed.
        let Some(mut meta) = parsed(packet) else { return Edge::Drop };
        if !rewrite_as_icmp_error(packet, &mut meta, error, source) {
            return Edge::Drop;
        }
        meta.flags |= PacketFlags::OURS;
        meta.session = FlowRef::NONE.0;
        meta.out_port = OUT_ROUTED;
        *packet.meta_mut() = meta;
        self.budget.take(self.now);
        self.counters.routing.icmp_errors.add(1);
        self.counters.drops.add(port, reason, 1);
        if self.snapshot.leads_to_broker(port) {
            // Routes know who has the source of the packet, but a broker has used it.
            packet.meta_mut().out_port = port;
            return Edge::Transmit;
        }
        increment_ttl(packet);
        if meta.kind.l3() == Kind::IP4 { Edge::Ip4Lookup } else { Edge::Ip6Lookup }
    }
}

/// The source address of an ICMP error about a packet from `port`: the port's address, else that of another
/// port with the same route table (RFC 1812, 4.3.2.4), as [`rewrite_as_icmp_error`] takes it.
fn error_source(routes: &Routes, port: u16, l3: u8) -> Option<[u8; 16]> {
    let interface = routes.interface(port);
    let table = interface.map_or(0, |interface| interface.table);
    let others = routes.interfaces.iter().flatten().filter(|other| other.table == table);
    let interfaces = || interface.into_iter().chain(others);
    if l3 == Kind::IP4 {
        let [a, b, c, d] = interfaces().find_map(|interface| interface.ip4)?.octets();
        Some([a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    } else {
        interfaces().find_map(|interface| interface.ip6).map(|address| address.octets())
    }
}

/// Adds 1 to the TTL or hop limit of a packet made here, since its route lookup will subtract 1.
fn increment_ttl(packet: &mut Packet) {
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

/// Takes packets that wait or are fragmented out of the graph, and adds the fragments to the walk.
#[cold]
fn take_out(worker: &mut Worker, routes: &Routes, vector: &mut Vector<'_>, actions: &[Action]) {
    vector.extract_if(
        |at| actions[at].is_leaving(),
        |packet| match packet.meta().drop_reason == DropReason::FragNeeded as u8 {
            true => worker.slow_path.oversized.push(packet),
            false => wait(worker, routes, packet),
        },
    );
    while let Some(packet) = worker.slow_path.oversized.pop() {
        fragment(worker, routes, &packet, |fragment| vector.inject(Edge::Ip4Rewrite.number(), fragment));
    }
}

/// Keeps a packet until the Ethernet address of its next hop is known.
fn wait(worker: &mut Worker, routes: &Routes, packet: Mbuf) {
    let hop = routes.hops.get(packet.meta().stage.next_hop());
    let Some(neighbor) = neighbor_of(hop, &packet) else { return };
    let Worker { id, shared, slow_path, clock, .. } = worker;
    let counters = &shared.workers[*id].counters;
    counters.routing.queued.add(1);
    slow_path.waiting.push(packet, neighbor, clock.now, |evicted| {
        counters.drops.add(evicted.port(), DropReason::NeighborQueue as u8, 1);
    });
    counters.routing.waiting.set(slow_path.waiting.len() as u64);
}
