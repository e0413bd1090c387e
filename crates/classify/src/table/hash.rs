//! The hash of a masked chunk.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// A seeded hash of a 16-byte chunk: one folded 64 × 64 → 128 bit multiplication.
///
/// The seed does not need to be secret. Packets never insert keys into the tables, so crafted packets can
/// only cause one more comparison for themselves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seeds([u64; 2]);

impl Seeds {
    /// Seeds that differ between processes.
    pub fn random() -> Self {
        Self::from_seed(RandomState::new().hash_one(0u64))
    }

    /// Seeds derived from one number (SplitMix64).
    pub fn from_seed(mut seed: u64) -> Self {
        Seeds(std::array::from_fn(|_| {
            seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = seed;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }))
    }

    /// Seeds under which all keys collide.
    #[cfg(test)]
    pub fn useless() -> Self {
        Seeds([0; 2])
    }

    /// The numbers that the two halves of a chunk are combined with.
    #[cfg(target_arch = "x86_64")]
    pub fn words(&self) -> [u64; 2] {
        self.0
    }

    /// Hashes a masked chunk.
    #[inline(always)]
    pub fn hash(&self, key: u128) -> Hash {
        let product = u128::from(key as u64 ^ self.0[0]) * u128::from((key >> 64) as u64 ^ self.0[1]);
        Hash(product as u64 ^ (product >> 64) as u64)
    }
}

/// A key's hash; its parts (directory, tag, group) do not share bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hash(pub u64);

impl Hash {
    /// Most bits that [`Hash::directory`] can give.
    pub const DIRECTORY_BITS: u32 = 24;

    /// Index in a directory of `2^depth` pages; `depth` is at most [`Hash::DIRECTORY_BITS`].
    #[inline(always)]
    pub fn directory(self, depth: u32) -> usize {
        ((self.0 >> 32) >> (32 - depth)) as usize
    }

    /// Tag within a group; never 0, which marks a free lane.
    #[inline(always)]
    pub fn tag(self) -> u16 {
        (self.0 >> 16) as u16 | 1
    }

    /// Group in a page of `groups` (a power of two) groups.
    #[inline(always)]
    pub fn group(self, groups: usize) -> usize {
        self.0 as u16 as usize & (groups - 1)
    }
}
