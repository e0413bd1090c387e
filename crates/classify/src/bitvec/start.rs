//! What the dimensions say about all packets of a vector at once.
//!
//! Theory of operation. Many fields (TTL, traffic class, length) are equal in the packets of a vector, or
//! nearly so. The bits that are set in all packets and those that are set in any bound the values of a field.
//! If only a few intervals lie between these bounds, then entries that accept none of them are excluded for
//! all packets. If it is one interval, the dimension is applied completely. Often no entry remains.

use bytemuck::{cast, cast_ref};
use mmb_packet::Window;
use mmb_packet::window::CHUNKS;

use super::dimension::Dimension;
use super::lanes::{LaneBlock, LaneSet};
use crate::vector::{LookupPacket, VECTOR};

/// Number of 64-bit words in a window.
const WORDS: usize = 2 * CHUNKS;

/// The entries that remain for some packets, and the dimensions that can exclude more of them.
#[derive(Clone, Debug)]
pub(super) struct SharedStart {
    pub lanes: LaneSet,
    /// The dimensions that are left, as a bit set.
    pub dims: u32,
    /// The dimensions whose field all packets have, as a bit set.
    pub present: u32,
}

impl SharedStart {
    /// Applies `dims` as far as they say the same about all packets, whose common bits are `bounds`. Returns
    /// false if no entry remains.
    #[inline(always)]
    pub fn apply(&mut self, dims: &[Dimension], (least, most): (&Window, &Window), blocks: usize) -> bool {
        let lanes = &mut self.lanes.blocks_mut()[..blocks];
        for (at, dim) in dims.iter().enumerate() {
            let bit = 1 << at;
            if dim.restricted(lanes, self.present & bit != 0) == 0 {
                self.dims &= !bit;
                continue;
            }
            match dim.field.present.holds_between(least, most) {
                None => continue,
                Some(true) => self.present |= bit,
                Some(false) => {}
            }
            if dim.exclude_between(least, most, lanes) {
                self.dims &= !bit;
            }
            if lanes.iter().all(LaneBlock::is_empty) {
                return false;
            }
        }
        true
    }
}

/// Writes the windows of the packets with indexes `own`. Returns the bits that are set in all of them, and
/// those that are set in any. A field's value in a packet is between its values in these two.
#[inline(always)]
pub(super) fn common_bits<'a>(
    packets: &[LookupPacket<'a>],
    own: &[u8],
    windows: &mut [&'a Window; VECTOR],
) -> (Window, Window) {
    let (mut all, mut any) = ([u64::MAX; WORDS], [0; WORDS]);
    for (place, at) in windows.iter_mut().zip(own) {
        *place = packets[usize::from(*at)].window;
        let words: &[u64; WORDS] = cast_ref(&place.chunk);
        for i in 0..WORDS {
            all[i] &= words[i];
            any[i] |= words[i];
        }
    }
    (Window { chunk: cast(all) }, Window { chunk: cast(any) })
}
