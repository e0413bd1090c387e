//! `ip4-lookup` and `ip6-lookup`: find the next hop of each packet.
//!
//! Theory of operation. The nodes work in passes: read the addresses, look up all destinations together,
//! write the numbers of the next hops. The next node reads the next hop anyway, so only that node tests its
//! kind. A branch-free test finds whether some packet of the vector has an address that must not be forwarded
//! (RFC 1812, 5.3.7); only then is each packet tested. Packets for the machine itself go to the kernel even
//! with such an address.

use mmb_dpdk::{Packet, Vector};
use mmb_packet::{DropReason, Kind, StageWord};
use mmb_route::{NextHopId, NextHopKind, Routes};

use super::martian::{is_link_local, is_martian4, is_martian6};
use super::next_hop::{addresses4, addresses6, next_hop_kind};
use super::table_lookup::look_up;
use crate::engine::node::edges::{OWN_REWRITE, edges, send, send_all};
use crate::engine::node::vector::{VECTOR, for_each_prefetched};
use crate::engine::worker::Worker;

edges! {
    /// The edges of both nodes.
    pub(crate) enum Edge {
        /// To the rewrite of the node's own IP version.
        Rewrite => OWN_REWRITE,
        Punt => "punt",
        Slow => "ip-slow",
    }
}

pub(crate) fn process4(worker: &mut Worker, mut vector: Vector<'_>) {
    let (mut from, mut to) = ([0u32; VECTOR], [0u32; VECTOR]);
    for_each_prefetched(vector.packets(), |at, packet| {
        // `ip4-input` has dropped packets without a whole header.
        (from[at], to[at]) = addresses4(packet).unwrap_or_default();
    });
    let n = vector.len();
    let odd = from[..n].iter().zip(&to[..n]).fold(false, |odd, (from, to)| odd | is_martian4(*from, *to));
    let mut hops = [0; VECTOR];
    look_up(&worker.routing.routes, vector.packets(), &mut hops[..n], |table, range, hops| {
        table.ip4.lookup_batch(&to[range], hops);
    });
    finish(worker, vector, &hops, odd);
}

pub(crate) fn process6(worker: &mut Worker, mut vector: Vector<'_>) {
    let mut to = [0u128; VECTOR];
    let mut odd = false;
    for_each_prefetched(vector.packets(), |at, packet| {
        let (source, destination) = addresses6(packet).unwrap_or_default();
        to[at] = destination;
        odd |= is_martian6(source, destination) | is_link_local(destination);
    });
    let n = vector.len();
    let mut hops = [0; VECTOR];
    look_up(&worker.routing.routes, vector.packets(), &mut hops[..n], |table, range, hops| {
        table.ip6.lookup_batch(&to[range], hops);
    });
    finish(worker, vector, &hops, odd);
}

/// Writes the next hops into the metadata and sends the packets on.
#[inline(always)]
fn finish(worker: &Worker, mut vector: Vector<'_>, hops: &[NextHopId; VECTOR], odd: bool) {
    for (packet, hop) in vector.packets().iter_mut().zip(hops) {
        packet.meta_mut().stage = StageWord::from_next_hop(*hop);
    }
    if !odd {
        return send_all(vector, Edge::Rewrite);
    }
    let mut edges = [Edge::Rewrite; VECTOR];
    for (packet, edge) in vector.packets().iter_mut().zip(&mut edges) {
        *edge = odd_address_edge(&worker.routing.routes, packet);
    }
    send(vector, &edges);
}

/// The edge of a packet that may have an address that must not be forwarded.
#[cold]
fn odd_address_edge(routes: &Routes, packet: &mut Packet) -> Edge {
    let (martian, link_local) = match packet.meta().kind.l3() {
        Kind::IP4 => (addresses4(packet).is_some_and(|(from, to)| is_martian4(from, to)), false),
        _ => {
            addresses6(packet).map_or((false, false), |(from, to)| (is_martian6(from, to), is_link_local(to)))
        }
    };
    if link_local {
        Edge::Punt
    } else if martian && next_hop_kind(routes, packet) != NextHopKind::Punt {
        packet.meta_mut().drop_reason = DropReason::Martian as u8;
        Edge::Slow
    } else {
        Edge::Rewrite
    }
}
