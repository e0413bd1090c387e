//! Entries that are compared one by one, four at a time.
//!
//! Theory of operation. A leaf is a row of blocks of four entries. A block holds the first chunk of its entries' masks
//! and keys word by word, so that one vector comparison answers for the same 32 bits of four entries and a block costs
//! a dozen instructions without a branch. Only entries that ask for more than the first chunk (other chunks, tests) and
//! agree in it are looked at further.

use std::sync::Arc;

use bytemuck::cast;
use mmb_packet::{Window, prefetch};
use wide::u32x4;

use crate::masked::Masked;
use crate::pattern::{Entry, Facts};
use crate::sink::Sink;

/// Entries in a block.
const LANES: usize = 4;

/// Entries that a leaf holds; those that ask for more than the first chunk count [`GUARDED`] times more.
pub(crate) const FULL: usize = 32;
const GUARDED: usize = 3;
/// Most entries that ask for more than the first chunk and have, on average, nothing in it that tells them apart.
const ALIKE: usize = 4;

/// A rule's slot and one of its entries.
pub(crate) type Item = (u32, Arc<Entry>);

/// Some entries; cloning shares them. Meant for few: every change copies all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leaf(Option<Arc<[Block]>>);

/// Four entries: three cache lines.
#[repr(align(64))]
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// Word by word, entry by entry.
    mask: [[u32; LANES]; 4],
    key: [[u32; LANES]; 4],
    pub slots: [u32; LANES],
    /// Lanes whose entry asks for more than the first chunk, as bits.
    guarded: u32,
    /// Lanes in use come first.
    entries: [Option<Arc<Entry>>; LANES],
}

const _: () = assert!(size_of::<Block>() == 192);

impl Block {
    /// No entry: a key outside its mask, which no packet satisfies.
    const EMPTY: Block = Block {
        mask: [[0; LANES]; 4],
        key: [[u32::MAX; LANES]; 4],
        slots: [0; LANES],
        guarded: 0,
        entries: [const { None }; LANES],
    };

    fn set(&mut self, lane: usize, (slot, entry): Item) {
        let words = |chunks: &[u128]| cast::<u128, [u32; 4]>(chunks[0]);
        let (mask, key) = (words(entry.cover.mask()), words(entry.cover.key()));
        for word in 0..4 {
            self.mask[word][lane] = mask[word];
            self.key[word][lane] = key[word];
        }
        let more = entry.cover.chunks() & !1 != 0 || !entry.is_exact();
        self.guarded |= u32::from(more) << lane;
        self.slots[lane] = slot;
        self.entries[lane] = Some(entry);
    }

    fn len(&self) -> usize {
        self.entries.iter().flatten().count()
    }

    fn items(&self) -> impl Iterator<Item = Item> + '_ {
        self.slots.iter().zip(&self.entries).filter_map(|(slot, entry)| Some((*slot, entry.clone()?)))
    }

    /// The covers of the entries that ask for more than the first chunk.
    fn guarded(&self) -> impl Iterator<Item = &Masked> {
        let is_guarded = |lane: usize| self.guarded & 1 << lane != 0;
        let entries = self.entries.iter().enumerate().filter(move |(lane, _)| is_guarded(*lane));
        entries.filter_map(|(_, entry)| Some(&entry.as_ref()?.cover))
    }

    /// The lanes whose entries agree with the first chunk, as bits.
    #[inline(always)]
    fn agree(&self, words: &Words) -> u32 {
        let differ = |i: usize| (words[i] & u32x4::new(self.mask[i])) ^ u32x4::new(self.key[i]);
        let any = (differ(0) | differ(1)) | (differ(2) | differ(3));
        any.simd_eq(u32x4::ZERO).to_bitmask()
    }

    /// The lanes whose entries hold for a packet, as bits.
    #[inline(always)]
    pub fn matches(&self, words: &Words, window: &Window, facts: Facts<'_>) -> u32 {
        let lanes = self.agree(words);
        if lanes & self.guarded == 0 { lanes } else { self.pass(lanes, window, facts) }
    }

    /// Those of the lanes whose entries hold altogether.
    #[cold]
    #[inline(never)]
    fn pass(&self, lanes: u32, window: &Window, facts: Facts<'_>) -> u32 {
        let mut pass = lanes & !self.guarded;
        for (lane, entry) in self.entries.iter().enumerate() {
            if lanes & self.guarded & 1 << lane != 0
                && entry.as_ref().is_some_and(|e| e.cover.holds(window) && e.passes(window, facts))
            {
                pass |= 1 << lane;
            }
        }
        pass
    }
}

