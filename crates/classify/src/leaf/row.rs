//! Rows of blocks: the entries that a key of a table leads to, and those of a leaf of more than four.

use std::sync::Arc;

use mmb_packet::Window;

use super::block::{Block, first_words};
use super::blocks::{CAPACITY_16, capacity};
use super::comparable::Comparable;
use crate::pattern::{Entry, RuleEntry, TruePredicates};
use crate::vector::HitSink;

/// An entry that must be checked in full counts as this many more entries.
const GUARDED_COST: usize = 3;
/// Two entries with conditions beyond the compared chunk count as three, if rows are long.
const PARTIAL_SHARE: usize = 2;
/// Without AVX-512, an entry of which more than the chunk is often compared counts as this many more entries
/// in the root. Bit vectors compare it with all packets at once there, since whole vectors visit the root.
const BROAD_COST: usize = 8;
/// Maximum average number of guarded entries that agree in the compared chunk.
const MAX_INDISTINCT: usize = 4;

/// Some entries in blocks of `N`; clones share memory.
#[derive(Clone, Debug)]
pub(crate) struct Row<const N: usize>(Arc<[Block<N>]>);

impl<const N: usize> FromIterator<RuleEntry> for Row<N> {
    fn from_iter<I: IntoIterator<Item = RuleEntry>>(items: I) -> Self {
        let mut blocks: Vec<Block<N>> = Vec::new();
        for item in items {
            let comparable = Comparable::new(&item.1);
            let chunk = comparable.chunk();
            if !blocks.iter().any(|block| block.has_room(chunk)) {
                blocks.push(Block::about(chunk));
            }
            if let Some(block) = blocks.iter_mut().rfind(|block| block.has_room(chunk)) {
                block.push(item, &comparable);
            }
        }
        Row(blocks.into())
    }
}

impl<const N: usize> Row<N> {
    /// The blocks.
    #[inline(always)]
    pub fn blocks(&self) -> &[Block<N>] {
        &self.0
    }

    pub fn len(&self) -> usize {
        self.0.iter().map(Block::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether these are too many entries to be compared one by one, in the root of the tree or elsewhere.
    pub fn is_full(&self, is_root: bool) -> bool {
        let sum = |of: fn(&Block<N>) -> usize| self.0.iter().map(of).sum::<usize>();
        let (partial, guarded) = (sum(Block::partial_len), sum(Block::guarded_len));
        let partial = match capacity() {
            CAPACITY_16 => partial / PARTIAL_SHARE,
            _ if is_root => sum(Block::broad_len) * BROAD_COST,
            _ => 0,
        };
        self.len() + partial + guarded * GUARDED_COST > capacity()
            || guarded > MAX_INDISTINCT && self.is_indistinct()
    }

    /// Whether a packet that agrees with one guarded entry would have to be checked against many.
    fn is_indistinct(&self) -> bool {
        let keys: Vec<_> = self.0.iter().flat_map(Block::guarded_keys).collect();
        let can_agree = |a: &(u128, u128), b: &(u128, u128)| a.0 & b.0 & (a.1 ^ b.1) == 0;
        let pairs: usize = keys.iter().map(|a| keys.iter().filter(|b| can_agree(a, b)).count()).sum();
        pairs > MAX_INDISTINCT * keys.len()
    }

    /// All entries, with the slots of their rules.
    pub fn items(&self) -> impl Iterator<Item = RuleEntry> + '_ {
        self.0.iter().flat_map(Block::items)
    }

    /// All entries.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter().flat_map(Block::entries)
    }

    pub fn push(&mut self, item: RuleEntry) {
        let comparable = Comparable::new(&item.1);
        let chunk = comparable.chunk();
        if !self.0.iter().any(|block| block.has_room(chunk)) {
            *self = self.items().chain([item]).collect();
            return;
        }
        let block = Arc::make_mut(&mut self.0).iter_mut().rfind(|block| block.has_room(chunk));
        block.into_iter().for_each(|block| block.push(item.clone(), &comparable));
    }

    /// Removes an entry. Returns false if it is not here.
    pub fn remove(&mut self, slot: u32, entry: &Entry) -> bool {
        without(self.items(), slot, entry).map(|row| *self = row).is_some()
    }

    /// Bytes of memory, without the entries themselves.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.0) + self.0.iter().map(|block| block.further.bytes()).sum::<usize>()
    }

    /// Prefetches the first block.
    #[inline(always)]
    pub fn prefetch(&self) {
        self.0.iter().take(1).for_each(Block::prefetch);
    }

    /// Adds the rules of matching entries to `sink`.
    #[inline(always)]
    pub fn visit(&self, window: &Window, facts: TruePredicates<'_>, sink: &mut HitSink<'_>) {
        let words = first_words(window.chunk[0]);
        for block in self.0.iter() {
            sink.push_lanes(block.matches(&words, window, || facts), &block.slots);
        }
    }
}

/// What these entries are without one of them. None: it is not there.
pub(super) fn without<C: FromIterator<RuleEntry>>(
    items: impl Iterator<Item = RuleEntry>,
    slot: u32,
    entry: &Entry,
) -> Option<C> {
    let mut all: Vec<_> = items.collect();
    let n = all.len();
    all.retain(|item| item.0 != slot || *item.1 != *entry);
    (all.len() < n).then(|| all.into_iter().collect())
}
