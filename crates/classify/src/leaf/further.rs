//! Conditions of a block's entries beyond the compared chunk: further words of the window, and ranges of
//! fields.

use bytemuck::cast_ref;
use mmb_packet::Window;
use mmb_packet::window::{CHUNK, CHUNKS};
use wide::u32x4;

use super::block::QUAD;
use super::comparable::{Comparable, FieldRange};
use crate::pattern::{MaskedKey, WordReader};
use crate::vector::VectorSummary;

/// Number of words in a chunk and in a window.
const CHUNK_WORDS: usize = CHUNK / 4;
const WORDS: usize = CHUNKS * CHUNK_WORDS;
/// Maximum number of groups of four entries in a block.
const MAX_QUADS: usize = 4;

/// A word of the window that some entries of a block have a condition on.
#[derive(Clone, Debug)]
pub(crate) struct FurtherWord<const N: usize> {
    /// Masks and keys by entry. Entries without a condition on the word have zeros.
    pub mask: [u32; N],
    pub key: [u32; N],
    /// Index of the word.
    at: u8,
}

impl<const N: usize> FurtherWord<N> {
    /// The word of a packet.
    #[inline(always)]
    pub fn of(&self, window: &Window) -> u32 {
        cast_ref::<_, [u32; WORDS]>(&window.chunk)[usize::from(self.at) % WORDS]
    }
}

/// A field that some entries of a block restrict to a range of values.
#[repr(align(64))]
#[derive(Clone, Debug)]
pub(crate) struct FurtherRange<const N: usize> {
    /// The bounds by entry, as in [`FieldRange`]. Entries without a condition on the field accept all values.
    pub low: [u32; N],
    pub span: [u32; N],
    reader: WordReader,
}

impl<const N: usize> FurtherRange<N> {
    /// The field's value in a packet.
    #[inline(always)]
    pub fn of(&self, window: &Window) -> u32 {
        self.reader.read(window) as u32
    }
}

/// The further conditions of a block. Most blocks have none.
#[derive(Clone, Debug)]
pub(crate) struct Further<const N: usize>(Option<Box<Conditions<N>>>);

#[derive(Clone, Debug, Default)]
struct Conditions<const N: usize> {
    words: Vec<FurtherWord<N>>,
    ranges: Vec<FurtherRange<N>>,
}

impl<const N: usize> Further<N> {
    /// No conditions.
    pub const NONE: Self = Further(None);

    /// Adds the conditions of the entry in `lane` beyond those of the compared chunk. The conditions that all
    /// IP packets satisfy are left out. Returns whether there are any.
    pub fn add(&mut self, lane: usize, entry: &Comparable, compared: usize) -> bool {
        let mask = std::array::from_fn(|chunk| {
            if chunk == compared { 0 } else { entry.cover.mask()[chunk] & !MaskedKey::IP.mask()[chunk] }
        });
        let keys = cast_ref::<_, [u32; WORDS]>(entry.cover.key());
        let masks = cast_ref::<_, [u32; WORDS]>(&mask);
        for at in (0..WORDS).filter(|&at| masks[at] != 0) {
            let words = &mut self.0.get_or_insert_default().words;
            let index = words.iter().position(|word| usize::from(word.at) == at).unwrap_or_else(|| {
                words.push(FurtherWord { mask: [0; N], key: [0; N], at: at as u8 });
                words.len() - 1
            });
            (words[index].mask[lane], words[index].key[lane]) = (masks[at], keys[at] & masks[at]);
        }
        let ranges = entry.further_ranges(compared);
        ranges.iter().for_each(|range| self.add_range(lane, range));
        mask != [0; CHUNKS] || !ranges.is_empty()
    }

    fn add_range(&mut self, lane: usize, &FieldRange { reader, low, span }: &FieldRange) {
        let ranges = &mut self.0.get_or_insert_default().ranges;
        let is_free = |range: &FurtherRange<N>| (range.low[lane], range.span[lane]) == (0, u32::MAX);
        let index = ranges.iter().position(|range| range.reader == reader && is_free(range));
        let index = index.unwrap_or_else(|| {
            ranges.push(FurtherRange { low: [0; N], span: [u32::MAX; N], reader });
            ranges.len() - 1
        });
        (ranges[index].low[lane], ranges[index].span[lane]) = (low, span);
    }

    #[inline(always)]
    pub fn words(&self) -> &[FurtherWord<N>] {
        self.0.as_deref().map_or(&[], |conditions| &conditions.words)
    }

    #[inline(always)]
    pub fn ranges(&self) -> &[FurtherRange<N>] {
        self.0.as_deref().map_or(&[], |conditions| &conditions.ranges)
    }

    /// The lanes that satisfy all conditions, as bits. It is not inlined, so that loops over packets of which
    /// few come here stay small.
    #[inline(never)]
    pub fn agreeing_lanes(&self, window: &Window) -> u32 {
        let mut differ = [u32x4::ZERO; MAX_QUADS];
        let four = |words: &[u32; N], quad: usize| u32x4::new(words.as_chunks().0[quad]);
        for word in self.words() {
            let own = u32x4::splat(word.of(window));
            for (quad, differ) in differ.iter_mut().take(N / QUAD).enumerate() {
                *differ |= own & four(&word.mask, quad) ^ four(&word.key, quad);
            }
        }
        for range in self.ranges() {
            let own = u32x4::splat(range.of(window));
            for (quad, differ) in differ.iter_mut().take(N / QUAD).enumerate() {
                let (low, span) = (four(&range.low, quad), four(&range.span, quad));
                *differ |= (own - low).max(span) ^ span;
            }
        }
        let lanes = differ.iter().take(N / QUAD).enumerate();
        lanes.fold(0, |lanes, (quad, differ)| {
            lanes | differ.simd_eq(u32x4::ZERO).to_bitmask() << (quad * QUAD)
        })
    }

    /// The lanes whose ranges no packet of a vector satisfies, as bits.
    pub fn excluded_lanes(&self, summary: &VectorSummary) -> u32 {
        let (least, most) = summary.ends();
        let mut excluded = 0;
        for range in self.ranges() {
            let (least, most) = (range.of(&least), range.of(&most));
            for (lane, (low, span)) in range.low.iter().zip(&range.span).enumerate() {
                let is_outside = least.wrapping_sub(*low) > *span && !(least < *low && *low <= most);
                excluded |= u32::from(is_outside) << lane;
            }
        }
        excluded
    }

    /// The chunks that ranges read, as a bit set.
    pub fn range_chunks(&self) -> u8 {
        self.ranges().iter().fold(0, |chunks, range| chunks | 1 << range.reader.chunk())
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        let conditions = self.0.as_ref().map_or(0, |_| size_of::<Conditions<N>>());
        conditions + size_of_val(self.words()) + size_of_val(self.ranges())
    }
}

#[cfg(test)]
mod tests;
