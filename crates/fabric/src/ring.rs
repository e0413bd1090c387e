//! Rings of descriptors with one producer and one consumer.
//!
//! # Theory of operation
//! Two counters of 64 bits only grow: descriptors written, and descriptors read. They are in cache lines of
//! their own, two lines apart because processors prefetch pairs. Each side keeps its counter in private
//! memory and publishes it once for many descriptors; it reads the other's counter only if the last value
//! says that there is nothing to do. What the other side writes is not trusted: a counter that is impossible
//! makes the ring [`Broken`], and no access leaves the slots.

#[cfg(test)]
mod tests;

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::descriptor::Descriptor;
use crate::words::{Word, Words};

/// Descriptors written.
const TAIL: usize = 0;
/// Descriptors read.
const HEAD: usize = 16;
const SLOTS: usize = 32;

/// The other side of a ring has written a counter that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other side of the ring has written an impossible counter")]
pub struct Broken;

/// Returns the words of a ring with room for so many descriptors, a power of two.
pub const fn words(capacity: usize) -> usize {
    SLOTS + 2 * capacity
}

/// Returns the counters of a ring: descriptors written, and read. Both are what the ends have published.
pub fn counters(memory: &impl Words) -> (u64, u64) {
    let word = |at: usize| memory.words().get(at).map_or(0, |word| word.load(Relaxed));
    (word(TAIL), word(HEAD))
}

/// Returns the number of slots in some words. None: they are no ring.
fn capacity(memory: &impl Words) -> Option<u64> {
    let slots = memory.words().len().checked_sub(SLOTS)? / 2;
    (slots.is_power_of_two() && memory.words().len() == words(slots)).then_some(slots as u64)
}

#[inline(always)]
fn slot<W: Word>(words: &[W], number: u64, capacity: u64) -> Option<&[W; 2]> {
    words.get(SLOTS + 2 * (number & (capacity - 1)) as usize..)?.first_chunk()
}

/// The end of a ring that writes.
#[derive(Debug)]
pub struct Producer<M> {
    memory: M,
    capacity: u64,
    /// Descriptors written, and the part of them that the consumer may know.
    tail: u64,
    published: u64,
    /// The consumer's counter as it was read last.
    head: u64,
}

impl<M: Words> Producer<M> {
    /// Makes the end of an empty ring. None: the memory has not the size of a ring ([`words`]).
    pub fn new(memory: M) -> Option<Producer<M>> {
        let capacity = capacity(&memory)?;
        Some(Producer { memory, capacity, tail: 0, published: 0, head: 0 })
    }

    /// Returns the number of descriptors for which there is room. It grows when the consumer reads.
    ///
    /// # Errors
    /// The consumer's counter is impossible.
    pub fn room(&mut self) -> Result<u64, Broken> {
        let head = self.memory.words().get(HEAD).map_or(0, |word| word.load(Acquire));
        let has_read = head.wrapping_sub(self.head);
        if has_read > self.published.wrapping_sub(self.head) {
            return Err(Broken);
        }
        self.head = head;
        Ok(self.capacity - self.tail.wrapping_sub(head))
    }

    /// Writes a descriptor, which the consumer gets after [`Producer::publish`]. Returns false if there is no
    /// room.
    ///
    /// # Errors
    /// The consumer's counter is impossible.
    #[inline]
    pub fn push(&mut self, descriptor: Descriptor) -> Result<bool, Broken> {
        if self.tail.wrapping_sub(self.head) >= self.capacity && self.room()? == 0 {
            return Ok(false);
        }
        if let Some(slot) = slot(self.memory.words(), self.tail, self.capacity) {
            for (word, value) in slot.iter().zip(descriptor.to_words()) {
                word.store(value, Relaxed);
            }
        }
        self.tail = self.tail.wrapping_add(1);
        Ok(true)
    }

    /// Gives the written descriptors to the consumer. Returns whether there were any.
    #[inline]
    pub fn publish(&mut self) -> bool {
        if self.published == self.tail {
            return false;
        }
        self.published = self.tail;
        if let Some(word) = self.memory.words().get(TAIL) {
            word.store(self.tail, Release);
        }
        true
    }
}

/// The end of a ring that reads.
#[derive(Debug)]
pub struct Consumer<M> {
    memory: M,
    capacity: u64,
    /// Descriptors read, and the part of them that the producer may know.
    head: u64,
    published: u64,
    /// The producer's counter as it was read last.
    tail: u64,
}

impl<M: Words> Consumer<M> {
    /// Makes the end of an empty ring. None: the memory has not the size of a ring ([`words`]).
    pub fn new(memory: M) -> Option<Consumer<M>> {
        let capacity = capacity(&memory)?;
        Some(Consumer { memory, capacity, head: 0, published: 0, tail: 0 })
    }

    /// Returns the number of descriptors that wait.
    ///
    /// # Errors
    /// The producer's counter is impossible.
    #[inline]
    pub fn ready(&mut self) -> Result<u64, Broken> {
        let tail = self.memory.words().get(TAIL).map_or(0, |word| word.load(Acquire));
        // The counter cannot go back, nor be ahead of what the producer may know to be read.
        let is_possible = tail.wrapping_sub(self.tail) <= self.capacity
            && tail.wrapping_sub(self.published) <= self.capacity;
        if !is_possible {
            return Err(Broken);
        }
        self.tail = tail;
        Ok(tail.wrapping_sub(self.head))
    }

    /// Reads the next descriptor. The producer gets its slot back after [`Consumer::publish`].
    ///
    /// # Errors
    /// The producer's counter is impossible.
    #[inline]
    pub fn pop(&mut self) -> Result<Option<Descriptor>, Broken> {
        if self.head == self.tail && self.ready()? == 0 {
            return Ok(None);
        }
        let Some(slot) = slot(self.memory.words(), self.head, self.capacity) else { return Ok(None) };
        let descriptor = Descriptor::from_words([slot[0].load(Relaxed), slot[1].load(Relaxed)]);
        self.head = self.head.wrapping_add(1);
        Ok(Some(descriptor))
    }

    /// Reads descriptors that wait, as many as `vector` takes. Returns how many. All are copied before one is
    /// looked at, so that the processor fetches several cache lines at a time. The producer gets the slots
    /// back after [`Consumer::publish`].
    ///
    /// # Errors
    /// The producer's counter is impossible.
    #[inline]
    pub fn pop_vector(&mut self, vector: &mut [Descriptor]) -> Result<usize, Broken> {
        if self.head == self.tail && self.ready()? == 0 {
            return Ok(0);
        }
        let waiting = self.tail.wrapping_sub(self.head).min(vector.len() as u64) as usize;
        let slots = self.memory.words().get(SLOTS..).unwrap_or(&[]).as_chunks::<2>().0;
        // The last slot is followed by the first one.
        let (first, next) = slots.split_at(((self.head & (self.capacity - 1)) as usize).min(slots.len()));
        let mut n = 0;
        for (descriptor, slot) in vector[..waiting].iter_mut().zip(next.iter().chain(first)) {
            *descriptor = Descriptor::from_words([slot[0].load(Relaxed), slot[1].load(Relaxed)]);
            n += 1;
        }
        self.head = self.head.wrapping_add(n as u64);
        Ok(n)
    }

    /// Gives the slots that were read back to the producer.
    #[inline]
    pub fn publish(&mut self) {
        if self.published == self.head {
            return;
        }
        self.published = self.head;
        if let Some(word) = self.memory.words().get(HEAD) {
            word.store(self.head, Release);
        }
    }
}
