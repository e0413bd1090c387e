//! Records with stable numbers, and an index from hashes to numbers.
//!
//! # Theory of operation
//!
//! A [`Store`] keeps records at numbers that do not change, and reuses numbers. An [`Index`] maps the hash of
//! a record to its number, with open addressing and linear probing. At least a quarter of the slots is free.
//! A slot holds the whole hash, so only records with an equal hash are compared, and moves need no record. A
//! deletion leaves no tombstone: later entries move up.
//!
//! All memory is reserved at the start. The system allocates it when it is first written.

use std::hash::Hasher as _;
use std::io;

use bytemuck::Pod;
use mmb_packet::prefetch;
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use siphasher::sip::SipHasher24;

use crate::arena::{Arena, HUGE};

/// A hash of two numbers with a secret seed. Without the seed, an attacker cannot construct collisions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hasher([u64; 2]);

impl Hasher {
    pub(super) fn new(seed: u64) -> Hasher {
        let mut random = SmallRng::seed_from_u64(seed);
        Hasher([random.next_u64(), random.next_u64()])
    }

    #[inline]
    pub(super) fn hash(&self, a: u64, b: u64) -> u32 {
        let folded = fold(a ^ self.0[0], b ^ self.0[1]);
        (folded ^ folded >> 32) as u32
    }

    /// SipHash-2-4 of `n`, a pseudorandom function: its results for other numbers do not tell this one.
    #[inline]
    pub(super) fn pseudorandom(&self, n: u64) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.0[0], self.0[1]);
        hasher.write_u64(n);
        hasher.finish()
    }
}

/// The 128-bit product of two numbers, folded to 64 bits.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b);
    wide as u64 ^ (wide >> 64) as u64
}

/// Prefetches the slot of a hash, one of many, into the L2 cache.
#[inline(always)]
pub(super) fn prefetch_in(slots: &[u64], hash: u32) {
    if let Some(slot) = first(slots, hash) {
        prefetch::read_l2(slot);
    }
}

/// The place at which the search for a hash begins.
#[inline(always)]
fn first(slots: &[u64], hash: u32) -> Option<&u64> {
    slots.get(hash as usize & slots.len().wrapping_sub(1))
}

/// An index from hashes to numbers.
#[derive(Debug)]
pub(super) struct Index {
    /// Hash in the upper half, number + 1 in the lower half; 0 if free. Their number is a power of two.
    slots: Arena<u64>,
}

/// The slot at a position. Positions past the end wrap around.
#[inline]
fn slot(slots: &[u64], at: usize) -> u64 {
    slots.get(at & (slots.len() - 1)).copied().unwrap_or(0)
}

#[inline]
fn set(slots: &mut [u64], at: usize, value: u64) {
    let mask = slots.len() - 1;
    if let Some(slot) = slots.get_mut(at & mask) {
        *slot = value;
    }
}

impl Index {
    /// Creates an index for `capacity` numbers.
    ///
    /// # Errors
    /// The operating system's error if it cannot reserve the address space.
    pub(super) fn new(capacity: usize) -> io::Result<Index> {
        Ok(Index { slots: Arena::new((capacity + capacity / 3 + 1).next_power_of_two())? })
    }

    /// Makes the system allocate the memory, so that no packet waits for it.
    pub(super) fn allocate(&mut self) {
        self.slots.allocate(0..usize::MAX);
    }

    /// Prefetches the slot of a hash.
    #[inline]
    pub(super) fn prefetch(&self, hash: u32) {
        if let Some(slot) = first(self.slots.get(), hash) {
            prefetch::read(slot);
        }
    }

    /// Prefetches the slots for the removal of a hash. The next slot is read too, and may lie in another
    /// cache line.
    #[inline]
    pub(super) fn prefetch_removal(&self, hash: u32) {
        let slots = self.slots.get();
        prefetch_in(slots, hash);
        prefetch_in(slots, hash.wrapping_add(1));
    }

    /// The slots, for [`prefetch_in`].
    pub(super) fn slots(&self) -> &[u64] {
        self.slots.get()
    }

    /// The number with this hash for which `is` returns true.
    #[inline]
    pub(super) fn find(&self, hash: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
        let slots = self.slots.get();
        let mut at = hash as usize;
        loop {
            let slot = slot(slots, at);
            if slot == 0 {
                return None;
            }
            let number = (slot as u32).wrapping_sub(1);
            if (slot >> 32) as u32 == hash && is(number) {
                return Some(number);
            }
            at += 1;
        }
    }

    /// Adds a number below 2^32 - 1. There must be room, and the number must not be in the index.
    #[inline]
    pub(super) fn insert(&mut self, hash: u32, number: u32) {
        let slots = self.slots.get_mut();
        let mut at = hash as usize;
        while slot(slots, at) != 0 {
            at += 1;
        }
        set(slots, at, (u64::from(hash) << 32) | u64::from(number + 1));
    }

