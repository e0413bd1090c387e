//! A Bloom filter over the keys of a table.
//!
//! Theory of operation. All bits of a key are in one word (Putze, Sanders, Singler, "Cache-, hash- and
//! space-efficient Bloom filters", 2007): the hash selects a word and two bits in it. A query takes one load,
//! while the table takes four dependent loads.
//!
//! Bits are set and never cleared, so clones of a table share one filter. A key that only another clone has
//! costs at worst a wasted probe. A filter with too many bits set is replaced when its table is rebuilt.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::hash::Hash;

/// Minimum number of bits for each key. With two bits set, about one of fifty absent keys passes.
const BITS_PER_KEY: usize = 16;

/// Minimum number of words: a cache line.
const MIN_WORDS: usize = 8;

/// The filter of a table; see the module's documentation.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    /// The number of words is a power of two.
    words: Arc<[AtomicU64]>,
    /// Shift that yields the word's index from a hash.
    shift: u32,
}

impl Filter {
    /// An empty filter for this many keys.
    pub fn new(keys: usize) -> Filter {
        let words = (keys * BITS_PER_KEY / 64).next_power_of_two().max(MIN_WORDS);
        Filter { words: (0..words).map(|_| AtomicU64::new(0)).collect(), shift: u64::BITS - words.ilog2() }
    }

    /// Number of keys that the filter has room for.
    pub fn room(&self) -> usize {
        self.words.len() * 64 / BITS_PER_KEY
    }

    /// Adds a key.
    pub fn add(&self, hash: Hash) {
        if let Some(word) = self.words.get((hash.0 >> self.shift) as usize) {
            word.fetch_or(bits(hash), Ordering::Relaxed);
        }
    }

    /// Whether the key may be present. False is certain.
    #[inline(always)]
    pub fn may_contain(&self, hash: Hash) -> bool {
        self.reader().may_contain(hash)
    }

    /// A reader for queries about many keys.
    #[inline(always)]
    pub fn reader(&self) -> FilterReader<'_> {
        FilterReader { words: &self.words, shift: self.shift }
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }
}

/// A copy of the filter's address and size for a loop over many keys. It keeps them in registers. The
/// compiler cannot do this for values in memory while other threads may write the words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FilterReader<'a> {
    words: &'a [AtomicU64],
    shift: u32,
}

impl FilterReader<'_> {
    /// Whether the key may be present. False is certain.
    #[inline(always)]
    pub fn may_contain(&self, hash: Hash) -> bool {
        !self.word(hash.0) & bits(hash) == 0
    }

    /// All words. A hash selects one of them by its upper bits.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn words(&self) -> &[AtomicU64] {
        self.words
    }

    /// Shift that yields the word's index from a hash.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn shift(&self) -> u32 {
        self.shift
    }

    #[inline(always)]
    fn word(&self, hash: u64) -> u64 {
        let word = self.words.get((hash >> self.shift) as usize);
        word.map_or(0, |word| word.load(Ordering::Relaxed))
    }
}

/// The bits of a key in its word. The word's index comes from the other end of the hash.
#[inline(always)]
fn bits(hash: Hash) -> u64 {
    1 << (hash.0 & 63) | 1 << (hash.0 >> 6 & 63)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Seeds;

    #[test]
    fn contains_added_keys_and_few_others() {
        let seeds = Seeds::from_seed(1);
        for keys in [0, 1, 100, 10_000] {
            let filter = Filter::new(keys);
            assert!(filter.room() >= keys);
            let shared = filter.clone();
            (0..keys as u128).for_each(|key| shared.add(seeds.hash(key)));
            assert!((0..keys as u128).all(|key| filter.may_contain(seeds.hash(key))));
            let others = 1 << 60..(1 << 60) + 100_000u128;
            let seem = others.filter(|key| filter.may_contain(seeds.hash(*key))).count();
            assert!(seem < 4_000, "{keys}: {seem}");
        }
    }
}
