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
