//! Passes over a whole vector: what is to be known of all its packets before the first is looked at, and memory that is
//! waited for together.

use mmb_flow::Direction;
use mmb_packet::prefetch;

use super::SessionAccess;
use super::header::{Header, at};
use super::keyed::NO_ENTRY;
use crate::Packet;
use crate::program::ir::BodyNo;
use crate::set::{Set, VECTOR};
use crate::vector::NO_BASE;

/// Finds where scratchpads begin, and asks for them.
#[inline(always)]
pub(super) fn find_pads(
    packets: &[Packet<'_>],
    ground: &mut impl SessionAccess,
    bases: &mut [u32; VECTOR],
    bytes: usize,
) {
    let (pads, stride) = ground.pads();
    let stride = stride / 8;
    for (packet, base) in packets.iter().zip(bases) {
        *base = u32::try_from(packet.session.0 as usize * stride).unwrap_or(NO_BASE);
        let pad = at(pads, *base);
        prefetch::read(pad);
        for line in (64..bytes).step_by(64) {
            prefetch::read(pad.get(line..).unwrap_or(&[]));
        }
    }
}

/// Finds which chain each packet's session goes through: whether it is the same one for all, and which packets are those of
/// the other sides.
#[inline(always)]
pub(super) fn find_chains(
    packets: &[Packet<'_>],
    ground: &mut impl SessionAccess,
    bases: &[u32; VECTOR],
    who: &mut [(u16, BodyNo); VECTOR],
) -> (bool, Set) {
    let (pads, _) = ground.pads();
    let (mut same, mut backs) = (true, Set::EMPTY);
    let mut first = None;
    for (i, packet) in packets.iter().enumerate() {
        let header = Header::of(at(pads, bases[i]));
        who[i] = (header.program, header.body);
        same &= who[i] == *first.get_or_insert(who[i]);
        backs.insert_if(i, packet.direction == Direction::Reverse);
    }
    (same, backs)
}

/// Finds the scratchpads of sessions' entries, and asks for them.
pub(super) fn find_entries(
    set: Set,
    (pads, bases, offset): (&[u8], &[u32; VECTOR], u32),
    (entries, stride): (&[u8], usize),
    found: &mut [u32; VECTOR],
) {
    for i in set.iter() {
        let number = at(pads, bases[i]).get(offset as usize..).and_then(<[u8]>::first_chunk);
        let number = number.map_or(NO_ENTRY, |&number| u32::from_ne_bytes(number));
        found[i] = match number {
            NO_ENTRY => NO_BASE,
            number => u32::try_from(number as usize * (stride / 8)).unwrap_or(NO_BASE),
        };
        prefetch::read(at(entries, found[i]));
    }
}
