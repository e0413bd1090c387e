//! Vectors of packets: their size, and loops that prefetch.

use mmb_dpdk::Packet;

/// Most packets in a vector.
pub(crate) const VECTOR: usize = 256;

/// Where the network header of a routed packet begins: frames with VLAN tags go to the kernel.
pub(crate) const ROUTED_L3: usize = 14;

/// How many packets ahead a packet's bytes are prefetched. Its buffer header, which holds the address of the
/// bytes, is prefetched twice as far ahead.
pub(crate) const AHEAD: usize = 4;

/// Calls `f` with the position of each packet and the packet, and prefetches the packets behind it.
#[inline(always)]
pub(crate) fn for_each_prefetched(packets: &mut [&mut Packet], mut f: impl FnMut(usize, &mut Packet)) {
    prefetch_first(packets);
    for at in 0..packets.len() {
        prefetch_ahead(packets, at);
        f(at, packets[at]);
    }
}

/// Prefetches the buffer headers of a vector's first packets.
#[inline(always)]
pub(crate) fn prefetch_first(packets: &[&mut Packet]) {
    packets.iter().take(2 * AHEAD).for_each(|packet| packet.prefetch_header());
}

/// Prefetches packets behind position `at`.
#[inline(always)]
pub(crate) fn prefetch_ahead(packets: &[&mut Packet], at: usize) {
    if let Some(next) = packets.get(at + 2 * AHEAD) {
        next.prefetch_header();
    }
    if let Some(next) = packets.get(at + AHEAD) {
        next.prefetch_data();
    }
}

/// What tells a packet from all others in the walk: its address.
#[inline(always)]
pub(crate) fn packet_addr(packet: &Packet) -> usize {
    std::ptr::from_ref(packet).addr()
}

/// A vector that a node has sent as a whole to one edge, so that it stays contiguous there. A vector of the
/// next node that begins with the same packet and has the same length therefore holds the same packets. If
/// other packets were queued before or behind, it is another vector.
#[derive(Clone, Copy)]
pub(crate) struct WholeVector {
    /// The version of IP of all packets ([`mmb_packet::Kind::l3`]).
    pub version: u8,
    /// Address of the first packet.
    first: usize,
    len: usize,
}

impl WholeVector {
    /// These packets of one version of IP. None: there is no packet.
    #[inline(always)]
    pub fn new(packets: &[&mut Packet], version: u8) -> Option<WholeVector> {
        packets.first().map(|first| WholeVector { version, first: packet_addr(first), len: packets.len() })
    }

    /// Whether these are the packets of the vector.
    #[inline]
    pub fn is(&self, packets: &[&mut Packet]) -> bool {
        packets.len() == self.len && packets.first().is_some_and(|first| packet_addr(first) == self.first)
    }
}
