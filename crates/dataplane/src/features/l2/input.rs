//! `l2-input`: finds the network header behind Ethernet and VLAN tags, and sends IP packets to their parser.
//!
//! A frame with more VLAN tags than the parser skips may hide a packet; it is dropped where rules apply.
//!
//! On a routed port, frames for other hosts are dropped, and frames that are not plain IP go to the kernel. A
//! frame with a priority tag (VLAN 0) belongs to no VLAN: the tag is removed, as Linux does.

use mmb_dpdk::{Packet, Vector};
use mmb_packet::{DropReason, HEAD_BYTES, Kind, is_vlan_tag, parse_l2};

use crate::engine::config::MAX_PORTS;
use crate::engine::node::edges::{edges, send, send_all};
use crate::engine::node::vector::{ROUTED_L3, VECTOR, for_each_prefetched};
use crate::engine::snapshot::path;
use crate::engine::worker::Worker;

edges! {
    /// The edges of `l2-input`.
    pub(crate) enum Edge {
        Ip4Input => "ip4-input",
        Ip6Input => "ip6-input",
        Wire => "wire-output",
        Drop => "drop",
        Punt => "punt",
    }
}

/// The lower 48 bits, which hold an Ethernet address.
const MAC: u64 = (1 << 48) - 1;

pub(crate) fn process(worker: &mut Worker, mut vector: Vector<'_>) {
    let snapshot = &*worker.snapshot;
    if snapshot.bypass {
        return send_all(vector, Edge::Wire);
    }
    let macs = &worker.routing.macs;
    let mut edges = [Edge::Wire; VECTOR];
    for_each_prefetched(vector.packets(), |at, packet| {
        let path = snapshot.path(packet.port());
        if path != 0 {
            edges[at] = input(packet, path, macs);
        }
    });
    send(vector, &edges);
}

/// Parses the link layer of a packet and returns the edge. `path` is not 0.
#[inline]
fn input(packet: &mut Packet, path: u8, macs: &[u64; MAX_PORTS]) -> Edge {
    if path & path::KERNEL != 0 && !packet.restore_vlan() {
        return drop_for(packet, DropReason::NoBuffer);
    }
    if packet.nb_segs() > 1 && !packet.pull_up(HEAD_BYTES.min(packet.pkt_len())) {
        return drop_for(packet, DropReason::NoBuffer);
    }
    let mut l2 = parse_l2(packet.data());
    if path & path::ROUTED != 0 {
        let to = packet.data().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes) & MAC);
        // What brokers send is for mmb, whatever the kernel takes for the address of its neighbour.
        let mac = match path & path::BROKER {
            0 => macs.get(usize::from(packet.port())).copied().unwrap_or(u64::MAX),
            _ => to,
        };
        if to != mac || usize::from(l2.l3_off) != ROUTED_L3 {
            if to != mac || remove_priority_tags(packet) == 0 {
                return for_other_host(packet, to, mac);
            }
            if has_priority_tag(packet) {
                return drop_for(packet, DropReason::VlanDepth);
            }
            l2 = parse_l2(packet.data());
            if usize::from(l2.l3_off) != ROUTED_L3 {
                return punt(packet);
            }
        }
    }
    let meta = packet.meta_mut();
    meta.ethertype = l2.ethertype;
    meta.l3_off = l2.l3_off;
    match l2.ethertype {
        0x0800 => Edge::Ip4Input,
        0x86dd => Edge::Ip6Input,
        _ if path & path::ROUTED != 0 => punt(packet),
        // The receiver may remove any number of tags (IEEE 802.1Q, priority tags).
        ethertype if path & path::RULES != 0 && is_vlan_tag(ethertype) => {
            drop_for(packet, DropReason::VlanDepth)
        }
        _ => Edge::Wire,
    }
}

/// The edge of a frame on a routed port that has VLAN tags, or another destination than the port's address.
///
/// Multicast and broadcast frames go to the kernel; so do all frames while the port's address is not known.
#[cold]
fn for_other_host(packet: &mut Packet, to: u64, mac: u64) -> Edge {
    let group = to & 1 != 0;
    if to == mac || group || mac > MAC { punt(packet) } else { drop_for(packet, DropReason::OtherHost) }
}

/// Most priority tags that are removed from a frame, which bounds the work for one.
const PRIORITY_TAGS: usize = 4;

/// Removes the outer tags of VLAN 0, which only have a priority (IEEE 802.1Q, 6.9). Returns their number. The
/// kernel accepts such frames as untagged ones, so it must not get them past rules and sessions.
#[cold]
fn remove_priority_tags(packet: &mut Packet) -> usize {
    let mut removed = 0;
    while removed < PRIORITY_TAGS && has_priority_tag(packet) {
        packet.data_mut().copy_within(..12, 4);
        if !packet.adj(4) {
            break;
        }
        removed += 1;
    }
    removed
}

/// Whether the outer tag of a frame is one of VLAN 0.
fn has_priority_tag(packet: &Packet) -> bool {
    let tag: Option<&[u8; 4]> = packet.data().get(12..16).and_then(<[u8]>::first_chunk);
    tag.is_some_and(|&[hi, lo, tci, vlan]| {
        is_vlan_tag(u16::from_be_bytes([hi, lo])) && u16::from_be_bytes([tci, vlan]) & 0x0fff == 0
    })
}

/// The edge of a frame for the kernel that has not been parsed.
fn punt(packet: &mut Packet) -> Edge {
    packet.meta_mut().kind = Kind::default();
    Edge::Punt
}

fn drop_for(packet: &mut Packet, reason: DropReason) -> Edge {
    packet.meta_mut().drop_reason = reason as u8;
    Edge::Drop
}
