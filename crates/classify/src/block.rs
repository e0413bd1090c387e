//! Entries side by side: what a packet is compared with at once.
//!
//! Theory of operation. A block holds the first chunk of its entries' masks and keys word by word, so that one vector
//! comparison answers for the same 32 bits of several entries. The word with the ports is compared as ranges, which
//! prefixes and single values are, too ([`crate::ports`]). Only entries that ask for more (other chunks, other tests) and agree in that chunk
//! are looked at further. Entries that ask nothing of the first chunk stand in blocks about another, the one that says
//! most about them.
//!
//! Blocks come in two widths. Four entries fill the registers that every machine has, and take no more memory than few entries need;
//! sixteen those of machines with [512 bits](crate::wide), which compare all of them at what four cost, without a
//! loop whose end nobody can predict. Other machines compare them four at a time.

use std::sync::Arc;

use bytemuck::cast;
use mmb_packet::window::CHUNKS;
use mmb_packet::{Window, prefetch};
use wide::{u16x8, u32x4};

use crate::choose::FEW_VALUES;
use crate::leaf::Item;
use crate::masked::Masked;
use crate::pattern::{Entry, Facts};
use crate::ports::{self, Ports};

/// Entries that are compared at once on every machine.
const QUAD: usize = 4;

/// Which of the first chunk's words the ports are.
pub(crate) const PORTS: usize = 2;

/// Four entries: three cache lines.
pub(crate) type Narrow = Block<QUAD>;

/// Sixteen.
pub(crate) type Wide = Block<16>;

/// `N` entries, a multiple of four.
#[repr(align(64))]
#[derive(Clone, Debug)]
pub(crate) struct Block<const N: usize> {
    /// Word by word, entry by entry. In a block about the first chunk the word [`PORTS`] is two least values of 16 bits in
    /// `mask` and two greatest in `key`.
    pub mask: [[u32; N]; 4],
    pub key: [[u32; N]; 4],
    pub slots: [u32; N],
    /// Lanes whose entry asks for more than the chunk, as bits.
    guarded: u16,
    /// The chunk that is compared.
    chunk: u8,
    len: u8,
    /// Lanes in use come first.
    entries: [Option<Arc<Entry>>; N],
}

const _: () = assert!(size_of::<Narrow>() == 192 && size_of::<Wide>() == 768);

impl<const N: usize> Block<N> {
    /// No entry: a key outside its mask, which no packet satisfies.
    pub const EMPTY: Self = Block {
        mask: [[0; N]; 4],
        key: [[u32::MAX; N]; 4],
        slots: [0; N],
        guarded: 0,
        chunk: 0,
        len: 0,
        entries: [const { None }; N],
    };

    /// No entry yet, all of them about this chunk.
    pub fn about(chunk: u8) -> Self {
        Block { chunk, ..Self::EMPTY }
    }

    /// Adds an entry, for which there has to be [room](Block::has_room).
    pub fn push(&mut self, (slot, entry): Item) {
        let (lane, chunk) = (self.len(), self.chunk());
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
        self.guarded |= u16::from(asks_for_more(&entry, chunk)) << lane;
        self.slots[lane] = slot;
        self.len += 1;
        self.entries[lane] = Some(entry);
    }

    /// Whether there is room for an entry that is compared by this chunk.
    pub fn has_room(&self, chunk: u8) -> bool {
        self.chunk == chunk && self.len() < N
    }

    /// Entries.
    pub fn len(&self) -> usize {
        self.len.into()
    }

    /// Those that ask for more than the chunk.
    pub fn guards(&self) -> usize {
        self.guarded.count_ones() as usize
    }

