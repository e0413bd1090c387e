//! Addresses as the trie uses them: bits from the most significant down.

use super::codes::{Codes, Root};
use super::rows::Rows;

/// An address of either family, in host byte order.
pub trait Address: Copy + Eq + Default + std::fmt::Debug {
    /// Address type of the standard library.
    type Ip: From<Self> + Into<Self>;
    /// Type of the root array. IPv4's root has few node entries among many /24s; IPv6's has mostly node
    /// entries.
    type Root: Root;
    /// Length of an address in bits.
    const BITS: u32;
    /// Number of bits that index the root.
    const ROOT: u32;
    /// Number of bits that index the table of the shortest prefixes.
    const TOP: u32;
    /// Words before a node's values: the bitmap, the cover, and the key from [`Address::KEY`] on.
    const HEADER: usize;
    /// Index of the key's first word.
    const KEY: usize;

    /// The first `n` bits as a number; `n` is 1 to 32.
    fn first(self, n: u32) -> usize;
    /// The six bits behind the first `depth` bits; bits beyond the end are 0.
    fn stride_bits(self, depth: u32) -> usize;
    /// The first `n` bits, the others 0.
    fn masked(self, n: u32) -> Self;
    /// Length of the common prefix of two addresses in bits.
    fn common_prefix_len(self, other: Self) -> u32;
    /// Whether the first `n` bits are equal; `n` is at least 1.
    fn has_common_prefix(self, other: Self, n: u32) -> bool;
    /// Writes the address into a node's first granule.
    fn put(self, words: &mut [u32; 8]);
    /// Reads the address from a node's first granule.
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
        fn stride_bits(self, depth: u32) -> usize {
            (self << depth >> (Self::BITS - 6)) as usize
        }

        fn masked(self, n: u32) -> Self {
            self & Self::MAX.checked_shl(Self::BITS - n).unwrap_or(0)
        }

        fn common_prefix_len(self, other: Self) -> u32 {
            (self ^ other).leading_zeros()
        }

        #[inline(always)]
        fn has_common_prefix(self, other: Self, n: u32) -> bool {
            (self ^ other) >> (Self::BITS - n) == 0
        }
    };
}

impl Address for u32 {
    common!();
    type Ip = std::net::Ipv4Addr;
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

impl Address for u128 {
    common!();
    type Ip = std::net::Ipv6Addr;
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
