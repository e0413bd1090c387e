//! `l2-input`: finds the network header behind Ethernet and VLAN tags and sends IP to its parser.

use mmb_dpdk::{Packet, Vector};
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
    if path & path::KERNEL != 0 && packet.vlan_stripped() && !restore_tag(packet) {
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

/// Puts a VLAN tag back that the kernel took out of the frame. A packet socket's driver gives the tag but not its
/// protocol: an outer tag, with another one behind it, is a service tag (IEEE 802.1ad), any other an ordinary one.
#[cold]
fn restore_tag(packet: &mut Packet) -> bool {
    if !packet.restore_vlan() {
        return false;
    }
    if let Some([outer_0, outer_1, _, _, 0x81, 0x00]) = packet.data_mut().get_mut(12..18) {
        (*outer_0, *outer_1) = (0x88, 0xa8);
    }
    true
}

fn drop_for(packet: &mut Packet, reason: DropReason) -> u16 {
    packet.meta_mut().drop_reason = reason as u8;
    DROP
}
