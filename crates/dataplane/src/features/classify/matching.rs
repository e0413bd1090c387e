//! Finds the rules that match the packets of a vector.

use std::net::IpAddr;

use mmb_dpdk::Packet;
use mmb_packet::{Kind, OUT_ROUTED, fill_window};
use mmb_policy::{Batch, Classifier};
use mmb_route::Routes;

use crate::engine::node::vector::VECTOR;
use crate::engine::snapshot::Snapshot;
use crate::features::route::out;

/// Finds the rules that match each packet of a vector.
///
/// `destination` returns where a packet goes after its translation, if that differs from its destination
/// address. It is called if rules test the output port. Returns the IP version of the packets, as
/// [`Kind::l3`] does, if all are to be routed, have one version, and no rule tests the output port.
#[inline]
pub(crate) fn find_matches(
    rules: &Classifier,
    (snapshot, routes): (&Snapshot, &Routes),
    batch: &mut Batch,
    packets: &mut [&mut Packet],
    buffer: &mut Vec<u8>,
    destination: impl Fn(&Packet) -> Option<IpAddr>,
) -> Option<u8> {
    let version = fill_windows(rules.chunks(), (snapshot, routes), batch, packets, destination);
    match_windows(rules, batch, packets, buffer);
    version
}

/// [`find_matches`] for a vector of packets of one version of IP, whose windows are filled.
#[inline]
pub(crate) fn find_matches_of_filled(
    rules: &Classifier,
    snapshot: &Snapshot,
    batch: &mut Batch,
    packets: &[&mut Packet],
    buffer: &mut Vec<u8>,
    version: u8,
) -> Option<u8> {
    match_windows(rules, batch, packets, buffer);
    let are_routed = || packets.iter().all(|packet| snapshot.peer(packet.port()) == OUT_ROUTED);
    (snapshot.all_routed || are_routed()).then_some(version)
}

/// Fills the windows of a vector. Returns what [`find_matches`] does.
#[inline(always)]
fn fill_windows(
    chunks: u8,
    (snapshot, routes): (&Snapshot, &Routes),
    batch: &mut Batch,
    packets: &[&mut Packet],
    destination: impl Fn(&Packet) -> Option<IpAddr>,
) -> Option<u8> {
    let (mut any, mut all, mut routed) = (0, u8::MAX, !snapshot.needs_out_port);
    if snapshot.needs_out_port {
        let outs = out::output_ports(routes, snapshot, packets, destination);
        for ((packet, window), out) in packets.iter().zip(batch.windows.iter_mut()).zip(outs) {
            fill_window(packet.data(), packet.meta(), packet.port(), out, chunks, window);
        }
    } else {
        for (packet, window) in packets.iter().zip(batch.windows.iter_mut()) {
            let (port, kind) = (packet.port(), packet.meta().kind.0);
            let peer = snapshot.peer(port);
            (any, all, routed) = (any | kind, all & kind, routed & (peer == OUT_ROUTED));
            fill_window(packet.data(), packet.meta(), port, peer, chunks, window);
        }
    }
    let (any, all) = (Kind(any).l3(), Kind(all).l3());
    (routed && any == all).then_some(any)
}

/// Finds the rules that match packets whose windows are filled.
#[inline(always)]
fn match_windows(rules: &Classifier, batch: &mut Batch, packets: &[&mut Packet], buffer: &mut Vec<u8>) {
    batch.len = packets.len();
    if rules.needs_bytes() {
        inspect(rules, batch, packets, buffer);
    }
    rules.classify(batch);
}

/// Evaluates rules that look at bytes of packets: for each packet, or for those with TCP options that a rule
/// is about.
#[inline(never)]
fn inspect(rules: &Classifier, batch: &mut Batch, packets: &[&mut Packet], buffer: &mut Vec<u8>) {
    let (mut inspected, mut n) = ([0; VECTOR], 0);
    for (at, window) in batch.windows.iter().enumerate().take(packets.len()) {
        inspected[n % VECTOR] = at;
        n += usize::from(rules.needs_inspection(window));
    }
    for &at in &inspected[..n.min(VECTOR)] {
        let packet = &packets[at];
        // The first buffer has the TCP header, or the packet would not be one of TCP.
        let frame = if packet.nb_segs() == 1 || !rules.needs_payloads() {
            packet.data()
        } else {
            buffer.clear();
            packet.segments().for_each(|segment| buffer.extend_from_slice(segment));
            buffer.as_slice()
        };
        rules.inspect(batch, at, frame, packet.meta());
    }
}
