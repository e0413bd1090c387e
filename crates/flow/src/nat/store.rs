//! Records with numbers that do not change. Numbers of removed records are reused, the latest first.
//!
//! All memory is reserved at the start. The system allocates it when it is first written.

use std::io;

use bytemuck::Pod;
use mmb_packet::prefetch;

use crate::arena::{Arena, HUGE};

/// Not a number.
const NONE: u32 = u32::MAX;

/// Records with stable numbers, of four bytes at least.
#[derive(Debug)]
pub(super) struct Store<T> {
    records: Arena<T>,
    /// The number that was freed last, or [`NONE`]. A free record begins with the number that was freed
    /// before it.
    free: u32,
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
        const { assert!(size_of::<T>() >= size_of::<u32>()) };
        Ok(Store { records: Arena::new(capacity)?, free: NONE, freed: 0, begun: 0, capacity })
    }

    /// Makes the system allocate the memory of the first records.
    pub(super) fn allocate_first(&mut self) {
        self.records.allocate(0..HUGE);
    }

    /// Adds a record and returns its number. None if the store is full.
    #[inline]
    pub(super) fn insert(&mut self, record: T) -> Option<u32> {
        let number = self.next_number()?;
        if number == self.free {
            let before = bytemuck::bytes_of(self.records.at(number as usize)).first_chunk();
            self.free = before.map_or(NONE, |&before| u32::from_ne_bytes(before));
            self.freed -= 1;
        } else {
            self.begun += 1;
            self.records.request_next(self.begun);
        }
        *self.records.at_mut(number as usize) = record;
        if let Some(next) = self.next_number() {
            prefetch::read(self.records.at(next as usize));
        }
        Some(number)
    }

    /// The number of the next record. None if the store is full.
    #[inline]
    fn next_number(&self) -> Option<u32> {
        let fresh = (self.begun < self.capacity).then_some(self.begun as u32);
        if self.free == NONE { fresh } else { Some(self.free) }
    }

    /// Frees a number, which must be in use.
    #[inline]
    pub(super) fn remove(&mut self, number: u32) {
        let before = self.free.to_ne_bytes();
        if let Some(record) = self.get_mut(number)
            && let Some(place) = bytemuck::bytes_of_mut(record).first_chunk_mut()
        {
            *place = before;
            self.free = number;
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

    #[test]
    fn a_store_is_bounded_and_reuses_numbers() {
        let mut store = Store::new(3).unwrap();
        let added = [10u64, 11, 12, 13].map(|record| store.insert(record));
        assert_eq!((added, store.len()), ([Some(0), Some(1), Some(2), None], 3));
        [0, 2].into_iter().for_each(|number| store.remove(number));
        assert_eq!(
            (store.len(), store.insert(14), store.insert(15), store.insert(16)),
            (1, Some(2), Some(0), None)
        );
        assert_eq!([0, 1, 2].map(|number| store.get(number).copied()), [Some(15), Some(11), Some(14)]);
        assert_eq!((store.len(), store.get(3)), (3, None));
    }

    #[test]
    fn numbers_are_reused_before_new_ones_begin() {
        let mut store = Store::new(100).unwrap();
        assert!((0..4).all(|record: u32| store.insert(record) == Some(record)));
        [1, 3, 0].into_iter().for_each(|number| store.remove(number));
        let numbers: Vec<_> = (0..5).filter_map(|_| store.insert(u32::MAX)).collect();
        assert_eq!((numbers, store.len()), (vec![0, 3, 1, 4, 5], 6));
    }
}
