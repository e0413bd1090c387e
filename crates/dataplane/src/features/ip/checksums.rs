//! Completion of transport checksums that a kernel peer left to hardware.

use mmb_dpdk::Packet;
use mmb_packet::checksum;

/// Most segments behind the first one; the checksum of a longer packet is left as it came.
const SEGMENTS: usize = 32;

/// Completes a partial transport checksum. Returns whether there was one. Whoever sends a large frame
/// writes its checksum.
pub(crate) fn complete_checksum(packet: &mut Packet) -> bool {
    if packet.is_large() {
        return false;
    }
    let meta = *packet.meta();
    let (head, segments) = packet.split_first_segment();
    let mut rest: [&[u8]; SEGMENTS] = [&[]; SEGMENTS];
    let mut n = 0;
    for (to, segment) in rest.iter_mut().zip(segments) {
        *to = segment;
        n += 1;
    }
    checksum::complete_partial(head, &rest[..n], &meta)
}
