//! TCP options that depend on the numbers of a connection.

use mmb_packet::tcp_options;
use mmb_stream::{Splices, is_after};

use crate::Packet;
use crate::tcp_segment::FIXED;

const NOP: u8 = 1;
const MSS: u8 = 2;
pub(super) const SACK: u8 = 5;
/// Signatures of segments (RFC 2385, RFC 5925).
const MD5: u8 = 19;
const AO: u8 = 29;
/// Multipath TCP (RFC 8684).
const MPTCP: u8 = 30;
/// Bytes of a block of a selective acknowledgement (RFC 2018).
pub(super) const BLOCK: usize = 8;
/// Most blocks.
const BLOCKS: usize = 4;

/// Whether the segments of a connection are signed, from an option of one of them.
pub(super) fn is_signed(packet: &Packet<'_>) -> bool {
    tcp_options(packet.head, packet.meta).any(|option| matches!(option.kind, MD5 | AO))
}

/// Whether a segment with this acknowledgement number acknowledges bytes behind it, too. Blocks in front of
/// the number tell of duplicates (RFC 2883).
pub(super) fn selects_behind(packet: &Packet<'_>, ack: u32) -> bool {
    let end = |block: &[u8]| block.last_chunk().map(|end| u32::from_be_bytes(*end));
    tcp_options(packet.head, packet.meta)
        .filter(|option| option.kind == SACK)
        .flat_map(|option| option.data.chunks_exact(BLOCK).filter_map(end))
        .any(|end| is_after(end, ack))
}

/// Whether a connection has several paths, from an option of one of its segments.
pub(super) fn has_mptcp(packet: &Packet<'_>) -> bool {
    tcp_options(packet.head, packet.meta).any(|option| option.kind == MPTCP)
}

/// Returns the greatest segment that the sender of a SYN accepts.
pub(super) fn mss(packet: &Packet<'_>) -> Option<u16> {
    let option = tcp_options(packet.head, packet.meta).find(|option| option.kind == MSS)?;
    Some(u16::from_be_bytes(option.data.try_into().ok()?))
}

/// Replaces the options of Multipath TCP in a SYN by nothing, so that both ends use one path.
pub(super) fn remove_mptcp(packet: &mut Packet<'_>) {
    while let Some((at, len)) = tcp_options(packet.head, packet.meta)
        .find(|option| option.kind == MPTCP)
        .map(|option| (FIXED + option.at, option.data.len() + 2))
    {
        let nothing = [NOP; 40];
        if !packet.write_l4(at, &nothing[..len.min(40)]) {
            return;
        }
    }
}

/// Translates the blocks of a selective acknowledgement of a direction. Blocks of which nothing is left are
/// removed.
pub(super) fn translate_sack(packet: &mut Packet<'_>, splices: &Splices, number: u32, direction: usize) {
    let found = tcp_options(packet.head, packet.meta).find(|option| option.kind == SACK);
    let Some((at, data)) = found.map(|option| (FIXED + option.at + 2, option.data)) else { return };
    let number_at = |bytes: &[u8]| bytes.first_chunk().map_or(0, |&number| u32::from_be_bytes(number));
    let (mut new, mut len) = ([NOP; BLOCKS * BLOCK], 0);
    for block in data.chunks_exact(BLOCK).take(BLOCKS) {
        let block = (number_at(block), number_at(&block[4..]));
        if let Some((from, to)) = splices.selected(number, direction, block) {
            new[len..len + 4].copy_from_slice(&from.to_be_bytes());
            new[len + 4..len + BLOCK].copy_from_slice(&to.to_be_bytes());
            len += BLOCK;
        }
    }
    let old = data.len().min(new.len());
    if data.get(..old) == Some(&new[..old]) {
        return;
    }
    let head = if len == 0 { [NOP, NOP] } else { [SACK, len as u8 + 2] };
    packet.write_l4(at - 2, &head);
    packet.write_l4(at, &new[..old]);
}