    /// All entries, with the slots of their rules.
    pub fn items(&self) -> impl Iterator<Item = Item> + '_ {
        self.slots.iter().zip(&self.entries).filter_map(|(slot, entry)| Some((*slot, entry.clone()?)))
    }

    /// What the entries that ask for more than the chunk ask of it: masks and keys.
    pub fn guarded(&self) -> impl Iterator<Item = (u128, u128)> {
        let is_guarded = |lane: usize| self.guarded & 1 << lane != 0;
        let entries = self.entries.iter().enumerate().filter(move |(lane, _)| is_guarded(*lane));
        let chunk = self.chunk();
        let asked = move |cover: &Masked| (cover.mask()[chunk], cover.key()[chunk]);
        entries.filter_map(move |(_, entry)| Some(asked(&entry.as_ref()?.cover)))
    }

    /// The chunk that is compared.
    #[inline(always)]
    pub fn chunk(&self) -> usize {
        usize::from(self.chunk) % CHUNKS
    }

    /// Whether that is the first.
    #[inline(always)]
    pub fn is_about_first(&self) -> bool {
        self.chunk == 0
    }

    /// Four of a word's masks and keys.
    #[inline(always)]
    fn quad(&self, word: usize, quad: usize) -> (u32x4, u32x4) {
        let four = |words: &[[u32; N]; 4]| u32x4::new(words[word].as_chunks().0[quad]);
        (four(&self.mask), four(&self.key))
    }

    /// The lanes of which `agree` says so, four at a time, as bits.
    #[inline(always)]
    fn quads(&self, agree: impl Fn(usize) -> u32) -> u32 {
        let mut lanes = agree(0);
        for quad in 1..N / QUAD {
            if quad * QUAD < self.len() {
                lanes |= agree(quad) << (quad * QUAD);
            }
        }
        lanes
    }

    /// Whether none of some packets can match an entry: `all` are the bits that every packet has in the block's chunk,
    /// `any` those that some packet has.
    pub fn is_out_of_question(&self, all: u128, any: u128) -> bool {
        let (all, any) = (words(all), words(any));
        let differ = |word: usize, quad: usize| {
            let (mask, key) = self.quad(word, quad);
            (key & !any[word]) | (mask & !key & all[word])
        };
        let maybe = |quad: usize| {
            let never = (differ(0, quad) | differ(1, quad)) | (differ(2, quad) | differ(3, quad));
            never.simd_eq(u32x4::ZERO).to_bitmask()
        };
        self.quads(maybe) & ((1 << self.len) - 1) == 0
    }

    /// The lanes whose entries agree with a chunk that is not the first, as bits.
    #[inline(always)]
    fn agree_other(&self, window: &Window) -> u32 {
        let words = words(window.chunk[self.chunk()]);
        let differ = |word: usize, quad: usize| {
            let (mask, key) = self.quad(word, quad);
            (words[word] & mask) ^ key
        };
        self.quads(|quad| {
            let any = (differ(0, quad) | differ(1, quad)) | (differ(2, quad) | differ(3, quad));
            any.simd_eq(u32x4::ZERO).to_bitmask()
        })
    }

    /// The same for the first chunk.
    #[inline(always)]
    fn agree_first(&self, words: &Words) -> u32 {
        let differ = |word: usize, quad: usize| {
            let (mask, key) = self.quad(word, quad);
            (words[word] & mask) ^ key
        };
        self.quads(|quad| {
            let (low, high) = self.quad(PORTS, quad);
            let [ports, low, high] = [words[PORTS], low, high].map(cast::<u32x4, u16x8>);
            let outside = cast::<u16x8, u32x4>(low.saturating_sub(ports) | ports.saturating_sub(high));
            let any = (differ(0, quad) | differ(1, quad)) | (outside | differ(3, quad));
            any.simd_eq(u32x4::ZERO).to_bitmask()
        })
    }

    /// The lanes whose entries may match a packet, as bits: certain of those that may not.
    #[inline(always)]
    pub fn agree(&self, first: &Words, window: &Window) -> u32 {
        match self.chunk {
            0 => self.agree_first(first),
            _ => self.agree_other(window),
        }
    }

    /// Whether any of some packets may match one of the entries.
    pub fn agrees_with_any(&self, windows: &[Window]) -> bool {
        let agree = |window: &Window| self.agree(&first_words(window.chunk[0]), window);
        windows.iter().fold(0, |any, window| any | agree(window)) != 0
    }

    /// The lanes whose entries hold for a packet, as bits; `first` are the words of its first chunk.
    #[inline(always)]
    pub fn matches<'a>(&self, first: &Words, window: &Window, facts: impl Fn() -> Facts<'a>) -> u32 {
        self.certain(self.agree(first, window), window, facts)
    }

    /// Of the lanes that agree those whose entries hold.
    #[inline(always)]
    pub fn certain<'a>(&self, lanes: u32, window: &Window, facts: impl Fn() -> Facts<'a>) -> u32 {
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

    /// Brings the block close.
    #[inline(always)]
    pub fn prefetch(&self) {
        for half in [&self.mask, &self.key] {
            half.as_flattened().iter().step_by(16).for_each(prefetch::read);
        }
        prefetch::read(&self.slots);
    }
}

/// The words of a packet's chunk, each four times.
pub(crate) type Words = [u32x4; 4];

/// See [`Words`].
#[inline(always)]
fn words(chunk: u128) -> Words {
    cast::<u128, [u32; 4]>(chunk).map(u32x4::splat)
}

/// The same for the first chunk, its ports as [`Ports`] has them.
#[inline(always)]
pub(crate) fn first_words(chunk: u128) -> Words {
    numbers(chunk).map(u32x4::splat)
}

/// The words of a first chunk, its ports as [`Ports`] has them.
#[inline(always)]
pub(crate) fn numbers(chunk: u128) -> [u32; 4] {
    let mut words = cast::<u128, [u32; 4]>(chunk);
    words[PORTS] = ports::numbers(words[PORTS]);
    words
}

/// The chunk by which an entry is compared: the first, unless that says little.
pub(crate) fn chunk_of(cover: &Masked) -> u8 {
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
