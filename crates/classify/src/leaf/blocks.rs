//! A leaf: a few entries that a packet is compared with one by one.
//!
//! Theory of operation. A leaf is one block of four entries, or a row of blocks of sixteen. A packet is
//! compared with all blocks. A change copies the whole leaf, so leaves stay small.

use std::sync::Arc;

use mmb_packet::Window;
use mmb_packet::window::CHUNKS;

use super::block::{Block, Block4, Block16, first_words};
use super::comparable::Comparable;
use crate::pattern::{Entry, RuleEntry, TruePredicates};
use crate::vector::{Avx512, HitSink, VectorSummary};

/// Maximum number of entries, if they are compared four at a time and sixteen at a time.
const CAPACITY_4: usize = 32;
const CAPACITY_16: usize = 96;

/// An entry that must be checked in full counts as this many more entries.
const GUARDED_COST: usize = 3;
/// Two entries with conditions beyond the compared chunk count as three, if the leaf is a long one.
const PARTIAL_SHARE: usize = 2;
/// Maximum average number of guarded entries that agree in the compared chunk.
const MAX_INDISTINCT: usize = 4;

/// Maximum number of wide blocks in a leaf that is not full.
pub(crate) const MAX_WIDE_BLOCKS: usize = CAPACITY_16 / 16 + CHUNKS;

/// Maximum number of entries in a leaf on this machine.
pub(crate) fn capacity() -> usize {
    if Avx512::detect().is_some() { CAPACITY_16 } else { CAPACITY_4 }
}

/// Whether so many entries are too many to be compared one by one. Some of them are partial or guarded.
pub(super) fn is_crowd(
    (len, partial, guarded): (usize, usize, usize),
    guarded_keys: impl FnOnce() -> Vec<(u128, u128)>,
) -> bool {
    let partial = if capacity() == CAPACITY_16 { partial } else { 0 };
    len + partial / PARTIAL_SHARE + guarded * GUARDED_COST > capacity()
        || guarded > MAX_INDISTINCT && is_indistinct(&guarded_keys())
}

/// Whether a packet that agrees with one guarded entry would have to be checked against many.
fn is_indistinct(keys: &[(u128, u128)]) -> bool {
    let can_agree = |a: &(u128, u128), b: &(u128, u128)| a.0 & b.0 & (a.1 ^ b.1) == 0;
    let pairs: usize = keys.iter().map(|a| keys.iter().filter(|b| can_agree(a, b)).count()).sum();
    pairs > MAX_INDISTINCT * keys.len()
}

/// Some entries; clones share memory.
#[derive(Clone, Debug, Default)]
pub(crate) enum Leaf {
    #[default]
    Empty,
    Four(Arc<Block4>),
    Sixteen(Arc<[Block16]>),
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
        let mut blocks: Vec<Block16> = Vec::new();
        for (comparable, item) in items {
            let chunk = comparable.chunk();
            if !blocks.iter().any(|block| block.has_room(chunk)) {
                blocks.push(Block16::about(chunk));
            }
            if let Some(block) = blocks.iter_mut().rfind(|block| block.has_room(chunk)) {
                block.push(item, &comparable);
            }
        }
        Leaf::Sixteen(blocks.into())
    }
}

impl Leaf {
    /// The blocks: a narrow one, or wide ones.
    #[inline(always)]
    pub fn blocks(&self) -> (Option<&Block4>, &[Block16]) {
        match self {
            Leaf::Empty => (None, &[]),
            Leaf::Four(block) => (Some(block), &[]),
            Leaf::Sixteen(blocks) => (None, blocks),
        }
    }

    /// The sum of what these functions return for the blocks.
    fn sum(&self, four: impl Fn(&Block4) -> usize, sixteen: impl Fn(&Block16) -> usize) -> usize {
        let (narrow, wide) = self.blocks();
        narrow.map_or(0, four) + wide.iter().map(sixteen).sum::<usize>()
    }

    pub fn len(&self) -> usize {
        self.sum(Block::len, Block::len)
    }

    pub fn is_empty(&self) -> bool {
        matches!(self, Leaf::Empty)
    }

    /// Whether the entries should move to tables or bit vectors.
    pub fn is_full(&self) -> bool {
        let guarded = self.sum(Block::guarded_len, Block::guarded_len);
        let partial = self.sum(Block::partial_len, Block::partial_len);
        let (narrow, wide) = self.blocks();
        is_crowd((self.len(), partial, guarded), || {
            let narrow = narrow.into_iter().flat_map(Block::guarded_keys);
            narrow.chain(wide.iter().flat_map(Block::guarded_keys)).collect()
        })
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
        let chunk = comparable.chunk();
        match self {
            Leaf::Four(block) if block.has_room(chunk) => Arc::make_mut(block).push(item, &comparable),
            Leaf::Sixteen(blocks) if blocks.iter().any(|block| block.has_room(chunk)) => {
                let block = Arc::make_mut(blocks).iter_mut().rfind(|block| block.has_room(chunk));
                block.into_iter().for_each(|block| block.push(item.clone(), &comparable));
            }
            _ => *self = self.items().chain([item]).collect(),
        }
    }

    /// Removes an entry. Returns false if it is not here.
    pub fn remove(&mut self, slot: u32, entry: &Entry) -> bool {
        let is_it = |item: &RuleEntry| item.0 == slot && *item.1 == *entry;
        if !self.items().any(|item| is_it(&item)) {
            return false;
        }
        *self = self.items().filter(|item| !is_it(item)).collect();
        true
    }

    /// Bytes of memory, without the entries themselves.
    pub fn bytes(&self) -> usize {
        let (narrow, wide) = self.blocks();
        let further = narrow.map_or(0, |block| block.further.bytes())
            + wide.iter().map(|block| block.further.bytes()).sum::<usize>();
        narrow.map_or(0, size_of_val) + size_of_val(wide) + further
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
        let words = first_words(window.chunk[0]);
        match self {
            Leaf::Empty => {}
            Leaf::Four(block) => sink.push_lanes(block.matches(&words, window, || facts), &block.slots),
            Leaf::Sixteen(blocks) => {
                for block in blocks.iter() {
                    sink.push_lanes(block.matches(&words, window, || facts), &block.slots);
                }
            }
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
