//! Addresses as the trie sees them: bits from the top.

use super::codes::{Codes, Root};
use super::rows::Rows;

/// An address of either family, in host byte order.
pub(crate) trait Bits: Copy + Eq + Default + std::fmt::Debug {
    /// The root: IPv4's has few entries of nodes among many /24s, IPv6's little else.
    type Root: Root;
    /// Its bits.
    const BITS: u32;
    /// Bits that the root is indexed by.
    const ROOT: u32;
    /// Bits that the table of the shortest prefixes is indexed by.
    const TOP: u32;
    /// Words in front of a node's values: the bitmap, the cover, and from [`Bits::KEY`] on the key.
    const HEADER: usize;
    /// Where the key begins.
    const KEY: usize;

    /// The first `n` bits as a number; `n` is 1 to 32.
    fn first(self, n: u32) -> usize;
    /// The six bits behind the first `depth` ones; those behind the address's end are 0.
    fn six(self, depth: u32) -> usize;
    /// The first `n` bits, the others 0.
    fn masked(self, n: u32) -> Self;
    /// How many first bits two addresses share.
    fn shared(self, other: Self) -> u32;
    /// Whether they share the first `n` bits; `n` is at least 1.
    fn same(self, other: Self, n: u32) -> bool;
    /// Writes it into a node's first granule.
    fn put(self, words: &mut [u32; 8]);
    /// Reads it from there.
    fn get(words: &[u32; 8]) -> Self;
}

macro_rules! common {
    () => {
        const BITS: u32 = Self::BITS;

        #[inline(always)]
        fn first(self, n: u32) -> usize {
            (self >> (Self::BITS - n)) as usize
        }

        #[inline(always)]
        fn six(self, depth: u32) -> usize {
            (self << depth >> (Self::BITS - 6)) as usize
        }

        fn masked(self, n: u32) -> Self {
            self & Self::MAX.checked_shl(Self::BITS - n).unwrap_or(0)
        }

        fn shared(self, other: Self) -> u32 {
            (self ^ other).leading_zeros()
        }

        #[inline(always)]
        fn same(self, other: Self, n: u32) -> bool {
            (self ^ other) >> (Self::BITS - n) == 0
        }
    };
}

impl Bits for u32 {
    common!();
    type Root = Rows;
    const ROOT: u32 = 24;
    const TOP: u32 = 10;
    const HEADER: usize = 4;
    const KEY: usize = 3;

    fn put(self, words: &mut [u32; 8]) {
        words[Self::KEY] = self;
    }

    #[inline(always)]
    fn get(words: &[u32; 8]) -> Self {
        words[Self::KEY]
    }
}

impl Bits for u128 {
    common!();
    type Root = Codes;
    const ROOT: u32 = 24;
    const TOP: u32 = 12;
    const HEADER: usize = 8;
    const KEY: usize = 4;

    fn put(self, words: &mut [u32; 8]) {
        for (at, word) in words[Self::KEY..].iter_mut().enumerate() {
            *word = (self >> (32 * at)) as u32;
        }
    }

    #[inline(always)]
    fn get(words: &[u32; 8]) -> Self {
        let pair = |at: usize| u64::from(words[at]) | u64::from(words[at + 1]) << 32;
        u128::from(pair(Self::KEY)) | u128::from(pair(Self::KEY + 2)) << 64
    }
}
