//! Rows of blocks: the entries that a key of a table leads to.

use std::sync::Arc;

use mmb_packet::Window;

use super::block::{Block8, first_words};
use super::blocks::is_crowd;
use super::comparable::Comparable;
use crate::pattern::{Entry, RuleEntry, TruePredicates};
use crate::vector::HitSink;

/// Some entries; clones share memory.
#[derive(Clone, Debug)]
pub(crate) struct Row(Arc<[Block8]>);

impl FromIterator<RuleEntry> for Row {
    fn from_iter<I: IntoIterator<Item = RuleEntry>>(items: I) -> Self {
        let mut blocks: Vec<Block8> = Vec::new();
        for item in items {
            let comparable = Comparable::new(&item.1);
            let chunk = comparable.chunk();
            if !blocks.iter().any(|block| block.has_room(chunk)) {
                blocks.push(Block8::about(chunk));
            }
            if let Some(block) = blocks.iter_mut().rfind(|block| block.has_room(chunk)) {
                block.push(item, &comparable);
            }
        }
        Row(blocks.into())
    }
}

impl Row {
    /// The blocks.
    #[inline(always)]
    pub fn blocks(&self) -> &[Block8] {
        &self.0
    }

    pub fn len(&self) -> usize {
        self.0.iter().map(Block8::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the entries should move to a node.
    pub fn is_full(&self) -> bool {
        let sum = |of: fn(&Block8) -> usize| self.0.iter().map(of).sum::<usize>();
        is_crowd((sum(Block8::len), sum(Block8::partial_len), sum(Block8::guarded_len)), || {
            self.0.iter().flat_map(Block8::guarded_keys).collect()
        })
    }

    /// All entries, with the slots of their rules.
    pub fn items(&self) -> impl Iterator<Item = RuleEntry> + '_ {
        self.0.iter().flat_map(Block8::items)
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
        let is_it = |item: &RuleEntry| item.0 == slot && *item.1 == *entry;
        if !self.items().any(|item| is_it(&item)) {
            return false;
        }
        *self = self.items().filter(|item| !is_it(item)).collect();
        true
    }

    /// Bytes of memory, without the entries themselves.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.0) + self.0.iter().map(|block| block.further.bytes()).sum::<usize>()
    }

    /// Prefetches the first block.
    #[inline(always)]
    pub fn prefetch(&self) {
        self.0.iter().take(1).for_each(Block8::prefetch);
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
