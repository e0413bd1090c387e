//! Marks of packets by flow rules of ports.

use mmb_dpdk::Packet;
use mmb_packet::{Kind, PacketFlags};

/// Whether a packet needs no session: it carries `mark`, and is a whole TCP or UDP packet.
#[inline]
pub(crate) fn is_sessionless(packet: &Packet, mark: u32) -> bool {
    let meta = packet.meta();
    let is_whole =
        !meta.flags.contains(PacketFlags::FRAGMENT) && matches!(meta.kind.l4(), Kind::TCP | Kind::UDP);
    packet.mark() == Some(mark) && is_whole
}
