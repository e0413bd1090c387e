//! Passes over a whole vector before its packets are processed: prefetches, and the chain of each packet.

use mmb_flow::{Direction, ScratchpadStarts, SessionId};
use mmb_packet::prefetch;

use super::header::{Header, pads_from};
use super::keyed::NO_ENTRY;
use super::types::SessionAccess;
use crate::Packet;
use crate::program::ir::BodyId;
use crate::set::{Set, VECTOR};
use crate::vector::NO_BASE;

/// Computes the starts of scratchpads, and prefetches them.
#[inline(always)]
pub(super) fn prefetch_pads(
    packets: &[Packet<'_>],
    sessions: &mut impl SessionAccess,
    bases: &mut [u32; VECTOR],
    bytes: usize,
) {
    let (pads, starts) = sessions.pads();
    for (packet, base) in packets.iter().zip(bases) {
        *base = starts.of(packet.session);
        let pad = pads_from(pads, *base);
        prefetch::read(pad);
        for line in (64..bytes).step_by(64) {
            prefetch::read(pad.get(line..).unwrap_or(&[]));
        }
    }
}

/// Reads the chain of each packet's session. Returns whether it is the is_one_chain for all, and the packets
/// in reverse direction.
#[inline(always)]
pub(super) fn read_chains(
    packets: &[Packet<'_>],
    sessions: &mut impl SessionAccess,
    bases: &[u32; VECTOR],
    chains: &mut [(u16, BodyId); VECTOR],
) -> (bool, Set) {
    let (pads, _) = sessions.pads();
    let (mut is_one_chain, mut reverse) = (true, Set::EMPTY);
    let mut first = None;
    for (i, packet) in packets.iter().enumerate() {
        let header = Header::read(pads_from(pads, bases[i]));
        chains[i] = (header.program, header.body);
        is_one_chain &= chains[i] == *first.get_or_insert(chains[i]);
        reverse.insert_if(i, packet.direction == Direction::Reverse);
    }
    (is_one_chain, reverse)
}

/// Computes the starts of the scratchpads of sessions' entries, and prefetches them.
pub(super) fn prefetch_entries(
    set: Set,
    (pads, bases, offset): (&[u8], &[u32; VECTOR], u32),
    (entries, starts): (&[u8], ScratchpadStarts<'_>),
    found: &mut [u32; VECTOR],
) {
    for i in set.iter() {
        let number = pads_from(pads, bases[i]).get(offset as usize..).and_then(<[u8]>::first_chunk);
        let number = number.map_or(NO_ENTRY, |&number| u32::from_ne_bytes(number));
        found[i] = match number {
            NO_ENTRY => NO_BASE,
            number => starts.of(SessionId(number)),
        };
        prefetch::read(pads_from(entries, found[i]));
    }
}
