//! Entries that are compared one by one, four at a time.
//!
//! Theory of operation. A leaf is a row of blocks of four entries. A block holds the first chunk of its entries' masks
//! and keys word by word, so that one vector comparison answers for the same 32 bits of four entries and a block costs
//! a dozen instructions without a branch. The word with the ports is compared as ranges, which prefixes and single
//! values are, too ([`crate::ports`]). Only entries that ask for more (other chunks, other tests) and agree in that chunk
//! are looked at further. Entries that ask nothing of the first chunk stand in blocks about another, the one that says
//! most about them.

use std::sync::Arc;

use bytemuck::cast;
use mmb_packet::window::CHUNKS;
use mmb_packet::{Window, prefetch};
use wide::{u16x8, u32x4};

use crate::choose::FEW_VALUES;
use crate::masked::Masked;
use crate::pattern::{Entry, Facts};
use crate::ports::{self, Ports};
use crate::sink::Sink;

/// Entries in a block.
const LANES: usize = 4;

/// Entries that a leaf holds; those that ask for more than one chunk count [`GUARDED`] times more.
pub(crate) const FULL: usize = 32;
const GUARDED: usize = 3;
/// Most entries that ask for more than one chunk and have, on average, nothing in it that tells them apart.
const ALIKE: usize = 4;

/// Blocks that a leaf has at most while it is not full.
pub(crate) const MOST_BLOCKS: usize = FULL / LANES + CHUNKS;

/// A rule's slot and one of its entries.
pub(crate) type Item = (u32, Arc<Entry>);

/// Some entries; cloning shares them. Meant for few: every change copies all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leaf(Option<Arc<[Block]>>);

/// Four entries: three cache lines.
#[repr(align(64))]
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// Word by word, entry by entry. In a block about the first chunk the word [`PORTS`] is two least values of 16 bits in
    /// `mask` and two greatest in `key`.
    mask: [[u32; LANES]; 4],
    key: [[u32; LANES]; 4],
    pub slots: [u32; LANES],
    /// Lanes whose entry asks for more than the chunk, as bits.
    guarded: u8,
    /// The chunk that is compared.
    chunk: u8,
    len: u8,
    /// Lanes in use come first.
    entries: [Option<Arc<Entry>>; LANES],
}

const _: () = assert!(size_of::<Block>() == 192);

impl Block {
    /// No entry: a key outside its mask, which no packet satisfies.
    pub const EMPTY: Block = Block {
        mask: [[0; LANES]; 4],
        key: [[u32::MAX; LANES]; 4],
        slots: [0; LANES],
        guarded: 0,
        chunk: 0,
        len: 0,
        entries: [const { None }; LANES],
    };

    fn set(&mut self, lane: usize, (slot, entry): Item) {
        let chunk = usize::from(self.chunk) % CHUNKS;
        let words = |chunks: &[u128; CHUNKS]| cast::<u128, [u32; 4]>(chunks[chunk]);
        let (mask, key) = (words(entry.cover.mask()), words(entry.cover.key()));
        for word in 0..4 {
            self.mask[word][lane] = mask[word];
            self.key[word][lane] = key[word];
        }
        if chunk == 0 {
            let Ports { low, high, .. } = Ports::of(&entry);
            (self.mask[PORTS][lane], self.key[PORTS][lane]) = (low, high);
        }
        self.guarded |= u8::from(asks_for_more(&entry, chunk)) << lane;
        self.slots[lane] = slot;
        self.len = self.len.max(lane as u8 + 1);
        self.entries[lane] = Some(entry);
    }

    fn has_room(&self, chunk: u8) -> bool {
        self.chunk == chunk && self.len() < LANES
    }

    fn len(&self) -> usize {
        self.len.into()
    }

