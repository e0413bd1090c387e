//! Whether any of the entries of a leaf may match a packet: one look instead of a comparison with each.
//!
//! Theory of operation. Rules on many masks often have the first bits of some fields in common: not the values, but that
//! these bits are asked for. A hash of what they are leads to one bit of a small map, which is set if some entry has such
//! a key. So most packets of other networks go past entries that no table was worth having for.

use crate::choose::FEW_VALUES;
use crate::leaf::Leaf;

/// Bits in the map.
const BITS: usize = 1024;

/// Fewer entries are compared as fast.
const FEW: usize = 6;

/// No more than this part of packets as they come by chance may get through.
const PART: f32 = 0.25;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Sieve {
    /// The bits that all entries ask for.
    mask: u128,
    map: [u64; BITS / 64],
}

impl Sieve {
    /// A sieve for a leaf; None: it would not be worth it.
    pub fn new(leaf: &Leaf) -> Option<Sieve> {
        let covers = || leaf.items().map(|(_, entry)| (entry.cover.mask()[0], entry.cover.key()[0]));
        let mask = covers().fold(u128::MAX, |all, (mask, _)| all & mask);
        let by_chance = (-((mask & !FEW_VALUES).count_ones() as f32)).exp2();
        if leaf.len() < FEW || leaf.len() as f32 * by_chance > PART {
            return None;
        }
        let mut sieve = Sieve { mask, map: [0; BITS / 64] };
        for (_, key) in covers() {
            let (word, bit) = sieve.place(key);
            sieve.map[word] |= bit;
        }
        Some(sieve)
    }

    /// Whether an entry may match a packet with this first chunk.
    #[inline(always)]
    pub fn passes(&self, chunk: u128) -> bool {
        let (word, bit) = self.place(chunk);
        self.map[word] & bit != 0
    }

    #[inline(always)]
    fn place(&self, chunk: u128) -> (usize, u64) {
        let key = chunk & self.mask;
        let (low, high) = (key as u64, (key >> 64) as u64);
        let hash =
            low.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ high.wrapping_mul(0xf39c_c060_5ced_c835).rotate_left(5);
        let at = hash >> (u64::BITS - BITS.ilog2());
        ((at >> 6) as usize % (BITS / 64), 1 << (at & 63))
    }
}