impl FromIterator<Item> for Leaf {
    fn from_iter<I: IntoIterator<Item = Item>>(items: I) -> Self {
        let mut blocks: Vec<Block> = Vec::new();
        for (at, item) in items.into_iter().enumerate() {
            if at % LANES == 0 {
                blocks.push(Block::EMPTY);
            }
            if let Some(block) = blocks.last_mut() {
                block.set(at % LANES, item);
            }
        }
        Leaf((!blocks.is_empty()).then(|| blocks.into()))
    }
}

impl Leaf {
    pub fn blocks(&self) -> &[Block] {
        self.0.as_deref().unwrap_or_default()
    }

    pub fn len(&self) -> usize {
        self.blocks().split_last().map_or(0, |(last, full)| full.len() * LANES + last.len())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether it is time for tables or bit vectors.
    pub fn is_full(&self) -> bool {
        let guarded: usize = self.blocks().iter().map(|block| block.guarded.count_ones() as usize).sum();
        self.len() + guarded * GUARDED > FULL || guarded > ALIKE && self.is_crowded()
    }

    /// Whether a packet with the first chunk of one of the entries would be compared further with many.
    fn is_crowded(&self) -> bool {
        let guarded = self.blocks().iter().flat_map(Block::guarded);
        let firsts: Vec<_> = guarded.map(|cover| (cover.mask()[0], cover.key()[0])).collect();
        let alike = |a: &(u128, u128), b: &(u128, u128)| a.0 & b.0 & (a.1 ^ b.1) == 0;
        let pairs: usize = firsts.iter().map(|a| firsts.iter().filter(|b| alike(a, b)).count()).sum();
        pairs > ALIKE * firsts.len()
    }

    /// All entries, with the slots of their rules.
    pub fn items(&self) -> impl Iterator<Item = Item> + '_ {
        self.blocks().iter().flat_map(Block::items)
    }

    pub fn push(&mut self, item: Item) {
        if let Some(blocks) = &mut self.0
            && blocks.last().is_some_and(|last| last.len() < LANES)
        {
            if let Some(last) = Arc::make_mut(blocks).last_mut() {
                last.set(last.len(), item);
            }
            return;
        }
        *self = self.items().chain([item]).collect();
    }

    /// Takes an entry out; false: it is not here.
    pub fn remove(&mut self, slot: u32, entry: &Entry) -> bool {
        let is_it = |item: &Item| item.0 == slot && *item.1 == *entry;
        if !self.items().any(|item| is_it(&item)) {
            return false;
        }
        *self = self.items().filter(|item| !is_it(item)).collect();
        true
    }

    /// Bytes of memory, entries not included.
    pub fn bytes(&self) -> usize {
        std::mem::size_of_val(self.blocks())
    }
}

impl Block {
    /// Brings the block close.
    #[inline(always)]
    pub fn prefetch(&self) {
        prefetch::read(&self.mask);
        prefetch::read(&self.key);
        prefetch::read(&self.slots);
    }
}

/// The words of a packet's first chunk, each four times.
pub(crate) type Words = [u32x4; 4];

/// See [`Words`].
#[inline(always)]
pub(crate) fn words(chunk: u128) -> Words {
    cast::<u128, [u32; 4]>(chunk).map(u32x4::splat)
}

/// Gives `sink` the entries that hold for a packet.
#[inline(always)]
pub(crate) fn visit(blocks: &[Block], window: &Window, facts: Facts<'_>, sink: &mut Sink<'_>) {
    let words = words(window.chunk[0]);
    for block in blocks {
        sink.four(block.matches(&words, window, facts), &block.slots);
    }
}
