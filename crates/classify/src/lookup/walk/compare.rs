//! The last pass: comparing packets with entries. And the choice of the packets that need it.

use mmb_packet::Window;

use super::{Comparison, KeyResult, Walk};
use crate::leaf::{Block8, MAX_WIDE_BLOCKS, first_words};
#[cfg(target_arch = "x86_64")]
use crate::lookup::avx512;
use crate::lookup::head_hits::{HeadHits, HitWriter};
use crate::vector::VECTOR;

/// The lanes of the root's leaf that heads agree with. Those of a block that a head does not agree with are
/// undefined.
#[derive(Clone, Debug)]
pub(crate) struct RootLanes {
    narrow: [u16; VECTOR],
    wide: [[u16; VECTOR]; MAX_WIDE_BLOCKS],
    /// For each head a bit for each block that it agrees with: first the narrow one, then the wide ones.
    blocks: [u16; VECTOR],
}

const _: () = assert!(MAX_WIDE_BLOCKS < 16);

impl Default for RootLanes {
    fn default() -> Self {
        RootLanes { narrow: [0; VECTOR], wide: [[0; VECTOR]; MAX_WIDE_BLOCKS], blocks: [0; VECTOR] }
    }
}

impl Walk<'_> {
    /// Compares all heads with the root's leaf.
    #[allow(unsafe_code)]
    pub(super) fn compare_root(&self, root: &mut RootLanes) {
        root.blocks = [0; VECTOR];
        #[cfg(target_arch = "x86_64")]
        if self.simd.has_avx512() {
            // SAFETY: the level says that the processor has the instructions.
            return unsafe { self.compare_root_avx512(root) };
        }
        for head in 0..self.heads.len().min(VECTOR) {
            let window = self.window(head);
            if !self.can_match_leaf(window) {
                continue;
            }
            let first = &first_words(window.chunk[0]);
            root.narrow[head] =
                self.leaf.narrow.map_or(0, |block| block.agreeing_lanes(first, window)) as u16;
            root.blocks[head] = u16::from(root.narrow[head] != 0);
            for (at, (block, lanes)) in self.leaf.wide().iter().zip(&mut root.wide).enumerate() {
                lanes[head] = block.agreeing_lanes(first, window) as u16;
                root.blocks[head] |= u16::from(lanes[head] != 0) << (at + 1);
            }
        }
    }

    /// [`Walk::compare_root`] with AVX-512; the caller has the level for it. It goes
    /// block by block, unless few packets pass the pre-filter.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
    fn compare_root_avx512(&self, root: &mut RootLanes) {
        let heads = (self.heads.len(), |head: usize| self.window(head));
        if let Some(block) = self.leaf.narrow {
            let columns = self.columns.chunk(block.chunk());
            avx512::compare4_with_all(block, columns, heads, (&mut root.narrow, &mut root.blocks, 1));
        }
        if let Some(pre_filter) = self.pre_filter {
            let mut passed = [0; VECTOR];
            let n = avx512::query_pre_filter(pre_filter, self.columns.chunk(0), heads.0, &mut passed);
            if n < self.heads.len() / 2 {
                return self.compare_passed_avx512(&passed[..n], root);
            }
        }
        for (at, (block, lanes)) in self.leaf.wide().iter().zip(&mut root.wide).enumerate() {
            let columns = self.columns.chunk(block.chunk());
            avx512::compare16_with_all(block, columns, heads, (lanes, &mut root.blocks, 2 << at));
        }
    }

    /// Compares some heads with the wide blocks.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
    fn compare_passed_avx512(&self, heads: &[u16], root: &mut RootLanes) {
        for &head in heads {
            let (window, head) = (self.window(head), usize::from(head) % VECTOR);
            let first = avx512::Sixteen::first(window);
            for (at, (block, lanes)) in self.leaf.wide().iter().zip(&mut root.wide).enumerate() {
                lanes[head] = avx512::compare16(block, &first, window) as u16;
                root.blocks[head] |= u16::from(lanes[head] != 0) << (at + 1);
            }
        }
    }

    /// Collects the heads that have keys in some of the `tables`, or agree with an entry of the root's leaf;
    /// returns their number. No other head can match.
    #[allow(unsafe_code)]
    pub(super) fn select_heads(
        &self,
        tables: &[u64; VECTOR],
        root: &RootLanes,
        active: &mut [u16; VECTOR],
    ) -> usize {
        #[cfg(target_arch = "x86_64")]
        if self.simd.has_avx512() {
            // SAFETY: the level says that the processor has the instructions.
            return unsafe { avx512::collect_nonzero(self.heads.len(), (tables, &root.blocks), active) };
        }
        let mut n = 0;
        for (head, (tables, lanes)) in tables.iter().zip(&root.blocks).take(self.heads.len()).enumerate() {
            active[n % VECTOR] = head as u16;
            n += usize::from((*tables != 0) | (*lanes != 0));
        }
        n
    }

    /// Compares some heads with the blocks of the root's leaf and with the entries of their comparisons.
    #[allow(unsafe_code)]
    pub(super) fn compare(
        &self,
        heads: &[u16],
        comparisons: &[Comparison<'_>],
        root: &RootLanes,
        hits: &mut HeadHits,
    ) {
        #[cfg(target_arch = "x86_64")]
        if self.simd.has_avx512() {
            // SAFETY: the level says that the processor has the instructions.
            return unsafe { self.compare_avx512(heads, comparisons, root, hits) };
        }
        self.compare_with(
            (heads, comparisons, root, hits),
            |window| first_words(window.chunk[0]),
            |block, first, window| block.agreeing_chunk(first, window),
            |block, window| block.further.agreeing_lanes(window),
            |hits, lanes, slots| hits.push_quads(lanes, slots),
            |hits, lanes, slots| hits.push_quads(lanes, slots),
        );
    }

    /// [`Walk::compare`] with AVX-512; the caller has the level for it.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
    fn compare_avx512(
        &self,
        heads: &[u16],
        comparisons: &[Comparison<'_>],
        root: &RootLanes,
        hits: &mut HeadHits,
    ) {
        self.compare_with(
            (heads, comparisons, root, hits),
            |window| avx512::Eight::first(window),
            |block, first, window| avx512::compare8(block, first, window),
            |block, window| avx512::compare_further8(&block.further, window),
            |hits, lanes, slots| avx512::push_matches8(hits, lanes, slots),
            |hits, lanes, slots| avx512::push_matches16(hits, lanes, slots),
        );
    }

    /// Compares with these kernels: they prepare a packet's first chunk, compare the chunk of eight entries
    /// and their further conditions, and add hits.
    #[inline(always)]
    fn compare_with<C>(
        &self,
        (heads, mut comparisons, root, hits): (&[u16], &[Comparison<'_>], &RootLanes, &mut HeadHits),
        first: impl Fn(&Window) -> C,
        eight: impl Fn(&Block8, &C, &Window) -> u32,
        further: impl Fn(&Block8, &Window) -> u32,
        push8: impl Fn(&mut HitWriter<'_>, u32, &[u32; 8]),
        push16: impl Fn(&mut HitWriter<'_>, u32, &[u32; 16]),
    ) {
        let mut hits = hits.writer();
        for head in heads.iter().copied().map(usize::from) {
            let packet = usize::from(self.heads[head]);
            let (window, facts) = (&self.windows[packet], || self.results.of_packet(packet));
            let from = hits.begin_head();
            let blocks = root.blocks[head % VECTOR];
            if let (1, Some(block)) = (blocks & 1, self.leaf.narrow) {
                let lanes = root.narrow[head % VECTOR].into();
                hits.push4(block.confirm(lanes, window, facts), &block.slots);
            }
            let mut wide = blocks >> 1;
            while let Some(block) = self.leaf.wide().get(wide.trailing_zeros() as usize) {
                let lanes = root.wide[wide.trailing_zeros() as usize % MAX_WIDE_BLOCKS][head % VECTOR].into();
                push16(&mut hits, block.confirm(lanes, window, facts), &block.slots);
                wide &= wide - 1;
            }
            let first = first(window);
            while let Some((comparison, others)) = comparisons.split_first()
                && usize::from(comparison.head) == head
            {
                comparisons = others;
                let row = match comparison.found {
                    KeyResult::Row(row) => row,
                    KeyResult::Rule(slot, table, key) => {
                        hits.push_first(&[slot], self.has_key(table, key, window).into());
                        continue;
                    }
                    KeyResult::Slots(slots) => {
                        hits.push_all(slots);
                        continue;
                    }
                };
                for block in row {
                    let mut lanes = eight(block, &first, window);
                    if block.has_conditions(lanes) {
                        lanes = if block.has_further(lanes) { lanes & further(block, window) } else { lanes };
                        lanes = block.confirm(lanes, window, facts);
                    }
                    push8(&mut hits, lanes, &block.slots);
                }
            }
            hits.end_head(head, from);
        }
        hits.finish();
    }
}