    fn items(&self) -> impl Iterator<Item = Item> + '_ {
        self.slots.iter().zip(&self.entries).filter_map(|(slot, entry)| Some((*slot, entry.clone()?)))
    }

    /// What the entries that ask for more than the chunk ask of it: masks and keys.
    fn guarded(&self) -> impl Iterator<Item = (u128, u128)> {
        let is_guarded = |lane: usize| self.guarded & 1 << lane != 0;
        let entries = self.entries.iter().enumerate().filter(move |(lane, _)| is_guarded(*lane));
        let chunk = usize::from(self.chunk) % CHUNKS;
        let asked = move |cover: &Masked| (cover.mask()[chunk], cover.key()[chunk]);
        entries.filter_map(move |(_, entry)| Some(asked(&entry.as_ref()?.cover)))
    }

    /// The chunk that is compared.
    pub fn chunk(&self) -> usize {
        usize::from(self.chunk) % CHUNKS
    }

    /// Whether none of some packets can match an entry: `all` are the bits that every packet has in the block's chunk,
    /// `any` those that some packet has.
    pub fn is_out_of_question(&self, all: u128, any: u128) -> bool {
        let (all, any) = (words(all), words(any));
        let differ = |i: usize| {
            let (mask, key) = (u32x4::new(self.mask[i]), u32x4::new(self.key[i]));
            (key & !any[i]) | (mask & !key & all[i])
        };
        let never = (differ(0) | differ(1)) | (differ(2) | differ(3));
        never.simd_eq(u32x4::ZERO).to_bitmask() & ((1 << self.len) - 1) == 0
    }

    /// The lanes whose entries agree with a chunk that is not the first, as bits.
    #[inline(always)]
    fn agree_other(&self, window: &Window) -> u32 {
        let words = words(window.chunk[self.chunk()]);
        let differ = |i: usize| (words[i] & u32x4::new(self.mask[i])) ^ u32x4::new(self.key[i]);
        let any = (differ(0) | differ(1)) | (differ(2) | differ(3));
        any.simd_eq(u32x4::ZERO).to_bitmask()
    }

    /// The same for the first chunk.
    #[inline(always)]
    fn agree_first(&self, words: &Words) -> u32 {
        let differ = |i: usize| (words[i] & u32x4::new(self.mask[i])) ^ u32x4::new(self.key[i]);
        let [ports, low, high] = [words[PORTS], u32x4::new(self.mask[PORTS]), u32x4::new(self.key[PORTS])]
            .map(cast::<u32x4, u16x8>);
        let outside = cast::<u16x8, u32x4>(low.saturating_sub(ports) | ports.saturating_sub(high));
        let any = (differ(0) | differ(1)) | (outside | differ(3));
        any.simd_eq(u32x4::ZERO).to_bitmask()
    }

    /// The lanes whose entries may match a packet, as bits: certain of those that may not.
    #[inline(always)]
    pub fn agree(&self, window: &Window) -> u32 {
        match self.chunk {
            0 => self.agree_first(&first_words(window.chunk[0])),
            _ => self.agree_other(window),
        }
    }

    /// The lanes whose entries hold for a packet, as bits; `first` are the words of its first chunk.
    #[inline(always)]
    pub fn matches<'a>(&self, first: &Words, window: &Window, facts: impl Fn() -> Facts<'a>) -> u32 {
        let lanes = match self.chunk {
            0 => self.agree_first(first),
            _ => self.agree_other(window),
        };
        if lanes & u32::from(self.guarded) == 0 { lanes } else { self.pass(lanes, window, facts()) }
    }

    /// Those of the lanes whose entries hold altogether.
    #[cold]
    #[inline(never)]
    fn pass(&self, lanes: u32, window: &Window, facts: Facts<'_>) -> u32 {
        let guarded = u32::from(self.guarded);
        let mut pass = lanes & !guarded;
        for (lane, entry) in self.entries.iter().enumerate() {
            if lanes & guarded & 1 << lane != 0
                && entry.as_ref().is_some_and(|e| e.cover.holds(window) && e.passes(window, facts))
            {
                pass |= 1 << lane;
            }
        }
        pass
    }
}

