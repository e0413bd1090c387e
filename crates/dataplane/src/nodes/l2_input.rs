//! `l2-input`: finds the network header behind Ethernet and VLAN tags and sends IP to its parser.

use mmb_dpdk::{Packet, SERVICE_TAG, SERVICE_TAG_STAND_IN, Vector};
use mmb_packet::{DropReason, HEAD_BYTES, parse_l2};

use crate::nodes::{VECTOR, for_each};
use crate::snapshot::path;
use crate::worker::Worker;

const IP4: u16 = 0;
const IP6: u16 = 1;
const WIRE: u16 = 2;
const DROP: u16 = 3;

pub(crate) fn process(worker: &mut Worker, mut vector: Vector<'_>) {
    let snapshot = &*worker.snapshot;
    if snapshot.straight {
        return vector.send_all(WIRE);
    }
    let n = vector.len();
    let mut edges = [WIRE; VECTOR];
    for_each(vector.packets(), |at, packet| {
        let path = snapshot.path(packet.port());
        if path != 0 {
            edges[at] = input(packet, path);
        }
    });
    vector.send(&edges[..n]);
}

/// Parses the link layer of a packet whose port asks for a look, and returns its edge.
#[inline]
fn input(packet: &mut Packet, path: u8) -> u16 {
    if path & path::STAND_IN != 0
        && let Some(ethertype) = packet.data_mut().get_mut(12..14)
        && *ethertype == SERVICE_TAG_STAND_IN
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
    let meta = packet.meta_mut();
    meta.ethertype = l2.ethertype;
    meta.l3_off = l2.l3_off;
    match l2.ethertype {
        0x0800 => IP4,
        0x86dd => IP6,
        _ => WIRE,
    }
}

fn drop_for(packet: &mut Packet, reason: DropReason) -> u16 {
    packet.meta_mut().drop_reason = reason as u8;
    DROP
}
