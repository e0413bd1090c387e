//! What the entries of a key require beyond the key.
//!
//! Theory of operation. A key of few bits is present for many packets, most of which match none of its
//! entries: these require further bits. A guard holds those in four bytes of the window, in a word that the
//! key's hash selects: the bits that all entries of the word's keys require. So it excludes such packets
//! nearly as cheaply as a filter excludes absent keys, and before anything else of the table is read.
//!
//! A word's mask loses bits and gains none, and its key stays as it is where the mask has bits. So all clones
//! of a table share the guard, as they share its filter; a rebuilt table has a new one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::cast_ref;
use mmb_packet::Window;
use mmb_packet::window::{BYTES, CHUNKS};

use super::hash::Hash;
use crate::pattern::MaskedKey;

/// Number of words for each key. With four, one key in five shares its word with another.
const WORDS_PER_KEY: usize = 4;

/// Maximum number of keys that are guarded: the words of more would crowd out of the caches what they save.
const MAX_KEYS: usize = 1 << 13;

/// Maximum number of keys that the choice of bytes looks at.
const SAMPLE: usize = 1 << 10;

/// Number of bytes that are compared.
const PLACES: usize = 4;

/// A guard pays if at most this share of the packets whose key is present pass.
const MAX_SHARE: f32 = 0.75;

/// A word that no key has selected. No used word is equal to it: their masks lack a bit.
const UNUSED: u64 = (u32::MAX as u64) << 32;

/// The guard of a table; see the module's documentation.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    /// Mask and key of the bytes, in the upper and the lower half. The number of words is a power of two.
    words: Arc<[AtomicU64]>,
    /// Shift that yields the word's index from a hash.
    shift: u32,
    /// The bytes of the window that are compared.
    places: [u8; PLACES],
}

impl Guard {
    /// An empty guard for a table. `keys` has for each key the bits that all of its entries require beyond
    /// it. None if they are too few for a guard to pay.
    pub fn new(keys: &[[u128; CHUNKS]]) -> Option<Guard> {
        if keys.is_empty() || keys.len() > MAX_KEYS {
            return None;
        }
        let words = (keys.len() * WORDS_PER_KEY).next_power_of_two();
        Some(Guard {
            words: (0..words).map(|_| AtomicU64::new(UNUSED)).collect(),
            shift: u64::BITS - words.ilog2(),
            places: choose_places(keys)?,
        })
    }

    /// Adds an entry with this cover. `hash` is that of its key.
    pub fn add(&self, hash: Hash, cover: &MaskedKey) {
        let Some(word) = self.words.get((hash.0 >> self.shift) as usize) else { return };
        let (mask, key) = (self.compared(cover.mask()) & !1, self.compared(cover.key()));
        // Only the words matter, which are published with the table.
        let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| {
            if old == UNUSED {
                return Some(u64::from(mask) << 32 | u64::from(key));
            }
            let (old_mask, old_key) = ((old >> 32) as u32, old as u32);
            Some(u64::from(old_mask & mask & !(old_key ^ key)) << 32 | u64::from(old_key))
        });
    }

    /// Whether a packet may match an entry of its key. False is certain.
    #[inline(always)]
    pub fn may_match(&self, hash: Hash, window: &Window) -> bool {
        let word = self.word(hash.0);
        (word >> 32) as u32 & (word as u32 ^ self.compared(&window.chunk)) == 0
    }

    /// The compared bytes of a window, or of masks of its chunks.
    #[inline(always)]
    fn compared(&self, chunks: &[u128; CHUNKS]) -> u32 {
        let bytes: &[u8; BYTES] = cast_ref(chunks);
        u32::from_ne_bytes(self.places.map(|place| bytes[usize::from(place).min(BYTES - 1)]))
    }

    #[inline(always)]
    fn word(&self, hash: u64) -> u64 {
        let word = self.words.get((hash >> self.shift) as usize);
        word.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }
}

/// The four bytes of the window that exclude most packets if each bit has two values equally often. None if
/// they exclude too few.
fn choose_places(keys: &[[u128; CHUNKS]]) -> Option<[u8; PLACES]> {
    let step = keys.len().div_ceil(SAMPLE);
    let keys: Vec<&[u8; BYTES]> = keys.iter().step_by(step).map(cast_ref).collect();
    // The share of packets with a key that have the bits of a byte, too.
    let share = |mask: &[u8; BYTES], place: usize| (-(mask[place].count_ones() as f32)).exp2();
    let (mut places, mut pass) = (Vec::new(), vec![1.0; keys.len()]);
    while places.len() < PLACES {
        let rest =
            |place: usize| pass.iter().zip(&keys).map(|(pass, mask)| pass * share(mask, place)).sum::<f32>();
        let others = (0..BYTES).filter(|place| !places.contains(place));
        let best = others.map(|place| (rest(place), place)).min_by(|a, b| a.0.total_cmp(&b.0))?.1;
        pass.iter_mut().zip(&keys).for_each(|(pass, mask)| *pass *= share(mask, best));
        places.push(best);
    }
    (pass.iter().sum::<f32>() <= MAX_SHARE * keys.len() as f32)
        .then(|| std::array::from_fn(|at| places[at] as u8))
}

#[cfg(test)]
mod tests;
