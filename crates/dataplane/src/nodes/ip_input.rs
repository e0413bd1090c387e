//! `ip4-input` and `ip6-input`: the one parse of a packet's headers, and the choice of the flow's worker.

use mmb_dpdk::{Packet, Vector};
use mmb_packet::{DropReason, Meta, checksum, parse_ip4, parse_ip6};

use crate::nodes::{VECTOR, for_each};
use crate::snapshot::{Snapshot, path};
use crate::worker::Worker;

/// Where packets go that rules apply to: the one edge or the other, as the snapshot says.
pub(crate) const CLASSIFY: u16 = 0;
/// The same, if the rules need sessions.
pub(crate) const FLOW_LOOKUP: u16 = 4;
const WIRE: u16 = 1;
const DROP: u16 = 2;
const HANDOFF: u16 = 3;
/// Segments behind the first one that a checksum is completed over; a frame of more is left as it came.
const SEGMENTS: usize = 32;

pub(crate) fn process4(worker: &mut Worker, vector: Vector<'_>) {
    process(worker, vector, parse_ip4);
}

pub(crate) fn process6(worker: &mut Worker, vector: Vector<'_>) {
    process(worker, vector, parse_ip6);
}

#[inline(always)]
fn process(
    worker: &mut Worker,
    mut vector: Vector<'_>,
    parse: impl Fn(&[u8], usize, &mut Meta) -> Result<(), DropReason>,
) {
    let snapshot = &*worker.snapshot;
    let n = vector.len();
    let rules = snapshot.rules;
    let mut edges = [rules; VECTOR];
    let mut repairs = 0;
    for_each(vector.packets(), |at, packet| {
        let length = packet.pkt_len();
        let (data, meta) = packet.data_and_meta();
        let parsed = parse(data, length, meta);
        let hash = meta.flow_hash;
        let path = snapshot.path(packet.port());
        if path & path::KERNEL != 0 && parsed.is_ok() {
            repairs += u64::from(finish_checksum(packet));
        }
        edges[at] = match parsed {
            Err(reason) => malformed(packet, snapshot, reason),
            Ok(()) if path & path::RULES == 0 => WIRE,
            Ok(()) => match worker.owner_of_flow(hash) {
                owner if owner == worker.id => rules,
                owner => hand_off(packet, owner),
            },
        };
    });
    worker.counters().repairs.add(repairs);
    vector.send(&edges[..n]);
}

/// Marks a packet for another worker.
#[inline]
fn hand_off(packet: &mut Packet, owner: usize) -> u16 {
    packet.meta_mut().out_port = owner as u16;
    HANDOFF
}

/// Completes a transport checksum that a kernel peer left to hardware that is not there.
fn finish_checksum(packet: &mut Packet) -> bool {
    let meta = *packet.meta();
    let (head, segments) = packet.head_and_rest();
    let mut rest: [&[u8]; SEGMENTS] = [&[]; SEGMENTS];
    let mut n = 0;
    for (to, segment) in rest.iter_mut().zip(segments) {
        *to = segment;
        n += 1;
    }
    checksum::complete_partial(head, &rest[..n], &meta)
}

/// A packet whose IP header is wrong: dropped where rules apply, since nobody can say that it complies with them, and
/// passed on by a plain wire. A frame that the kernel cut because it is too large for any buffer is damaged and goes.
#[cold]
fn malformed(packet: &mut Packet, snapshot: &Snapshot, reason: DropReason) -> u16 {
    let cut = snapshot.port(packet.port()).is_some_and(|port| packet.pkt_len() >= port.max_frame());
    let truncated = matches!(reason, DropReason::Ip4Truncated | DropReason::Ip6Truncated);
    let reason = if cut && truncated { DropReason::GsoFrame } else { reason };
    if reason != DropReason::GsoFrame && snapshot.path(packet.port()) & path::RULES == 0 {
        return WIRE;
    }
    packet.meta_mut().drop_reason = reason as u8;
    DROP
}