/// The chunk by which an entry is compared: the first, unless that says little.
fn chunk_of(cover: &Masked) -> u8 {
    let asks = |chunk: &usize| cover.mask()[*chunk].count_ones();
    if cover.mask()[0] & !FEW_VALUES != 0 || cover.chunks() & !1 == 0 {
        return 0;
    }
    (1..CHUNKS).max_by_key(asks).map_or(0, |chunk| chunk as u8)
}

/// Whether comparing the chunk does not decide about an IP packet.
fn asks_for_more(entry: &Entry, chunk: usize) -> bool {
    let others = entry.cover.chunks() & !(1 | 1 << chunk) != 0;
    if chunk == 0 {
        return others || !Ports::of(entry).say_all;
    }
    others || entry.cover.mask()[0] & !Masked::IP.mask()[0] != 0 || !entry.is_exact()
}

/// Whether an entry has to be looked at in full where one of a leaf's blocks has compared a chunk of it.
pub(crate) fn is_guarded(entry: &Entry) -> bool {
    asks_for_more(entry, chunk_of(&entry.cover).into())
}

impl FromIterator<Item> for Leaf {
    fn from_iter<I: IntoIterator<Item = Item>>(items: I) -> Self {
        let mut blocks: Vec<Block> = Vec::new();
        for item in items {
            let chunk = chunk_of(&item.1.cover);
            if !blocks.iter().any(|block| block.has_room(chunk)) {
                blocks.push(Block { chunk, ..Block::EMPTY });
            }
            if let Some(block) = blocks.iter_mut().rfind(|block| block.has_room(chunk)) {
                block.set(block.len(), item);
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
        self.blocks().iter().map(Block::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether it is time for tables or bit vectors.
    pub fn is_full(&self) -> bool {
        let guarded: usize = self.blocks().iter().map(|block| block.guarded.count_ones() as usize).sum();
        self.len() + guarded * GUARDED > FULL || guarded > ALIKE && self.is_crowded()
    }

    /// Whether a packet with the chunk of one of the entries would be compared further with many.
    fn is_crowded(&self) -> bool {
        let guarded = self.blocks().iter().flat_map(Block::guarded);
        let firsts: Vec<_> = guarded.collect();
        let alike = |a: &(u128, u128), b: &(u128, u128)| a.0 & b.0 & (a.1 ^ b.1) == 0;
        let pairs: usize = firsts.iter().map(|a| firsts.iter().filter(|b| alike(a, b)).count()).sum();
        pairs > ALIKE * firsts.len()
    }

    /// All entries, with the slots of their rules.
    pub fn items(&self) -> impl Iterator<Item = Item> + '_ {
        self.blocks().iter().flat_map(Block::items)
    }

    pub fn push(&mut self, item: Item) {
        let chunk = chunk_of(&item.1.cover);
        if let Some(blocks) = &mut self.0
            && let Some(at) = blocks.iter().rposition(|block| block.has_room(chunk))
        {
            let block = &mut Arc::make_mut(blocks)[at];
            return block.set(block.len(), item);
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

/// The words of a packet's chunk, each four times.
pub(crate) type Words = [u32x4; 4];

/// Which of the first chunk's words the ports are.
const PORTS: usize = 2;

/// See [`Words`].
#[inline(always)]
fn words(chunk: u128) -> Words {
    cast::<u128, [u32; 4]>(chunk).map(u32x4::splat)
}

/// The same for the first chunk, its ports as [`Ports`] has them.
#[inline(always)]
pub(crate) fn first_words(chunk: u128) -> Words {
    let mut words = cast::<u128, [u32; 4]>(chunk);
    words[PORTS] = ports::numbers(words[PORTS]);
    words.map(u32x4::splat)
}

/// Gives `sink` the entries that hold for a packet.
#[inline(always)]
pub(crate) fn visit(blocks: &[Block], window: &Window, facts: Facts<'_>, sink: &mut Sink<'_>) {
    let words = first_words(window.chunk[0]);
    for block in blocks {
        sink.four(block.matches(&words, window, || facts), &block.slots);
    }
}
