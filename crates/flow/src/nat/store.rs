//! Records with numbers that do not change. Numbers of removed records are reused.
//!
//! All memory is reserved at the start. The system allocates it when it is first written.

use std::io;

use bytemuck::Pod;
use mmb_packet::prefetch;

use crate::arena::{Arena, HUGE};

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
        self.prefetch_free();
        Some(number)
    }

    /// Prefetches the record that the next insertion will write.
    #[inline]
    fn prefetch_free(&self) {
        let last = self.freed.checked_sub(1).and_then(|at| self.free.get().get(at));
        if let Some(record) = self.get(last.map_or(self.begun as u32, |&number| number)) {
            prefetch::read(record);
        }
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
}
