//! What the entries of a key require beyond the key.
//!
//! Theory of operation. A key of few bits is present for many packets, most of which match none of its
//! entries: these require further bits. A guard holds those in four bytes of the window, in a slot that the
//! key's hash selects. A slot has two ways, and each entry is in one of them. A way has the bits that all of
//! its entries require; a packet passes if it has the bits of one of the two. So the guard excludes packets
//! nearly as cheaply as a filter excludes absent keys, and before anything else of the table is read.
//!
//! A way's mask loses bits and gains none, and its key stays as it is where the mask has bits. So all clones
//! of a table share the guard, as they share its filter; a rebuilt table has a new one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::cast_ref;
use mmb_packet::Window;
use mmb_packet::window::{BYTES, CHUNKS};

use super::hash::Hash;
use crate::pattern::MaskedKey;

/// Number of slots for each key. With two, two keys in five share their slot with another.
const SLOTS_PER_KEY: usize = 2;

/// Number of ways in a slot.
pub(super) const WAYS: usize = 2;

/// Maximum number of keys that are guarded: the slots of more would crowd out of the caches what they save.
pub(super) const MAX_KEYS: usize = 1 << 13;

/// Maximum number of ways that the choice of bytes looks at.
const SAMPLE: usize = 1 << 10;

/// Number of bytes that are compared.
const PLACES: usize = 4;

/// A guard pays if at most this share of the packets whose key is present pass.
const MAX_SHARE: f32 = 0.75;

/// A way without entries. No other is equal to it: their masks lack a bit. The key is one that hardly any
/// packet has.
const UNUSED: u64 = (u32::MAX as u64) << 32 | 0x9e37_79b1;

/// The guard of a table; see the module's documentation.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    /// Mask and key of the bytes for each way, in the upper and the lower half. The number of slots is a
    /// power of two.
    slots: Arc<[[AtomicU64; WAYS]]>,
    /// Shift that yields the slot's index from a hash.
    shift: u32,
    /// The bytes of the window that are compared.
    places: [u8; PLACES],
}

impl Guard {
    /// An empty guard for a table of `keys` keys, at most [`MAX_KEYS`]. `further` has for each way of each
    /// key the bits that its entries require beyond the key. None if they are too few for a guard to pay.
    pub fn new(keys: usize, further: &[[u128; CHUNKS]]) -> Option<Guard> {
        if keys == 0 {
            return None;
        }
        let slots = (keys * SLOTS_PER_KEY).next_power_of_two();
        Some(Guard {
            slots: (0..slots).map(|_| [const { AtomicU64::new(UNUSED) }; WAYS]).collect(),
            shift: u64::BITS - slots.ilog2(),
            places: choose_places(keys, further)?,
        })
    }

    /// Adds an entry with this cover. `hash` is that of its key.
    pub fn add(&self, hash: Hash, cover: &MaskedKey) {
        let Some(slot) = self.slots.get((hash.0 >> self.shift) as usize) else { return };
        let own = (self.compared(cover.mask()) & !1, self.compared(cover.key()));
        let left = |way: &&AtomicU64| match way.load(Ordering::Relaxed) {
            UNUSED => u32::BITS,
            way => mask_of(joined(way, own)).count_ones(),
        };
        let Some(way) = slot.iter().max_by_key(left) else { return };
        // Only the ways matter, which are published with the table.
        let _ = way.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |way| Some(joined(way, own)));
    }

    /// A reader for queries about many packets.
    #[inline(always)]
    pub fn reader(&self) -> GuardReader<'_> {
        let places = self.places.map(|place| usize::from(place).min(BYTES - 1));
        GuardReader { slots: &self.slots, shift: self.shift, places }
    }

    /// The compared bytes of masks or keys of a window's chunks.
    fn compared(&self, chunks: &[u128; CHUNKS]) -> u32 {
        self.reader().compared(chunks)
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }
}

/// A copy of the guard's address and places for a loop over many packets; see
/// [`FilterReader`](super::filter::FilterReader).
#[derive(Clone, Copy, Debug)]
pub(crate) struct GuardReader<'a> {
    slots: &'a [[AtomicU64; WAYS]],
    shift: u32,
    /// Less than [`BYTES`].
    places: [usize; PLACES],
}

impl GuardReader<'_> {
    /// Whether a packet may match an entry of its key, which has this hash. False is certain.
    #[inline(always)]
    pub fn may_match(&self, hash: Hash, window: &Window) -> bool {
        let own = self.compared(&window.chunk);
        let differs = |way: u64| mask_of(way) & (way as u32 ^ own) != 0;
        let [one, other] = self.slot(hash.0);
        !(differs(one) & differs(other))
    }

    /// The compared bytes of a window, or of masks of its chunks.
    #[inline(always)]
    pub fn compared(&self, chunks: &[u128; CHUNKS]) -> u32 {
        let bytes: &[u8; BYTES] = cast_ref(chunks);
        u32::from_ne_bytes(self.places.map(|place| bytes[place]))
    }

    /// The ways of all slots: mask and key of the compared bytes in the upper and the lower half. A hash
    /// selects a slot by its upper bits.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn ways(&self) -> &[AtomicU64] {
        self.slots.as_flattened()
    }

    /// Shift that yields the slot's index from a hash.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn shift(&self) -> u32 {
        self.shift
    }

    #[inline(always)]
    fn slot(&self, hash: u64) -> [u64; WAYS] {
        let slot = self.slots.get((hash >> self.shift) as usize);
        slot.map_or([0; WAYS], |slot| slot.each_ref().map(|way| way.load(Ordering::Relaxed)))
    }
}

/// The mask of a way.
#[inline(always)]
fn mask_of(way: u64) -> u32 {
    (way >> 32) as u32
}

/// A way with an entry of this mask and key: the bits that all of its entries require.
fn joined(way: u64, (mask, key): (u32, u32)) -> u64 {
    if way == UNUSED {
        return u64::from(mask) << 32 | u64::from(key);
    }
    let old_key = way as u32;
    u64::from(mask_of(way) & mask & !(old_key ^ key)) << 32 | u64::from(old_key)
}

/// The four bytes of the window that exclude most packets with one of `n` keys if each bit has two values
/// equally often. None if they exclude too few.
fn choose_places(n: usize, further: &[[u128; CHUNKS]]) -> Option<[u8; PLACES]> {
    let step = further.len().div_ceil(SAMPLE).max(1);
    let ways: Vec<&[u8; BYTES]> = further.iter().step_by(step).map(cast_ref).collect();
    // The share of packets with a key that have the bits of a byte, too.
    let share = |mask: &[u8; BYTES], place: usize| (-(mask[place].count_ones() as f32)).exp2();
    let (mut places, mut pass) = (Vec::new(), vec![1.0; ways.len()]);
    while places.len() < PLACES {
        let rest =
            |place: usize| pass.iter().zip(&ways).map(|(pass, mask)| pass * share(mask, place)).sum::<f32>();
        let others = (0..BYTES).filter(|place| !places.contains(place));
        let best = others.map(|place| (rest(place), place)).min_by(|a, b| a.0.total_cmp(&b.0))?.1;
        pass.iter_mut().zip(&ways).for_each(|(pass, mask)| *pass *= share(mask, best));
        places.push(best);
    }
    (pass.iter().sum::<f32>() * step as f32 <= MAX_SHARE * n as f32)
        .then(|| std::array::from_fn(|at| places[at] as u8))
}

#[cfg(test)]
mod tests;
