//! Passes over a whole vector before its packets are processed: the chain of each packet, and prefetches.

use mmb_flow::{Direction, ScratchpadStarts, SessionId};
use mmb_packet::prefetch;

use super::header::{Header, pads_from};
use super::keyed::NO_ENTRY;
use super::types::SessionAccess;
use crate::Packet;
use crate::program::ir::BodyId;
use crate::set::{Set, VECTOR};
use crate::vector::NO_BASE;

/// Computes the starts of scratchpads, and reads the chain of each packet's session. Returns whether it is
/// one chain for all, and the packets in reverse direction.
#[inline(always)]
pub(super) fn read_chains(
    packets: &[Packet<'_>],
    sessions: &mut impl SessionAccess,
    bases: &mut [u32; VECTOR],
    chains: &mut [(u16, BodyId); VECTOR],
) -> (bool, Set) {
    let (pads, starts) = sessions.pads();
    let lookup = |session| {
        let base = starts.of(session);
        let header = Header::read(pads_from(pads, base));
        (session, base, (header.program, header.body))
    };
    let Some(first) = packets.first().map(|packet| lookup(packet.session)) else { return (true, Set::EMPTY) };
    let (mut is_one_chain, mut last) = (true, first);
    let reverse = Set::of(packets.len(), |i| {
        let packet = &packets[i];
        // Packets of a session often follow each other.
        if packet.session != last.0 {
            last = lookup(packet.session);
            is_one_chain &= last.2 == first.2;
        }
        (_, bases[i], chains[i]) = last;
        packet.direction == Direction::Reverse
    });
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
