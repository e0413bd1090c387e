//! A block: several entries that a packet is compared with at once.
//!
//! Theory of operation. A block stores one chunk of its entries' masks and keys, word by word. One vector
//! comparison then compares the same 32 bits of several entries. In blocks about the first chunk, the word
//! with the ports is compared as ranges, which include prefixes and single values (see `port_ranges`).
//! Conditions on other chunks, and ranges of fields, are compared for all entries of the block if an entry
//! agrees in the chunk and has some (see `further`). Entries with other tests are *guarded*: they are checked
//! in full if all words agree. Entries without a condition on the first chunk are in blocks about the chunk
//! in which they have most bits.
//!
//! Blocks have two widths. Four entries fill the registers of every machine and need little memory. Sixteen
//! entries fill the registers of machines with AVX-512, which compare all sixteen at the cost of four and
//! without a data-dependent loop. Other machines compare them four at a time.

use std::sync::Arc;

use bytemuck::cast;
use mmb_packet::window::CHUNKS;
use mmb_packet::{Window, prefetch};
use wide::{u16x8, u32x4};

use super::comparable::Comparable;
use super::further::Further;
use super::port_ranges;
use crate::pattern::{Entry, MaskedKey, RuleEntry, TruePredicates};
use crate::vector::VectorSummary;

