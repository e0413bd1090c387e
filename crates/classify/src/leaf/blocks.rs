//! A leaf: a few entries that a packet is compared with one by one.
//!
//! Theory of operation. A leaf is one block of four entries, or a row of blocks of sixteen. A packet is
//! compared with all blocks. A change copies the whole leaf, so leaves stay small.

use std::sync::Arc;

use mmb_packet::Window;
use mmb_packet::window::CHUNKS;

use super::block::{Block, Block4, Block16, first_words};
use super::comparable::Comparable;
use super::row::{Row, without};
use crate::pattern::{Entry, RuleEntry, TruePredicates};
use crate::vector::{HitSink, Simd, VectorSummary};

/// Maximum number of entries, if they are compared four at a time and sixteen at a time.
const CAPACITY_4: usize = 32;
pub(super) const CAPACITY_16: usize = 96;

/// Maximum number of wide blocks in a leaf that is not full.
const MAX_WIDE_BLOCKS: usize = CAPACITY_16 / 16 + CHUNKS;

/// Maximum number of entries in a leaf on this machine.
pub(crate) fn capacity() -> usize {
    if Simd::detect().has_avx512() { CAPACITY_16 } else { CAPACITY_4 }
}

/// Some entries; clones share memory.
#[derive(Clone, Debug, Default)]
pub(crate) enum Leaf {
    #[default]
    Empty,
    Four(Arc<Block4>),
    Sixteen(Row<16>),
}

impl FromIterator<RuleEntry> for Leaf {
    fn from_iter<I: IntoIterator<Item = RuleEntry>>(items: I) -> Self {
        let comparable = |item: RuleEntry| (Comparable::new(&item.1), item);
        let items: Vec<_> = items.into_iter().map(comparable).collect();
        let Some(first) = items.first() else { return Leaf::Empty };
        let chunk = first.0.chunk();
        if items.len() <= 4 && items.iter().all(|(comparable, _)| comparable.chunk() == chunk) {
            let mut block = Block4::about(chunk);
            items.into_iter().for_each(|(comparable, item)| block.push(item, &comparable));
            return Leaf::Four(Arc::new(block));
        }
        Leaf::Sixteen(items.into_iter().map(|(_, item)| item).collect())
    }
}

impl Leaf {
    /// The blocks: a narrow one, or wide ones.
    #[inline(always)]
    pub fn blocks(&self) -> (Option<&Block4>, &[Block16]) {
        match self {
            Leaf::Empty => (None, &[]),
            Leaf::Four(block) => (Some(block), &[]),
            Leaf::Sixteen(row) => (None, row.blocks()),
        }
    }

    pub fn len(&self) -> usize {
        let (narrow, wide) = self.blocks();
        narrow.map_or(0, Block::len) + wide.iter().map(Block::len).sum::<usize>()
    }

    pub fn is_empty(&self) -> bool {
        matches!(self, Leaf::Empty)
    }

    /// Whether the entries should move to tables or bit vectors, in the root of the tree or elsewhere. One
    /// block of four never is too many.
    pub fn is_full(&self, is_root: bool) -> bool {
        matches!(self, Leaf::Sixteen(row) if row.is_full(is_root))
    }

    /// All entries, with the slots of their rules.
    pub fn items(&self) -> impl Iterator<Item = RuleEntry> + '_ {
        let (narrow, wide) = self.blocks();
        narrow.into_iter().flat_map(Block::items).chain(wide.iter().flat_map(Block::items))
    }

    /// The chunks whose common bits may exclude whole blocks, as a bit set: those by which entries are
    /// compared, and those of the ranges of few entries.
    pub fn chunks(&self) -> u8 {
        let (narrow, wide) = self.blocks();
        let narrow = narrow.map_or(0, |block| 1 << block.chunk() | block.further.range_chunks());
        wide.iter().fold(narrow, |bits, block| bits | 1 << block.chunk())
    }

    pub fn push(&mut self, item: RuleEntry) {
        let comparable = Comparable::new(&item.1);
        match self {
            Leaf::Four(block) if block.has_room(comparable.chunk()) => {
                Arc::make_mut(block).push(item, &comparable);
            }
            Leaf::Sixteen(row) => row.push(item),
            _ => *self = self.items().chain([item]).collect(),
        }
    }

    /// Removes an entry. Returns false if it is not here.
    pub fn remove(&mut self, slot: u32, entry: &Entry) -> bool {
        without(self.items(), slot, entry).map(|leaf| *self = leaf).is_some()
    }

    /// Bytes of memory, without the entries themselves.
    pub fn bytes(&self) -> usize {
        match self {
            Leaf::Empty => 0,
            Leaf::Four(block) => size_of_val(&**block) + block.further.bytes(),
            Leaf::Sixteen(row) => row.bytes(),
        }
    }

    /// The blocks that some packet of a vector may match.
    pub fn active_blocks(&self, summary: &VectorSummary) -> ActiveBlocks<'_> {
        let (narrow, blocks) = self.blocks();
        let narrow = narrow.filter(|block| !block.is_excluded(summary));
        let (mut wide, mut n) = ([&EMPTY_BLOCK; MAX_WIDE_BLOCKS], 0);
        for block in blocks.iter().filter(|block| !block.is_excluded(summary)) {
            wide[n % MAX_WIDE_BLOCKS] = block;
            n += 1;
        }
        ActiveBlocks { narrow, wide, n: n.min(MAX_WIDE_BLOCKS) }
    }

    /// Adds the rules of matching entries to `sink`.
    #[inline(always)]
    pub fn visit(&self, window: &Window, facts: TruePredicates<'_>, sink: &mut HitSink<'_>) {
        match self {
            Leaf::Empty => {}
            Leaf::Four(block) => {
                let words = first_words(window.chunk[0]);
                sink.push_lanes(block.matches(&words, window, || facts), &block.slots);
            }
            Leaf::Sixteen(row) => row.visit(window, facts, sink),
        }
    }
}

/// A block without entries.
static EMPTY_BLOCK: Block16 = Block16::EMPTY;

/// The blocks of a leaf that some packet of the vector may match.
#[derive(Clone, Debug)]
pub(crate) struct ActiveBlocks<'a> {
    pub narrow: Option<&'a Block4>,
    wide: [&'a Block16; MAX_WIDE_BLOCKS],
    n: usize,
}

impl<'a> ActiveBlocks<'a> {
    #[inline(always)]
    pub fn wide(&self) -> &[&'a Block16] {
        &self.wide[..self.n]
    }

    /// Whether there are no blocks.
    pub fn is_empty(&self) -> bool {
        self.narrow.is_none() && self.n == 0
    }

    /// Number of comparisons of four entries each.
    pub fn quads(&self) -> usize {
        usize::from(self.narrow.is_some())
            + self.wide().iter().map(|block| block.len().div_ceil(4)).sum::<usize>()
    }

    /// Nonzero if the packet agrees with an entry in its compared chunk. With 0 it matches none.
    #[inline(always)]
    pub fn agreeing_lanes(&self, window: &Window) -> u32 {
        let words = first_words(window.chunk[0]);
        let narrow = self.narrow.map_or(0, |block| block.agreeing_lanes(&words, window));
        self.wide().iter().fold(narrow, |any, block| any | block.agreeing_lanes(&words, window))
    }
}
