//! The index: from hashes to flows, in buckets of eight.
//!
//! # Theory of operation
//!
//! A bucket is a cache line: eight tags of 16 bits, compared at once, and eight flows. The hash of a key
//! names its bucket. If the bucket is full, the key goes to the next bucket with a free lane, and each full
//! bucket in between counts one more key that has passed it. A search continues to the next bucket only if
//! keys have passed the bucket. A deletion decrements the counts. So a crowded period leaves no traces.
//!
//! The number of buckets in use grows with the number of keys ([`Shape`]). The last buckets that are split
//! hold 5.5 keys on average, and some of the keys that follow them pass more than ten full buckets. The
//! memory of new buckets is requested while a doubling advances ([`Arena::request_next`]).

use std::hint::select_unpredictable;
use std::io;

use bytemuck::{Pod, Zeroable};
use mmb_packet::prefetch;
use wide::u16x8;

use super::hash::Hash;
use crate::arena::{Arena, HUGE};
use crate::fcb::FlowRef;
use crate::shape::{FIRST, LANES, Shape, lanes};

/// Maximum number of buckets that a search visits. Of ten million keys one passes about 14 full buckets while
/// the index grows, and each further bucket is 0.6 times as probable; so many more indicate an attack.
const REACH: usize = 32;

/// Number of buckets that one insertion adds during a doubling.
const AT_ONCE: usize = 2;

#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Bucket {
    /// Tags; 0 marks a free lane.
    tags: [u16; LANES],
    found: [u32; LANES],
    /// Number of keys of this bucket, or of a bucket before it, that lie in a later bucket.
    passed: u32,
    spare: [u32; 3],
}

const _: () = assert!(size_of::<Bucket>() == 64);

/// Not a flow: the search must continue after the bucket.
const BEHIND: u32 = FlowRef::NONE.0 - 1;

impl Bucket {
    #[inline(always)]
    fn lanes(&self, tag: u16) -> u32 {
        u16x8::new(self.tags).simd_eq(u16x8::splat(tag)).to_bitmask()
    }

    /// The first flow with the tag of the hash. [`FlowRef::NONE`] if there is none for certain. [`BEHIND`] if
    /// a later bucket may have one.
    #[inline(always)]
    pub fn guess(&self, hash: Hash) -> FlowRef {
        let lanes = self.lanes(hash.tag());
        let first = self.found[lanes.trailing_zeros() as usize % LANES];
        let none = select_unpredictable(self.passed == 0, FlowRef::NONE.0, BEHIND);
        FlowRef(select_unpredictable(lanes == 0, none, first))
    }

    /// The flow with the tag of the hash for which `is` returns true.
    #[inline(always)]
    fn find(&self, hash: Hash, is: impl Fn(FlowRef) -> bool) -> FlowRef {
        let found =
            lanes(self.lanes(hash.tag())).map(|lane| FlowRef(self.found[lane])).find(|&found| is(found));
        found.unwrap_or(FlowRef::NONE)
    }

    /// Stores a flow in a free lane. False if there is none.
    #[inline(always)]
    fn put(&mut self, hash: Hash, found: FlowRef) -> bool {
        let free = self.lanes(0);
        if free == 0 {
            return false;
        }
        let lane = free.trailing_zeros() as usize % LANES;
        (self.tags[lane], self.found[lane]) = (hash.tag(), found.0);
        true
    }

    fn lane_of(&self, tag: u16, found: FlowRef) -> Option<usize> {
        lanes(self.lanes(tag)).find(|&lane| self.found[lane] == found.0)
    }
}

/// The buckets of a table.
#[derive(Debug)]
pub(super) struct Index {
    /// All buckets at the maximum size, and as many after them as a key of the last one may pass.
    buckets: Arena<Bucket>,
    shape: Shape,
    keys: u32,
    /// Number of keys outside of their bucket.
    displaced: u32,
    /// Scratch memory of [`Index::grow`].
    moving: Vec<(Hash, FlowRef)>,
}

impl Index {
    /// Creates an index for `keys` keys.
    pub fn new(keys: u32) -> io::Result<Self> {
        Index::beginning_with(FIRST, keys)
    }

    /// Creates an index with at most `first` buckets in use initially.
    fn beginning_with(first: u32, keys: u32) -> io::Result<Self> {
        let shape = Shape::new(keys, first, Hash::MORE);
        let mut buckets = Arena::new(shape.count() as usize + REACH - 1)?;
        // The first packets must not wait for page faults.
        buckets.touch(0..HUGE);
        Ok(Index { buckets, shape, keys: 0, displaced: 0, moving: Vec::with_capacity(REACH * LANES) })
    }

    pub fn displaced(&self) -> u32 {
        self.displaced
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        size_of_val(self.buckets.get())
    }

