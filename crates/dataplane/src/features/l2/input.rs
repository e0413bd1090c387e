//! `l2-input`: finds the network header behind Ethernet and VLAN tags and sends IP to its parser. On a routed port, what is for
//! others than the port is dropped, and what is not plain IP is the kernel's.

use mmb_dpdk::{Packet, SERVICE_TAG, SERVICE_TAG_PLACEHOLDER, Vector};
use mmb_packet::{DropReason, HEAD_BYTES, Kind, parse_l2};

use crate::engine::config::MAX_PORTS;
use crate::engine::snapshot::path;
use crate::engine::vector::{ROUTED_L3, VECTOR, for_each};
use crate::engine::worker::Worker;

const IP4: u16 = 0;
const IP6: u16 = 1;
const WIRE: u16 = 2;
const DROP: u16 = 3;
const PUNT: u16 = 4;
pub(crate) const NEXT: [&str; 5] = ["ip4-input", "ip6-input", "wire-output", "drop", "punt"];

/// The lower 48 bits: an Ethernet address, as [`Worker::macs`] has it.
const MAC: u64 = (1 << 48) - 1;

pub(crate) fn process(worker: &mut Worker, mut vector: Vector<'_>) {
    let snapshot = &*worker.snapshot;
    if snapshot.straight {
        return vector.send_all(WIRE);
    }
    let n = vector.len();
    let macs = &worker.macs;
    let mut edges = [WIRE; VECTOR];
    for_each(vector.packets(), |at, packet| {
        let path = snapshot.path(packet.port());
        if path != 0 {
            edges[at] = input(packet, path, macs);
        }
    });
    vector.send(&edges[..n]);
}

/// Parses the link layer of a packet whose port asks for a look, and returns its edge.
#[inline]
fn input(packet: &mut Packet, path: u8, macs: &[u64; MAX_PORTS]) -> u16 {
    if path & path::STAND_IN != 0
        && let Some(ethertype) = packet.data_mut().get_mut(12..14)
        && *ethertype == SERVICE_TAG_PLACEHOLDER
    {
        ethertype.copy_from_slice(&SERVICE_TAG);
    }
    if path & path::KERNEL != 0 && !packet.restore_vlan() {
        return drop_for(packet, DropReason::NoBuffer);
    }
    if packet.nb_segs() > 1 && !packet.pull_up(HEAD_BYTES.min(packet.pkt_len())) {
        return drop_for(packet, DropReason::NoBuffer);
    }
    let l2 = parse_l2(packet.data());
    if path & path::ROUTED != 0 {
        let mac = macs.get(usize::from(packet.port())).copied().unwrap_or(u64::MAX);
        let to = packet.data().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes) & MAC);
        if to != mac || usize::from(l2.l3_off) != ROUTED_L3 {
            return stray(packet, to, mac);
        }
    }
    let meta = packet.meta_mut();
    meta.ethertype = l2.ethertype;
    meta.l3_off = l2.l3_off;
    match l2.ethertype {
        0x0800 => IP4,
        0x86dd => IP6,
        _ if path & path::ROUTED != 0 => punt(packet),
        _ => WIRE,
    }
}

/// A frame that came in by a routed port and is not for it, or has tags: everybody's frames are the kernel's, and all are as
/// long as it has not said which are for us.
#[cold]
fn stray(packet: &mut Packet, to: u64, mac: u64) -> u16 {
    let group = to & 1 != 0;
    if to == mac || group || mac > MAC { punt(packet) } else { drop_for(packet, DropReason::OtherHost) }
}

/// The edge of a frame for the kernel, of which nothing but that is known.
fn punt(packet: &mut Packet) -> u16 {
    packet.meta_mut().kind = Kind::default();
    PUNT
}

fn drop_for(packet: &mut Packet, reason: DropReason) -> u16 {
    packet.meta_mut().drop_reason = reason as u8;
    DROP
}
