//! The last pass: comparing packets with entries. And the choice of the packets that need it.

use mmb_packet::Window;

use super::{Comparison, Walk};
use crate::leaf::{Block4, Block16, first_words};
#[cfg(target_arch = "x86_64")]
use crate::lookup::avx512;
use crate::lookup::head_hits::HeadHits;
use crate::vector::VECTOR;

impl Walk<'_> {
    /// Collects the heads that have keys in some of the `tables`, or agree with an entry of the root's leaf;
    /// returns their number. No other head can match.
    #[allow(unsafe_code)]
    pub(super) fn select_heads(&self, tables: &[u64; VECTOR], active: &mut [u16; VECTOR]) -> usize {
        #[cfg(target_arch = "x86_64")]
        if self.avx512.is_some() {
            // SAFETY: an `Avx512` exists only if the processor has the instructions.
            return unsafe { self.select_heads_avx512(tables, active) };
        }
        let mut n = 0;
        for (head, tables) in tables[..self.heads.len()].iter().enumerate() {
            let window = self.window(head);
            let is_in_leaf = self.can_match_leaf(window) && self.leaf.agreeing_lanes(window) != 0;
            active[n % VECTOR] = head as u16;
            n += usize::from((*tables != 0) | is_in_leaf);
        }
        n
    }

    /// [`Walk::select_heads`] with AVX-512; the caller needs an [`Avx512`](crate::vector::Avx512). It goes
    /// block by block, without the pre-filter, which costs as much as a block.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,bmi2,popcnt")]
    fn select_heads_avx512(&self, tables: &[u64; VECTOR], active: &mut [u16; VECTOR]) -> usize {
        let (mut lanes, heads) = ([0; VECTOR], (self.heads.len(), |head: usize| self.window(head)));
        if let Some(block) = self.leaf.narrow {
            avx512::compare4_with_all(block, heads, &mut lanes);
        }
        for block in self.leaf.wide() {
            avx512::compare16_with_all(block, heads, &mut lanes);
        }
        avx512::collect_nonzero(self.heads.len(), (tables, &lanes), active)
    }

    /// Compares some heads with the blocks of the root's leaf and with the entries of their comparisons.
    #[allow(unsafe_code)]
    pub(super) fn compare(&self, heads: &[u16], comparisons: &[Comparison<'_>], hits: &mut HeadHits) {
        #[cfg(target_arch = "x86_64")]
        if self.avx512.is_some() {
            // SAFETY: an `Avx512` exists only if the processor has the instructions.
            return unsafe { self.compare_avx512(heads, comparisons, hits) };
        }
        self.compare_with(
            (heads, comparisons, hits),
            |window| first_words(window.chunk[0]),
            |block, first, window| block.agreeing_lanes(first, window),
            |block, first, window| block.agreeing_lanes(first, window),
            |hits, lanes, slots| hits.push16(lanes, slots),
        );
    }

    /// [`Walk::compare`] with AVX-512; the caller needs an [`Avx512`](crate::vector::Avx512).
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,bmi2,popcnt")]
    fn compare_avx512(&self, heads: &[u16], comparisons: &[Comparison<'_>], hits: &mut HeadHits) {
        self.compare_with(
            (heads, comparisons, hits),
            |window| avx512::Chunk::first(window),
            |block, first, window| avx512::compare4(block, first, window),
            |block, first, window| avx512::compare16(block, first, window),
            |hits, lanes, slots| avx512::push_matches(hits, lanes, slots),
        );
    }

    /// Compares with these kernels: they prepare a packet's first chunk, compare four entries and sixteen,
    /// and add hits.
    #[inline(always)]
    fn compare_with<C>(
        &self,
        (heads, comparisons, hits): (&[u16], &[Comparison<'_>], &mut HeadHits),
        first: impl Fn(&Window) -> C,
        four: impl Fn(&Block4, &C, &Window) -> u32,
        sixteen: impl Fn(&Block16, &C, &Window) -> u32,
        give: impl Fn(&mut HeadHits, u32, &[u32; 16]),
    ) {
        let mut comparisons = comparisons.iter().peekable();
        for head in heads.iter().copied().map(usize::from) {
            let packet = usize::from(self.heads[head]);
            let (window, facts) = (&self.windows[packet], || self.results.of_packet(packet));
            let (first, from) = (first(window), hits.begin_head());
            if self.can_match_leaf(window) {
                if let Some(block) = self.leaf.narrow {
                    hits.push4(block.confirm(four(block, &first, window), window, facts), &block.slots);
                }
                for block in self.leaf.wide() {
                    let lanes = sixteen(block, &first, window);
                    if lanes != 0 {
                        give(hits, block.confirm(lanes, window, facts), &block.slots);
                    }
                }
            }
            while let Some(comparison) =
                comparisons.next_if(|comparison| usize::from(comparison.head) == head)
            {
                hits.push_all(comparison.slots);
                if let Some(block) = comparison.narrow {
                    hits.push4(block.confirm(four(block, &first, window), window, facts), &block.slots);
                }
                for block in comparison.wide {
                    give(hits, block.confirm(sixteen(block, &first, window), window, facts), &block.slots);
                }
            }
            hits.end_head(head, from);
        }
    }
}
