//! Which keys a table may have: one look that tells most packets that theirs is not there.
//!
//! Theory of operation. A Bloom filter of which a key's bits all stand in one word (Putze, Sanders, Singler, "Cache-, hash- and
//! space-efficient Bloom filters", 2007): the hash chooses a word and two bits in it. It takes one load where the table itself
//! takes four, each of which waits for the one before.
//!
//! Bits are set and never cleared, so that clones of a table share one filter while keys come and go in each: what one of them
//! sets is at worst a look in vain for the others. A filter with too many bits set is made anew with its table.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::hash::Hash;

/// Bits for each key, at least: with two of them set, one key in fifty that is not there seems to be.
const BITS: usize = 16;

/// Fewest words: a cache line.
const LEAST: usize = 8;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    /// A power of two of them.
    words: Arc<[AtomicU64]>,
    /// How far down in a hash the number of its word is.
    shift: u32,
}

impl Filter {
    /// An empty filter for so many keys.
    pub fn new(keys: usize) -> Filter {
        let words = (keys * BITS / 64).next_power_of_two().max(LEAST);
        Filter { words: (0..words).map(|_| AtomicU64::new(0)).collect(), shift: u64::BITS - words.ilog2() }
    }

    /// Keys that it has room for.
    pub fn room(&self) -> usize {
        self.words.len() * 64 / BITS
    }

    /// Lets a key in.
    pub fn add(&self, hash: Hash) {
        if let Some(word) = self.words.get((hash.0 >> self.shift) as usize) {
            word.fetch_or(bits(hash), Ordering::Relaxed);
        }
    }

    /// Whether a key may be there: certain if false.
    #[inline(always)]
    pub fn may_have(&self, hash: Hash) -> bool {
        self.look().may_have(hash)
    }

    /// To ask about many keys.
    #[inline(always)]
    pub fn look(&self) -> Look<'_> {
        Look { words: &self.words, shift: self.shift }
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }
}

/// A filter as it is asked: a loop over many keys keeps it in registers, which the compiler cannot do with what stands in memory
/// while it reads words that others may write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look<'a> {
    words: &'a [AtomicU64],
    shift: u32,
}

impl Look<'_> {
    /// Whether a key may be there: certain if false.
    #[inline(always)]
    pub fn may_have(&self, hash: Hash) -> bool {
        let word = self.words.get((hash.0 >> self.shift) as usize);
        let word = word.map_or(0, |word| word.load(Ordering::Relaxed));
        !word & bits(hash) == 0
    }
}

/// A key's bits in its word. The number of the word comes from the hash's other end.
#[inline(always)]
fn bits(hash: Hash) -> u64 {
    1 << (hash.0 & 63) | 1 << (hash.0 >> 6 & 63)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::Seeds;

    #[test]
    fn lets_in_what_was_added_and_little_else() {
        let seeds = Seeds::from_seed(1);
        for keys in [0, 1, 100, 10_000] {
            let filter = Filter::new(keys);
            assert!(filter.room() >= keys);
            let shared = filter.clone();
            (0..keys as u128).for_each(|key| shared.add(seeds.hash(key)));
            assert!((0..keys as u128).all(|key| filter.may_have(seeds.hash(key))));
            let others = 1 << 60..(1 << 60) + 100_000u128;
            let seem = others.filter(|key| filter.may_have(seeds.hash(*key))).count();
            assert!(seem < 4_000, "{keys}: {seem}");
        }
    }
}
