//! A filter in front of a leaf: excludes most packets with one lookup.
//!
//! Theory of operation. Entries with many different masks often share some mask bits, for example the first
//! bits of the source address. The values of the shared bits are hashed to one bit of a small map. The bit is
//! set if some entry has this value. A packet whose bit is not set matches no entry of the leaf.

use bytemuck::cast;

use super::block::FEW_VALUES;
use super::blocks::Leaf;

/// Number of bits in the map.
const BITS: usize = 1024;

/// With fewer entries a comparison is as fast.
const MIN_ENTRIES: usize = 6;

/// Maximum share of random packets that may pass the filter.
const MAX_SHARE: f32 = 0.25;

/// The filter of a leaf; see the module's documentation.
#[derive(Clone, Debug)]
pub(crate) struct PreFilter {
    /// The mask bits that all entries share.
    mask: u128,
    map: [u64; BITS / 64],
}

impl PreFilter {
    /// Factors of a chunk's words. The upper bits of the lower half of the sum are the hash.
    pub const FACTORS: [u32; 4] = [0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d, 0x27d4_eb2f];
    /// Shift that yields the hash, after the upper half of the sum is shifted out.
    pub const SHIFT: u32 = u64::BITS - BITS.ilog2();

    /// A filter for a leaf, or None if it would not pay.
    pub fn new(leaf: &Leaf) -> Option<PreFilter> {
        let covers = || leaf.items().map(|(_, entry)| (entry.mask(0), entry.key(0)));
        let mask = covers().fold(u128::MAX, |all, (mask, _)| all & mask);
        let by_chance = (-((mask & !FEW_VALUES).count_ones() as f32)).exp2();
        if leaf.len() < MIN_ENTRIES || leaf.len() as f32 * by_chance > MAX_SHARE {
            return None;
        }
        let mut filter = PreFilter { mask, map: [0; BITS / 64] };
        for (_, key) in covers() {
            let (word, bit) = filter.bit_of(key);
            filter.map[word] |= bit;
        }
        Some(filter)
    }

    /// Whether an entry may match a packet with this first chunk.
    #[inline(always)]
    pub fn can_match(&self, chunk: u128) -> bool {
        let (word, bit) = self.bit_of(chunk);
        self.map[word] & bit != 0
    }

    /// The mask bits that all entries share.
    #[cfg(target_arch = "x86_64")]
    pub fn mask(&self) -> u128 {
        self.mask
    }

    /// The map.
    #[cfg(target_arch = "x86_64")]
    pub fn map(&self) -> &[u64; BITS / 64] {
        &self.map
    }

    #[inline(always)]
    fn bit_of(&self, chunk: u128) -> (usize, u64) {
        let words: [u32; 4] = cast(chunk & self.mask);
        let products = words.iter().zip(Self::FACTORS).map(|(word, factor)| word.wrapping_mul(factor));
        let sum = products.fold(0u32, u32::wrapping_add);
        let at = u64::from(sum) << 32 >> Self::SHIFT;
        ((at >> 6) as usize % (BITS / 64), 1 << (at & 63))
    }
}
