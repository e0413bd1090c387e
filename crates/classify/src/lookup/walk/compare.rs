//! Comparing packets with the entries of the root's leaf, and with those that keys lead to.

use mmb_packet::Window;
use wide::u32x4;

use super::{FirstWords, PAIRS, RowVisit, Walk};
use crate::leaf::{Block, Block8, first_words};
#[cfg(target_arch = "x86_64")]
use crate::lookup::avx512;
use crate::lookup::head_hits::HeadHits;
use crate::vector::VECTOR;

impl Walk<'_> {
    /// Compares all heads with the root's leaf, and adds the hits. `words` has the heads' words if they have
    /// been read.
    #[allow(unsafe_code)]
    pub(super) fn compare_root(&self, words: Option<&FirstWords>, hits: &mut HeadHits) {
        if self.leaf.is_empty() {
            return;
        }
        #[cfg(target_arch = "x86_64")]
        if self.simd.has_avx512() {
            // SAFETY: the level says that the processor has the instructions.
            return unsafe { self.compare_root_avx512(words, hits) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = words;
        for head in 0..self.heads.len().min(VECTOR) as u16 {
            let window = self.window(head);
            if !self.can_match_leaf(window) {
                continue;
            }
            let first = &first_words(window.chunk[0]);
            if let Some(block) = self.leaf.narrow {
                let lanes = block.agreeing_lanes(first, window);
                hits.push4(head, self.confirm(block, head, lanes), &block.slots);
            }
            for block in self.leaf.wide() {
                let lanes = block.agreeing_lanes(first, window);
                if lanes != 0 {
                    hits.push_quads(head, self.confirm(block, head, lanes), &block.slots);
                }
            }
        }
    }

    /// [`Walk::compare_root`] with AVX-512; the caller has the level for it. It goes
    /// block by block, unless few packets pass the pre-filter.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
    fn compare_root_avx512(&self, words: Option<&FirstWords>, hits: &mut HeadHits) {
        let heads = (self.heads.len(), |head: usize| self.window(head));
        let (mut lanes, mut agreeing) = ([0; VECTOR], [0; VECTOR]);
        if let Some(block) = self.leaf.narrow {
            let columns = self.columns.chunk(block.chunk());
            avx512::compare4_with_all(block, columns, heads, &mut lanes);
            let n = avx512::collect_nonzero(&lanes, &mut agreeing);
            for &head in &agreeing[..n] {
                let lanes = self.confirm(block, head, lanes[usize::from(head) % VECTOR].into());
                hits.push4(head, lanes, &block.slots);
            }
        }
        if let Some(pre_filter) = self.pre_filter {
            let mut passed = [0; VECTOR];
            let n = avx512::query_pre_filter(pre_filter, self.columns.chunk(0), heads.0, &mut passed);
            if n < self.heads.len() / 2 {
                return self.compare_passed_avx512(&passed[..n], hits);
            }
        }
        for block in self.leaf.wide() {
            let columns = self.columns.chunk(block.chunk());
            avx512::compare16_with_all(block, (columns, words), heads, &mut lanes);
            let n = avx512::collect_nonzero(&lanes, &mut agreeing);
            for &head in &agreeing[..n] {
                let lanes = self.confirm(block, head, lanes[usize::from(head) % VECTOR].into());
                avx512::push_matches16(hits, head, lanes, &block.slots);
            }
        }
    }

    /// Compares some heads with the wide blocks.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
    fn compare_passed_avx512(&self, heads: &[u16], hits: &mut HeadHits) {
        for &head in heads {
            let window = self.window(head);
            let first = avx512::Sixteen::first(window);
            for block in self.leaf.wide() {
                let lanes = avx512::compare16(block, &first, window);
                if lanes != 0 {
                    avx512::push_matches16(hits, head, self.confirm(block, head, lanes), &block.slots);
                }
            }
        }
    }

    /// Reduces agreeing lanes of a block to those whose entries match a head.
    #[inline(always)]
    fn confirm<const N: usize>(&self, block: &Block<N>, head: u16, lanes: u32) -> u32 {
        let head = usize::from(head) % VECTOR;
        block.confirm(lanes, self.window(head), || self.results.of_packet(self.heads[head].into()))
    }

    /// Compares heads with the first `n` rows, and adds the hits. The rows are overwritten.
    #[allow(unsafe_code)]
    pub(super) fn compare_rows(
        &self,
        rows: &mut [RowVisit<'_>; PAIRS],
        n: usize,
        words: &FirstWords,
        hits: &mut HeadHits,
    ) {
        #[cfg(target_arch = "x86_64")]
        if self.simd.has_avx512() {
            // SAFETY: the level says that the processor has the instructions.
            return unsafe { self.compare_rows_avx512((rows, n), words, hits) };
        }
        self.compare_rows_with(
            ((rows, n), words, hits),
            |block, words| block.agree_first(&words.map(u32x4::splat)),
            |block, window| block.agree_chunk(window),
            |block, window| block.further.agreeing_lanes(window),
            |hits, head, lanes, slots| hits.push_quads(head, lanes, slots),
        );
    }

    /// [`Walk::compare_rows`] with AVX-512; the caller has the level for it.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
    fn compare_rows_avx512(
        &self,
        rows: (&mut [RowVisit<'_>; PAIRS], usize),
        words: &FirstWords,
        hits: &mut HeadHits,
    ) {
        self.compare_rows_with(
            (rows, words, hits),
            |block, words| avx512::compare8_first(block, words),
            |block, window| avx512::compare8_chunk(block, window),
            |block, window| avx512::compare_further8(&block.further, window),
            |hits, head, lanes, slots| avx512::push_matches8(hits, head, lanes, slots),
        );
    }

    /// Compares with these kernels: they compare the first chunk of eight entries, or another one, and their
    /// further conditions, and add hits. All first blocks are compared, then all second ones, and so on: how
    /// many blocks a row has is hard to predict.
    #[inline(always)]
    fn compare_rows_with(
        &self,
        ((rows, mut n), words, hits): ((&mut [RowVisit<'_>; PAIRS], usize), &FirstWords, &mut HeadHits),
        compare_first: impl Fn(&Block8, &[u32; 4]) -> u32,
        compare_chunk: impl Fn(&Block8, &Window) -> u32,
        compare_further: impl Fn(&Block8, &Window) -> u32,
        push: impl Fn(&mut HeadHits, u16, u32, &[u32; 8]),
    ) {
        while n > 0 {
            let mut left = 0;
            for at in 0..n {
                let RowVisit { head, row } = rows[at % PAIRS];
                let Some((block, others)) = row.split_first() else { continue };
                let mut lanes = if block.is_about_first() {
                    compare_first(block, &words[usize::from(head) % VECTOR])
                } else {
                    compare_chunk(block, self.window(head))
                };
                if block.has_conditions(lanes) {
                    if block.has_further(lanes) {
                        lanes &= compare_further(block, self.window(head));
                    }
                    lanes = self.confirm(block, head, lanes);
                }
                push(hits, head, lanes, &block.slots);
                rows[left % PAIRS] = RowVisit { head, row: others };
                left += usize::from(!others.is_empty());
            }
            n = left;
        }
    }
}
