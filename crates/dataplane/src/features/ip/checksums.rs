//! Completion of transport checksums that a kernel peer left to hardware.

use mmb_dpdk::Packet;
use mmb_packet::checksum;

/// Completes a partial transport checksum. Returns whether there was one. Whoever sends a large frame
/// writes its checksum.
pub(crate) fn complete_checksum(packet: &mut Packet) -> bool {
    if packet.is_large() {
        return false;
    }
    let meta = *packet.meta();
    let (head, rest) = packet.split_first_segment();
    checksum::complete_partial(head, rest, &meta)
}