    #[inline(always)]
    pub fn buckets(&self) -> Buckets<'_> {
        Buckets { buckets: self.buckets.get(), shape: self.shape }
    }

    /// Adds buckets if there are many keys. Call this after each insertion of a session's keys.
    ///
    /// `hash_of` returns the hash with which a flow was inserted. `ask` prefetches what `hash_of` reads.
    #[inline(always)]
    pub fn grow(&mut self, hash_of: impl Fn(FlowRef) -> Hash, ask: impl Fn(FlowRef)) {
        if self.shape.is_short(self.keys) {
            self.grow_some(hash_of, ask);
        }
    }

    #[inline(never)]
    fn grow_some(&mut self, hash_of: impl Fn(FlowRef) -> Hash, ask: impl Fn(FlowRef)) {
        self.buckets.request_next(self.shape.used() as usize + REACH);
        for _ in 0..AT_ONCE {
            self.split(&hash_of, &ask);
            if self.shape.is_whole() {
                return;
            }
        }
    }

    /// Adds one bucket, if there may be more.
    fn split(&mut self, hash_of: impl Fn(FlowRef) -> Hash, ask: impl Fn(FlowRef)) {
        let Some((next, from)) = self.shape.grown() else { return };
        let to = next.used() as usize - 1;
        let buckets = self.buckets.get();
        self.moving.clear();
        for bucket in &buckets[from..from + REACH] {
            let all = lanes(!bucket.lanes(0)).map(|lane| FlowRef(bucket.found[lane]));
            let all = all.map(|found| (hash_of(found), found));
            self.moving.extend(all.filter(|(hash, _)| hash.bucket(&next) == to));
            if bucket.passed == 0 {
                break;
            }
        }
        // Prefetch for the next calls.
        let next_one = &buckets[from + AT_ONCE];
        lanes(!next_one.lanes(0)).for_each(|lane| ask(FlowRef(next_one.found[lane])));
        [from + 2 * AT_ONCE, to + AT_ONCE].into_iter().for_each(|at| prefetch::read(&buckets[at]));
        let moving = std::mem::take(&mut self.moving);
        moving.iter().for_each(|&(hash, found)| self.remove(hash, found));
        // Otherwise, in case of an attack, the keys stay where they are and can still be found.
        if self.has_room(to, moving.len()) {
            self.shape = next;
        }
        for &(hash, found) in &moving {
            self.insert(hash, found);
        }
        self.moving = moving;
    }

    /// Whether `keys` keys fit into a bucket and its successors.
    fn has_room(&self, bucket: usize, keys: usize) -> bool {
        let buckets = &self.buckets.get()[bucket..bucket + REACH];
        let mut free = buckets.iter().scan(0, |free, bucket| {
            *free += bucket.lanes(0).count_ones() as usize;
            Some(*free)
        });
        free.any(|free| free >= keys)
    }

    /// Returns the flow for which `is` returns true, among those with the hash.
    pub fn find(&self, hash: Hash, is: impl Fn(FlowRef) -> bool) -> FlowRef {
        let bucket = self.buckets().of(hash);
        match bucket.find(hash, &is) {
            // The usual case: no key has passed the bucket.
            FlowRef::NONE if bucket.passed != 0 => self.find_displaced(hash, is),
            found => found,
        }
    }

    /// Continues a search after the first bucket.
    #[cold]
    fn find_displaced(&self, hash: Hash, is: impl Fn(FlowRef) -> bool) -> FlowRef {
        let buckets = self.buckets.get();
        for at in self.probes(hash).skip(1) {
            let found = buckets[at].find(hash, &is);
            if found.is_some() || buckets[at].passed == 0 {
                return found;
            }
        }
        FlowRef::NONE
    }

    /// Inserts a flow. False if there is no room within reach.
    pub fn insert(&mut self, hash: Hash, found: FlowRef) -> bool {
        let first = hash.bucket(&self.shape);
        let entered = self.buckets.get_mut()[first].put(hash, found) || self.insert_displaced(hash, found);
        self.keys += u32::from(entered);
        entered
    }

    /// Inserts a flow whose first bucket is full.
    #[cold]
    fn insert_displaced(&mut self, hash: Hash, found: FlowRef) -> bool {
        let probes = self.probes(hash);
        let buckets = self.buckets.get_mut();
        let Some(far) = probes.clone().position(|at| buckets[at].put(hash, found)) else {
            return false;
        };
        probes.take(far).for_each(|at| buckets[at].passed += 1);
        self.displaced += 1;
        true
    }

    /// Removes a flow that was inserted with this hash.
    pub fn remove(&mut self, hash: Hash, found: FlowRef) {
        let bucket = &mut self.buckets.get_mut()[hash.bucket(&self.shape)];
        match bucket.lane_of(hash.tag(), found) {
            Some(lane) => {
                bucket.tags[lane] = 0;
                self.keys -= 1;
            }
            None => self.remove_displaced(hash, found),
        }
    }

    /// Removes a flow that is not in its first bucket.
    #[cold]
    fn remove_displaced(&mut self, hash: Hash, found: FlowRef) {
        let probes = self.probes(hash);
        let buckets = self.buckets.get_mut();
        let there = |(_, at): &(usize, usize)| buckets[*at].lane_of(hash.tag(), found).is_some();
        let Some((far, at)) = probes.clone().enumerate().find(there) else { return };
        probes.take(far).for_each(|at| buckets[at].passed -= 1);
        (self.displaced, self.keys) = (self.displaced - 1, self.keys - 1);
        if let Some(lane) = buckets[at].lane_of(hash.tag(), found) {
            buckets[at].tags[lane] = 0;
        }
    }

    /// The buckets that may contain a key, in search order.
    fn probes(&self, hash: Hash) -> std::ops::Range<usize> {
        let first = hash.bucket(&self.shape);
        first..first + REACH
    }
}

/// Read access to the buckets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buckets<'a> {
    buckets: &'a [Bucket],
    shape: Shape,
}

impl<'a> Buckets<'a> {
    #[inline(always)]
    pub fn of(&self, hash: Hash) -> &'a Bucket {
        &self.buckets[hash.bucket(&self.shape)]
    }

    /// The number of the bucket of a hash, for [`Buckets::at`].
    #[inline(always)]
    pub fn place(&self, hash: Hash) -> u32 {
        hash.bucket(&self.shape) as u32
    }

    /// A bucket by its number. If the index has grown, the bucket may no longer be the one of the hash.
    #[inline(always)]
    pub fn at(&self, place: u32) -> &'a Bucket {
        &self.buckets[place as usize]
    }
}

#[cfg(test)]
mod tests;
