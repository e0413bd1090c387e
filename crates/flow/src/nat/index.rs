//! An index from hashes to numbers of records, in buckets of eight.
//!
//! # Theory of operation
//!
//! A bucket is a cache line: eight hashes, compared at once, and eight numbers. The hash names its bucket. If
//! the bucket is full, the number goes to the next bucket with a free lane. A search ends at such a bucket.
//! A removal leaves no trace: if the bucket was full, a number of a later bucket that passed it takes the
//! lane, and so on. Behind the last bucket follows the first.
//!
//! The number of buckets in use grows with the number of records ([`Shape`]). A lane holds the whole hash, so
//! only records with an equal hash are compared, and no record is read when the index grows.

use std::hash::Hasher as _;
use std::io;

use bytemuck::{Pod, Zeroable};
use mmb_packet::prefetch;
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use siphasher::sip::SipHasher24;
use wide::u32x8;

use crate::arena::{Arena, HUGE};
use crate::shape::{FIRST, LANES, Shape, lanes};

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

/// Number of the lower bits of a hash that choose one bucket of those that were one bucket initially. The
/// upper bits choose an initial bucket.
const MORE: u32 = u16::BITS;
/// How many buckets are prefetched ahead of the one that is split.
const AHEAD: usize = 2;

#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct Bucket {
    hashes: [u32; LANES],
    /// The numbers, plus 1; 0 marks a free lane.
    numbers: [u32; LANES],
}

const _: () = assert!(size_of::<Bucket>() == 64);

#[inline(always)]
fn equal(words: [u32; LANES], word: u32) -> u32 {
    u32x8::new(words).simd_eq(u32x8::splat(word)).to_bitmask()
}

impl Bucket {
    /// The free lanes, one bit each.
    #[inline(always)]
    fn free(&self) -> u32 {
        equal(self.numbers, 0)
    }

    /// The number with the hash for which `is` returns true.
    #[inline(always)]
    fn find(&self, hash: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
        let found = equal(self.hashes, hash) & !self.free();
        lanes(found).map(|lane| self.numbers[lane].wrapping_sub(1)).find(|&number| is(number))
    }

    /// Stores a number in a free lane. False if there is none.
    #[inline(always)]
    fn put(&mut self, hash: u32, number: u32) -> bool {
        let Some(lane) = lanes(self.free()).next() else { return false };
        (self.hashes[lane], self.numbers[lane]) = (hash, number.wrapping_add(1));
        true
    }

    /// The lanes in use, with their hashes and numbers.
    fn entries(&self) -> impl Iterator<Item = (usize, u32, u32)> {
        lanes(!self.free()).map(|lane| (lane, self.hashes[lane], self.numbers[lane] - 1))
    }

    fn lane_of(&self, hash: u32, number: u32) -> Option<usize> {
        lanes(equal(self.numbers, number.wrapping_add(1))).find(|&lane| self.hashes[lane] == hash)
    }
}

/// Read access to the buckets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buckets<'a> {
    buckets: &'a [Bucket],
    shape: Shape,
}

impl Buckets<'_> {
    /// Prefetches the bucket of a hash, one of many, into the L2 cache.
    #[inline(always)]
    pub(super) fn prefetch(&self, hash: u32) {
        if let Some(bucket) = self.buckets.get(bucket_of(hash, &self.shape)) {
            prefetch::read_l2(bucket);
        }
    }
}

/// The bucket of a hash.
#[inline(always)]
fn bucket_of(hash: u32, shape: &Shape) -> usize {
    let one = (u64::from(hash >> MORE) * u64::from(shape.first())) >> (u32::BITS - MORE);
    shape.bucket(one as u32, u32::from(hash as u16))
}

/// An index from hashes to numbers below 2^32 - 1.
#[derive(Debug)]
pub(super) struct Index {
    buckets: Arena<Bucket>,
    shape: Shape,
    len: u32,
    /// Scratch memory of [`Index::split`].
    moving: Vec<(u32, u32)>,
}

impl Index {
    /// Creates an index for `capacity` numbers.
    ///
    /// # Errors
    /// The operating system's error if it cannot reserve the address space, or there are too many.
    pub(super) fn new(capacity: usize) -> io::Result<Index> {
        Index::beginning_with(FIRST, capacity)
    }

    /// Creates an index with at most `first` buckets in use initially.
    fn beginning_with(first: u32, capacity: usize) -> io::Result<Index> {
        let capacity = u32::try_from(capacity).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let shape = Shape::new(capacity, first, MORE);
        let buckets = Arena::new(shape.count() as usize)?;
        Ok(Index { buckets, shape, len: 0, moving: Vec::with_capacity(32 * LANES) })
    }

    /// Makes the system allocate the first memory, so that no packet waits for it.
    pub(super) fn allocate_first(&mut self) {
        self.buckets.allocate(0..HUGE);
    }

