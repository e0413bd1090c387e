//! `ip4-lookup` and `ip6-lookup`: find the next hop of each packet.
//!
//! Theory of operation. In passes: read the addresses; look the destinations up together; write the next hops' numbers down.
//! What kind of next hop it is, is seen by the next node, which has to read it anyway. Whether some packet of the vector has an
//! address that must not be forwarded (RFC 1812, 5.3.7) is found without a branch, and which one only then. Such an address
//! stops nothing that is for the machine itself: the kernel judges that.

use std::ops::Range;

use mmb_dpdk::{Packet, Vector};
use mmb_packet::{DropReason, Kind, StageWord};
use mmb_route::{NextHopId, NextHopKind, RouteTable, Routes};

use super::hop::{addresses4, addresses6, hop_kind, table};
use crate::engine::vector::{VECTOR, for_each};
use crate::engine::worker::Worker;

pub(crate) const NEXT4: [&str; 3] = ["ip4-rewrite", "punt", "ip-slow"];
pub(crate) const NEXT6: [&str; 3] = ["ip6-rewrite", "punt", "ip-slow"];
const REWRITE: u16 = 0;
const PUNT: u16 = 1;
const SLOW: u16 = 2;

pub(crate) fn process4(worker: &mut Worker, mut vector: Vector<'_>) {
    let (mut from, mut to) = ([0u32; VECTOR], [0u32; VECTOR]);
    for_each(vector.packets(), |at, packet| {
        // A packet without a whole header has not come this far.
        (from[at], to[at]) = addresses4(packet).unwrap_or_default();
    });
    let n = vector.len();
    let odd = from[..n].iter().zip(&to[..n]).fold(false, |odd, (from, to)| odd | is_martian4(*from, *to));
    let mut hops = [0; VECTOR];
    look_up(&worker.routes, vector.packets(), &mut hops[..n], |table, range, hops| {
        table.ip4.lookup_batch(&to[range], hops);
    });
    finish(worker, vector, &hops, odd);
}

pub(crate) fn process6(worker: &mut Worker, mut vector: Vector<'_>) {
    let mut to = [0u128; VECTOR];
    let mut odd = false;
    for_each(vector.packets(), |at, packet| {
        let (source, destination) = addresses6(packet).unwrap_or_default();
        to[at] = destination;
        odd |= is_martian6(source, destination) | is_link_local(destination);
    });
    let n = vector.len();
    let mut hops = [0; VECTOR];
    look_up(&worker.routes, vector.packets(), &mut hops[..n], |table, range, hops| {
        table.ip6.lookup_batch(&to[range], hops);
    });
    finish(worker, vector, &hops, odd);
}

/// Whether a source is of this network, this host, a group, or reserved, or a destination of this network or this host
/// (RFC 1812, 5.3.7). Reserved destinations are routed, as Linux does.
#[inline(always)]
pub(crate) fn is_martian4(source: u32, destination: u32) -> bool {
    (source >> 29 == 7) | is_here4(source) | is_here4(destination)
}

/// 0.0.0.0/8 and 127.0.0.0/8.
#[inline(always)]
fn is_here4(address: u32) -> bool {
    (address >> 24 == 0) | (address >> 24 == 127)
}

/// A group or nobody as the source, nobody as the destination, or this host, or a source that only its own link knows
/// (RFC 4291, 2.5.2, 2.5.3, 2.5.6, 2.7).
#[inline(always)]
fn is_martian6(source: u128, destination: u128) -> bool {
    (source >> 120 == 0xff) | (source <= 1) | is_link_local(source) | (destination <= 1)
}

/// Such a destination is the kernel's, whatever the routes say: never forwarded, and maybe the machine itself.
#[inline(always)]
fn is_link_local(address: u128) -> bool {
    address >> 118 == 0x3fa
}

/// Looks up the destinations of packets by the tables of the ports that they came in by: all together if there is one table.
#[inline(always)]
pub(crate) fn look_up(
    routes: &Routes,
    packets: &[&mut Packet],
    hops: &mut [NextHopId],
    batch: impl Fn(&RouteTable, Range<usize>, &mut [NextHopId]),
) {
    if let Some(table) = routes.single_table() {
        return batch(table, 0..packets.len(), hops);
    }
    let mut first = 0;
    for run in packets.chunk_by(|a, b| a.port() == b.port()) {
        let range = first..first + run.len();
        first = range.end;
        if let Some(table) = run.first().and_then(|packet| table(routes, packet.port())) {
            batch(table, range.clone(), &mut hops[range]);
        }
    }
}

/// Writes the next hops down and sends the packets on.
#[inline(always)]
fn finish(worker: &Worker, mut vector: Vector<'_>, hops: &[NextHopId; VECTOR], odd: bool) {
    for (packet, hop) in vector.packets().iter_mut().zip(hops) {
        packet.meta_mut().stage = StageWord::from_next_hop(*hop);
    }
    if !odd {
        return vector.send_all(REWRITE);
    }
    let n = vector.len();
    let mut edges = [REWRITE; VECTOR];
    for (packet, edge) in vector.packets().iter_mut().zip(&mut edges) {
        *edge = judge(&worker.routes, packet);
    }
    vector.send(&edges[..n]);
}

/// The edge of a packet that may have an address that must not be forwarded.
#[cold]
fn judge(routes: &Routes, packet: &mut Packet) -> u16 {
    let (martian, link_local) = match packet.meta().kind.l3() {
        Kind::IP4 => (addresses4(packet).is_some_and(|(from, to)| is_martian4(from, to)), false),
        _ => {
            addresses6(packet).map_or((false, false), |(from, to)| (is_martian6(from, to), is_link_local(to)))
        }
    };
    if link_local {
        PUNT
    } else if martian && hop_kind(routes, packet) != NextHopKind::Punt {
        packet.meta_mut().drop_reason = DropReason::Martian as u8;
        SLOW
    } else {
        REWRITE
    }
}