    /// Removes a number. Does nothing if it is not in the index.
    pub(super) fn remove(&mut self, hash: u32, number: u32) {
        let slots = self.slots.get_mut();
        let wanted = (u64::from(hash) << 32) | u64::from(number + 1);
        let mut hole = hash as usize;
        loop {
            match slot(slots, hole) {
                0 => return,
                slot if slot == wanted => break,
                _ => hole += 1,
            }
        }
        let mask = slots.len() - 1;
        let mut at = hole;
        loop {
            at += 1;
            let slot = slot(slots, at);
            if slot == 0 {
                break;
            }
            // An entry may move to the hole unless its first slot lies after the hole.
            let from_first = at.wrapping_sub((slot >> 32) as usize) & mask;
            if from_first >= (at.wrapping_sub(hole)) & mask {
                set(slots, hole, slot);
                hole = at;
            }
        }
        set(slots, hole, 0);
    }
}

/// Records with stable numbers.
#[derive(Debug)]
pub(super) struct Store<T> {
    records: Arena<T>,
    /// Free numbers.
    free: Arena<u32>,
    freed: usize,
    /// Numbers from here on have never been in use.
    begun: usize,
    capacity: usize,
}

impl<T: Pod> Store<T> {
    /// Creates a store for `capacity` records.
    ///
    /// # Errors
    /// The operating system's error if it cannot reserve the address space.
    pub(super) fn new(capacity: usize) -> io::Result<Store<T>> {
        Ok(Store {
            records: Arena::new(capacity)?,
            free: Arena::new(capacity)?,
            freed: 0,
            begun: 0,
            capacity,
        })
    }

    /// Makes the system allocate the memory of the first records.
    pub(super) fn allocate_first(&mut self) {
        self.records.allocate(0..HUGE);
        self.free.allocate(0..HUGE);
    }

    /// Adds a record and returns its number. None if the store is full.
    #[inline]
    pub(super) fn insert(&mut self, record: T) -> Option<u32> {
        let number = if self.freed > 0 {
            self.freed -= 1;
            *self.free.get().get(self.freed)?
        } else if self.begun < self.capacity {
            self.begun += 1;
            self.records.request_next(self.begun);
            self.free.request_next(self.begun);
            self.begun as u32 - 1
        } else {
            return None;
        };
        *self.records.at_mut(number as usize) = record;
        Some(number)
    }

    /// Frees a number, which must be in use.
    #[inline]
    pub(super) fn remove(&mut self, number: u32) {
        if let Some(free) = self.free.get_mut().get_mut(self.freed) {
            *free = number;
            self.freed += 1;
        }
    }

    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&T> {
        ((number as usize) < self.capacity).then(|| self.records.at(number as usize))
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        ((number as usize) < self.capacity).then(|| self.records.at_mut(number as usize))
    }

    /// Prefetches a record.
    pub(super) fn prefetch(&self, number: u32) {
        if let Some(record) = self.get(number) {
            prefetch::read_l2(record);
        }
    }

    /// Number of records.
    pub(super) fn len(&self) -> usize {
        self.begun - self.freed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        /// With colliding hashes and wrap-around, the index agrees with a set.
        #[test]
        fn index_is_a_set(ops in prop::collection::vec((any::<bool>(), 0u32..24), 1..400)) {
            let hash = |n: u32| if n < 12 { u32::MAX - n % 3 } else { n % 5 };
            let (mut index, mut model) = (Index::new(24).unwrap(), HashSet::new());
            for (add, n) in ops {
                if add && model.insert(n) {
                    index.insert(hash(n), n);
                } else if !add {
                    model.remove(&n);
                    index.remove(hash(n), n);
                }
                for m in 0..24 {
                    let found = index.find(hash(m), |candidate| candidate == m);
                    prop_assert_eq!(found, model.contains(&m).then_some(m));
                }
            }
        }
    }

    #[test]
    fn a_store_is_bounded_and_reuses_numbers() {
        let mut store = Store::new(2).unwrap();
        let (a, b) = (store.insert(b'a'), store.insert(b'b'));
        assert_eq!((a, b, store.insert(b'c'), store.len()), (Some(0), Some(1), None, 2));
        store.remove(0);
        assert_eq!(
            (store.len(), store.insert(b'd'), store.get(0), store.get(1)),
            (1, Some(0), Some(&b'd'), Some(&b'b'))
        );
    }

    #[test]
    fn hashes_depend_on_the_seed_and_on_both_numbers() {
        let (a, b) = (Hasher::new(1), Hasher::new(2));
        assert_ne!(a.hash(7, 7), b.hash(7, 7));
        let all: HashSet<_> = (0..1000).flat_map(|n| [a.hash(n, 1), a.hash(n, 2)]).collect();
        assert_eq!(all.len(), 2000);
    }
}