    /// Prefetches the bucket of a hash.
    #[inline]
    pub(super) fn prefetch(&self, hash: u32) {
        if let Some(bucket) = self.buckets.get().get(bucket_of(hash, &self.shape)) {
            prefetch::read(bucket);
        }
    }

    /// The buckets, for work on a whole vector.
    pub(super) fn buckets(&self) -> Buckets<'_> {
        Buckets { buckets: self.buckets.get(), shape: self.shape }
    }

    /// The buckets that may hold a hash, in search order. A search ends before the last one: half of the
    /// lanes are free at the maximum.
    #[inline(always)]
    fn probes(&self, first: usize) -> impl Iterator<Item = usize> + use<> {
        let count = self.shape.count() as usize;
        (first..count).chain(0..first)
    }

    /// The number with this hash for which `is` returns true.
    #[inline]
    pub(super) fn find(&self, hash: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
        let first = bucket_of(hash, &self.shape);
        let buckets = self.buckets.get();
        let bucket = buckets.get(first)?;
        match bucket.find(hash, &is) {
            // The usual case.
            None if bucket.free() == 0 => self.find_behind(first, hash, is),
            found => found,
        }
    }

    /// Continues a search after the first bucket, which is full.
    #[cold]
    fn find_behind(&self, first: usize, hash: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
        for at in self.probes(first).skip(1) {
            let bucket = self.buckets.at(at);
            let found = bucket.find(hash, &is);
            if found.is_some() || bucket.free() != 0 {
                return found;
            }
        }
        None
    }

    /// Adds a number. There must be room, and the number must not be in the index.
    #[inline]
    pub(super) fn insert(&mut self, hash: u32, number: u32) {
        self.put(hash, number);
        self.len += 1;
        if self.shape.is_short(self.len) {
            self.split();
        }
    }

    #[inline(always)]
    fn put(&mut self, hash: u32, number: u32) {
        let first = bucket_of(hash, &self.shape);
        if !self.buckets.at_mut(first).put(hash, number) {
            self.put_behind(first, hash, number);
        }
    }

    #[cold]
    fn put_behind(&mut self, first: usize, hash: u32, number: u32) {
        self.probes(first).skip(1).find(|&at| self.buckets.at_mut(at).put(hash, number));
    }

    /// Adds one bucket, if there may be more.
    #[inline(never)]
    fn split(&mut self) {
        let Some((next, from)) = self.shape.grown() else { return };
        let to = next.used() as usize - 1;
        self.buckets.request_next(next.used() as usize);
        self.moving.clear();
        for at in self.probes(from) {
            let bucket = self.buckets.at(at);
            let all = bucket.entries().map(|(_, hash, number)| (hash, number));
            self.moving.extend(all.filter(|&(hash, _)| bucket_of(hash, &next) == to));
            if bucket.free() != 0 {
                break;
            }
        }
        // Prefetch for the next calls.
        let ahead = [from + AHEAD, to + AHEAD].map(|at| self.buckets.get().get(at));
        ahead.into_iter().flatten().for_each(prefetch::read);
        let moving = std::mem::take(&mut self.moving);
        for &(hash, number) in &moving {
            self.take(hash, number);
        }
        self.shape = next;
        for &(hash, number) in &moving {
            self.put(hash, number);
        }
        self.moving = moving;
    }

    /// Removes a number. Does nothing if it is not in the index.
    pub(super) fn remove(&mut self, hash: u32, number: u32) {
        if self.take(hash, number) {
            self.len -= 1;
        }
    }

    /// Takes a number out. Returns whether it was there.
    fn take(&mut self, hash: u32, number: u32) -> bool {
        for at in self.probes(bucket_of(hash, &self.shape)) {
            let bucket = self.buckets.at_mut(at);
            let was_full = bucket.free() == 0;
            if let Some(lane) = bucket.lane_of(hash, number) {
                bucket.numbers[lane] = 0;
                if was_full {
                    self.fill(at);
                }
                return true;
            }
            if !was_full {
                return false;
            }
        }
        false
    }

    /// Fills the free lane of a bucket that was full with a number of a later bucket that passed it, and so
    /// on with the lane of that number.
    #[cold]
    fn fill(&mut self, mut hole: usize) {
        let count = self.shape.count() as usize;
        let behind = |at: usize, first: usize| if at < first { at + count - first } else { at - first };
        for at in self.probes(hole).skip(1) {
            let bucket = *self.buckets.at(at);
            let is_full = bucket.free() == 0;
            let has_passed = |hash| behind(at, bucket_of(hash, &self.shape)) >= behind(at, hole);
            if let Some((lane, hash, number)) = bucket.entries().find(|&(_, hash, _)| has_passed(hash)) {
                self.buckets.at_mut(hole).put(hash, number);
                self.buckets.at_mut(at).numbers[lane] = 0;
                hole = at;
            }
            if !is_full {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