/// The bits of the first chunk that have few different values in traffic: kind, protocol, input port.
pub(crate) const FEW_VALUES: u128 =
    u128::from_ne_bytes([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);

/// Entries that every machine compares at once.
pub(super) const QUAD: usize = 4;

/// Few packets match an entry that compares at least this many bits of the chunk.
const MIN_SELECTIVE: u32 = 4;

/// Index of the word with the ports in the first chunk.
pub(crate) const PORTS: usize = 2;

/// A block of four entries: three cache lines.
pub(crate) type Block4 = Block<QUAD>;

/// A block of eight entries.
pub(crate) type Block8 = Block<8>;

/// A block of sixteen entries.
pub(crate) type Block16 = Block<16>;

/// A block of `N` entries; `N` is a multiple of four.
#[repr(C, align(64))]
#[derive(Clone, Debug)]
pub(crate) struct Block<const N: usize> {
    /// The masks, indexed by word, then entry. In blocks about the first chunk, word [`PORTS`] holds the two
    /// lower bounds of the ports (16 bits each) in `mask` and the two upper bounds in `key`.
    pub mask: [[u32; N]; 4],
    pub key: [[u32; N]; 4],
    pub slots: [u32; N],
    /// Lanes whose entry has further conditions, as bits.
    partial: u16,
    /// Lanes whose entry has conditions that comparing words does not cover, as bits.
    guarded: u16,
    /// The chunk that is compared.
    chunk: u8,
    len: u8,
    /// The entries; lanes in use come first.
    entries: [Option<Arc<Entry>>; N],
    pub further: Further<N>,
}

const _: () =
    assert!(size_of::<Block4>() == 192 && size_of::<Block8>() == 384 && size_of::<Block16>() == 768);

impl<const N: usize> Block<N> {
    /// A block without entries. Its keys have bits outside their masks, which no packet satisfies.
    pub const EMPTY: Self = Block {
        mask: [[0; N]; 4],
        key: [[u32::MAX; N]; 4],
        slots: [0; N],
        partial: 0,
        guarded: 0,
        chunk: 0,
        len: 0,
        entries: [const { None }; N],
        further: Further::NONE,
    };

    /// An empty block for entries that are compared by this chunk.
    pub fn about(chunk: u8) -> Self {
        Block { chunk, ..Self::EMPTY }
    }

    /// Adds an entry, which is also given in comparable form. There must be [room](Block::has_room).
    pub fn push(&mut self, (slot, entry): RuleEntry, comparable: &Comparable) {
        let (lane, chunk) = (self.len(), self.chunk());
        let words = |chunks: &[u128; CHUNKS]| cast::<u128, [u32; 4]>(chunks[chunk]);
        let (mask, key) = (words(entry.cover().mask()), words(entry.cover().key()));
        for word in 0..4 {
            self.mask[word][lane] = mask[word];
            self.key[word][lane] = key[word];
        }
        if chunk == 0 {
            (self.mask[PORTS][lane], self.key[PORTS][lane]) = (comparable.ports.low, comparable.ports.high);
        }
        self.partial |= u16::from(self.further.add(lane, comparable, chunk)) << lane;
        self.guarded |= u16::from(comparable.needs_check(chunk)) << lane;
        self.slots[lane] = slot;
        self.len += 1;
        self.entries[lane] = Some(entry);
    }

    /// Whether there is room for an entry that is compared by this chunk.
    pub fn has_room(&self, chunk: u8) -> bool {
        self.chunk == chunk && self.len() < N
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len.into()
    }

    /// Number of entries that must be checked in full.
    pub fn guarded_len(&self) -> usize {
        self.guarded.count_ones() as usize
    }

    /// Number of entries with further conditions.
    pub fn partial_len(&self) -> usize {
        self.partial.count_ones() as usize
    }

    /// Number of entries with further conditions that are often compared, since the compared chunk hardly
    /// excludes packets.
    pub fn broad_len(&self) -> usize {
        let is_broad =
            |lane: &usize| self.partial & 1 << lane != 0 && self.selective_bits(*lane) < MIN_SELECTIVE;
        (0..self.len()).filter(is_broad).count()
    }

    /// The condition of an entry on the compared chunk, as a number of bits that it fixes.
    fn selective_bits(&self, lane: usize) -> u32 {
        let fixed = |word: usize| self.mask[word][lane].count_ones();
        if !self.is_about_first() {
            return (0..4).map(fixed).sum();
        }
        let [low, high] = [self.mask[PORTS][lane], self.key[PORTS][lane]].map(cast::<u32, [u16; 2]>);
        let values = |(low, high): (u16, u16)| u32::from(high.saturating_sub(low)) + 1;
        let ports = low.into_iter().zip(high).map(|ends| u16::BITS - values(ends).ilog2());
        fixed(0) + fixed(1) + ports.sum::<u32>()
    }

    /// All entries, with the slots of their rules.
    pub fn items(&self) -> impl Iterator<Item = RuleEntry> + '_ {
        self.slots.iter().zip(&self.entries).filter_map(|(slot, entry)| Some((*slot, entry.clone()?)))
    }

    /// All entries.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().flatten().map(|entry| &**entry)
    }

    /// Mask and key in the compared chunk, for each entry that must be checked in full.
    pub fn guarded_keys(&self) -> impl Iterator<Item = (u128, u128)> {
        let is_guarded = |lane: usize| self.guarded & 1 << lane != 0;
        let entries = self.entries.iter().enumerate().filter(move |(lane, _)| is_guarded(*lane));
        let chunk = self.chunk();
        let masked = move |cover: &MaskedKey| (cover.mask()[chunk], cover.key()[chunk]);
        entries.filter_map(move |(_, entry)| Some(masked(&entry.as_ref()?.cover())))
    }

    /// The compared chunk.
    #[inline(always)]
    pub fn chunk(&self) -> usize {
        usize::from(self.chunk) % CHUNKS
    }

    /// Whether the first chunk is compared.
    #[inline(always)]
    pub fn is_about_first(&self) -> bool {
        self.chunk == 0
    }

    /// Masks and keys of four entries in one word.
    #[inline(always)]
    fn quad(&self, word: usize, quad: usize) -> (u32x4, u32x4) {
        let four = |words: &[[u32; N]; 4]| u32x4::new(words[word].as_chunks().0[quad]);
        (four(&self.mask), four(&self.key))
    }

    /// Evaluates `agree` for each group of four entries; returns the agreeing lanes as bits.
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

    /// Whether no packet of a vector can match an entry.
    pub fn is_excluded(&self, summary: &VectorSummary) -> bool {
        let (all, any) = summary.bits(self.chunk());
        let (all, any) = (words(all), words(any));
        let differ = |word: usize, quad: usize| {
            let (mask, key) = self.quad(word, quad);
            (key & !any[word]) | (mask & !key & all[word])
        };
        let maybe = |quad: usize| {
            let never = (differ(0, quad) | differ(1, quad)) | (differ(2, quad) | differ(3, quad));
            never.simd_eq(u32x4::ZERO).to_bitmask()
        };
        let maybe = self.quads(maybe) & ((1 << self.len) - 1);
        // Hardly ever are more entries excluded altogether.
        let excluded = if N == QUAD { self.further.excluded_lanes(summary) } else { 0 };
        maybe & !excluded == 0
    }

    /// The lanes that agree in a chunk other than the first, as bits.
    #[inline(always)]
    pub fn agree_chunk(&self, window: &Window) -> u32 {
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

    /// The lanes that agree in the first chunk, as bits.
    #[inline(always)]
    pub fn agree_first(&self, words: &Words) -> u32 {
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

    /// The lanes whose entries agree with the packet in all compared words, as bits. Other lanes cannot
    /// match.
    #[inline(always)]
    pub fn agreeing_lanes(&self, first: &Words, window: &Window) -> u32 {
        let lanes = self.agreeing_chunk(first, window);
        if self.has_further(lanes) { lanes & self.further.agreeing_lanes(window) } else { lanes }
    }

    /// The lanes whose entries agree with the packet in the compared chunk, as bits.
    #[inline(always)]
    pub fn agreeing_chunk(&self, first: &Words, window: &Window) -> u32 {
        match self.chunk {
            0 => self.agree_first(first),
            _ => self.agree_chunk(window),
        }
    }

    /// Whether some of these lanes have further conditions.
    #[inline(always)]
    pub fn has_further(&self, lanes: u32) -> bool {
        lanes & u32::from(self.partial) != 0
    }

    /// The lanes that have further conditions, as bits.
    #[cfg(target_arch = "x86_64")]
    pub fn partial_lanes(&self) -> u16 {
        self.partial
    }

    /// Whether some of these lanes have conditions that comparing one chunk does not cover.
    #[inline(always)]
    pub fn has_conditions(&self, lanes: u32) -> bool {
        lanes & u32::from(self.partial | self.guarded) != 0
    }

    /// Whether any of some packets may match one of the entries.
    pub fn can_match_any(&self, windows: &[Window]) -> bool {
        let agree = |window: &Window| self.agreeing_lanes(&first_words(window.chunk[0]), window);
        windows.iter().fold(0, |any, window| any | agree(window)) != 0
    }

    /// The lanes whose entries match a packet, as bits. `first` holds the words of the packet's first chunk.
    #[inline(always)]
    pub fn matches<'a>(&self, first: &Words, window: &Window, facts: impl Fn() -> TruePredicates<'a>) -> u32 {
        self.confirm(self.agreeing_lanes(first, window), window, facts)
    }

    /// Reduces agreeing lanes to those whose entries match.
    #[inline(always)]
    pub fn confirm<'a>(&self, lanes: u32, window: &Window, facts: impl Fn() -> TruePredicates<'a>) -> u32 {
        if lanes & u32::from(self.guarded) == 0 {
            lanes
        } else {
            self.confirm_guarded(lanes, window, facts())
        }
    }

    /// Checks the guarded entries among `lanes` in full; returns the lanes that match.
    #[cold]
    #[inline(never)]
    fn confirm_guarded(&self, lanes: u32, window: &Window, facts: TruePredicates<'_>) -> u32 {
        let guarded = u32::from(self.guarded);
        let mut pass = lanes & !guarded;
        for (lane, entry) in self.entries.iter().enumerate() {
            if lanes & guarded & 1 << lane != 0
                && entry.as_ref().is_some_and(|e| e.covers(window) && e.passes(window, facts))
            {
                pass |= 1 << lane;
            }
        }
        pass
    }

    /// Prefetches what every comparison reads.
    #[inline(always)]
    pub fn prefetch(&self) {
        for word in (0..4).step_by(16 / N) {
            prefetch::read(&self.mask[word]);
            prefetch::read(&self.key[word]);
        }
        // The line of the slots has the lanes with conditions, too.
        prefetch::read(&self.slots);
    }
}

/// The words of a packet's chunk, each replicated four times.
pub(crate) type Words = [u32x4; 4];

/// The [`Words`] of a chunk.
#[inline(always)]
fn words(chunk: u128) -> Words {
    cast::<u128, [u32; 4]>(chunk).map(u32x4::splat)
}

/// The [`Words`] of a first chunk, with ports in host byte order.
#[inline(always)]
pub(crate) fn first_words(chunk: u128) -> Words {
    first_chunk_words(chunk).map(u32x4::splat)
}

/// The words of a first chunk, with ports in host byte order.
#[inline(always)]
pub(crate) fn first_chunk_words(chunk: u128) -> [u32; 4] {
    let mut words = cast::<u128, [u32; 4]>(chunk);
    words[PORTS] = port_ranges::host_order(words[PORTS]);
    words
}
