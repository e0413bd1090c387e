//! Vectors of packets: their size, and loops that prefetch.

use mmb_dpdk::Packet;

/// How many packets ahead of the one at work the caches are told of its bytes; of its header twice as many, for that says
/// where the bytes are.
pub(crate) const AHEAD: usize = 4;

/// Calls `f` with each packet and its position, while packets further on are on their way into the nearest cache.
#[inline(always)]
pub(crate) fn for_each(packets: &mut [&mut Packet], mut f: impl FnMut(usize, &mut Packet)) {
    begin(packets);
    for at in 0..packets.len() {
        ask(packets, at);
        f(at, packets[at]);
    }
}

/// Tells the caches of a vector's first packets.
#[inline(always)]
pub(crate) fn begin(packets: &[&mut Packet]) {
    packets.iter().take(2 * AHEAD).for_each(|packet| packet.prefetch_header());
}

/// Tells the caches of packets further on than the one at a position.
#[inline(always)]
pub(crate) fn ask(packets: &[&mut Packet], at: usize) {
    if let Some(next) = packets.get(at + 2 * AHEAD) {
        next.prefetch_header();
    }
    if let Some(next) = packets.get(at + AHEAD) {
        next.prefetch_data();
    }
}

/// Where the network header of a routed packet begins: frames with VLAN tags are the kernel's.
pub(crate) const ROUTED_L3: usize = 14;

/// Most packets in a vector.
pub(crate) const VECTOR: usize = 256;
