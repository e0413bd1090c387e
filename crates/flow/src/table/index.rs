//! From hashes to halves: buckets of eight.
//!
//! Theory of operation. A bucket is a cache line: tags of 16 bits that are compared at once, and the halves they stand
//! for. A key belongs in the bucket that its hash names. If that is full it goes to the next one with a free lane, and
//! all full ones on the way count one more key that has passed them; a search goes on behind a bucket only as long as
//! keys have passed it, and deletion counts them down again, so that nothing is left of crowded times. There are twice
//! as many lanes as keys at most: of 100 keys less than one lies outside of its bucket.

use std::hint::select_unpredictable;
use std::io;

use bytemuck::{Pod, Zeroable};
use wide::u16x8;

use super::hash::Hash;
use crate::arena::Arena;
use crate::fcb::Found;

const LANES: usize = 8;

/// Buckets in which a key is looked for at most. A full table needs four now and then; more is somebody's doing.
const REACH: usize = 16;

#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Bucket {
    /// 0: free.
    tags: [u16; LANES],
    found: [u32; LANES],
    /// Keys of this bucket, or of one before it, that lie in one behind it.
    passed: u32,
    spare: [u32; 3],
}

const _: () = assert!(size_of::<Bucket>() == 64);

/// No half of this number: to be looked for again, behind the bucket.
const BEHIND: u32 = Found::NONE.0 - 1;

impl Bucket {
    #[inline(always)]
    fn lanes(&self, tag: u16) -> u32 {
        u16x8::new(self.tags).simd_eq(u16x8::splat(tag)).to_bitmask()
    }

    /// The first half with the hash's tag; [`Found::NONE`] if there is none for certain, and the number of no half if
    /// there may be one behind this bucket.
    #[inline(always)]
    pub fn guess(&self, hash: Hash) -> Found {
        let lanes = self.lanes(hash.tag());
        let first = self.found[lanes.trailing_zeros() as usize % LANES];
        let none = select_unpredictable(self.passed == 0, Found::NONE.0, BEHIND);
        Found(select_unpredictable(lanes == 0, none, first))
    }

    /// The half with the hash's tag that `is` it.
    #[inline(always)]
    fn find(&self, hash: Hash, is: impl Fn(Found) -> bool) -> Found {
        let found =
            lanes(self.lanes(hash.tag())).map(|lane| Found(self.found[lane])).find(|&found| is(found));
        found.unwrap_or(Found::NONE)
    }

    /// Puts a half into a free lane. False: there is none.
    #[inline(always)]
    fn put(&mut self, hash: Hash, found: Found) -> bool {
        let free = self.lanes(0);
        if free == 0 {
            return false;
        }
        let lane = free.trailing_zeros() as usize % LANES;
        (self.tags[lane], self.found[lane]) = (hash.tag(), found.0);
        true
    }

    fn lane_of(&self, tag: u16, found: Found) -> Option<usize> {
        lanes(self.lanes(tag)).find(|&lane| self.found[lane] == found.0)
    }
}

fn lanes(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = bits.trailing_zeros() as usize;
        bits &= bits.wrapping_sub(1);
        (lane < LANES).then_some(lane)
    })
}

/// The buckets of a table.
#[derive(Debug)]
pub(super) struct Index {
    buckets: Arena<Bucket>,
    count: u32,
    /// Keys that lie outside of their bucket.
    displaced: u32,
}

impl Index {
    /// For so many keys.
    pub fn new(keys: u32) -> io::Result<Self> {
        let count = keys.div_ceil(LANES as u32 / 2).max(1);
        let mut buckets = Arena::new(count as usize)?;
        // Keys lie all over it from the first session on.
        buckets.touch(usize::MAX);
        Ok(Index { buckets, count, displaced: 0 })
    }

    pub fn displaced(&self) -> u32 {
        self.displaced
    }

    #[cfg(test)]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        size_of_val(self.buckets.get())
    }

    #[inline(always)]
    pub fn buckets(&self) -> Buckets<'_> {
        Buckets { buckets: self.buckets.get(), count: self.count }
    }

    /// Finds the half that `is` it, among those with the hash.
    pub fn find(&self, hash: Hash, is: impl Fn(Found) -> bool) -> Found {
        let buckets = self.buckets.get();
        let bucket = &buckets[hash.bucket(self.count) as usize];
        match bucket.find(hash, &is) {
            // Nearly always: none has passed the bucket.
            Found::NONE if bucket.passed != 0 => self.find_behind(hash, is),
            found => found,
        }
    }

    /// The same, of the buckets behind the first one.
    #[cold]
    fn find_behind(&self, hash: Hash, is: impl Fn(Found) -> bool) -> Found {
        let buckets = self.buckets.get();
        for at in self.way(hash).skip(1) {
            let found = buckets[at].find(hash, &is);
            if found.is_some() || buckets[at].passed == 0 {
                return found;
            }
        }
        Found::NONE
    }

    /// Enters a half. False: there is no room in reach.
    pub fn insert(&mut self, hash: Hash, found: Found) -> bool {
        let first = hash.bucket(self.count) as usize;
        self.buckets.get_mut()[first].put(hash, found) || self.insert_behind(hash, found)
    }

    /// The same where the first bucket is full.
    #[cold]
    fn insert_behind(&mut self, hash: Hash, found: Found) -> bool {
        let way = self.way(hash);
        let buckets = self.buckets.get_mut();
        let Some(far) = way.clone().position(|at| buckets[at].put(hash, found)) else {
            return false;
        };
        way.take(far).for_each(|at| buckets[at].passed += 1);
        self.displaced += 1;
        true
    }

    /// Takes a half out that was entered with this hash.
    pub fn remove(&mut self, hash: Hash, found: Found) {
        let first = hash.bucket(self.count) as usize;
        let bucket = &mut self.buckets.get_mut()[first];
        match bucket.lane_of(hash.tag(), found) {
            Some(lane) => bucket.tags[lane] = 0,
            None => self.remove_behind(hash, found),
        }
    }

    /// The same of one that is not in the first bucket.
    #[cold]
    fn remove_behind(&mut self, hash: Hash, found: Found) {
        let way = self.way(hash);
        let buckets = self.buckets.get_mut();
        let there = |(_, at): &(usize, usize)| buckets[*at].lane_of(hash.tag(), found).is_some();
        let Some((far, at)) = way.clone().enumerate().find(there) else { return };
        way.take(far).for_each(|at| buckets[at].passed -= 1);
        self.displaced -= 1;
        if let Some(lane) = buckets[at].lane_of(hash.tag(), found) {
            buckets[at].tags[lane] = 0;
        }
    }

    /// The buckets in which a key may lie, in the order in which they are tried.
    fn way(&self, hash: Hash) -> impl Iterator<Item = usize> + Clone + use<> {
        let (first, count) = (hash.bucket(self.count) as usize, self.count as usize);
        (first..first + count.min(REACH)).map(move |at| if at < count { at } else { at - count })
    }
}

/// The buckets, to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buckets<'a> {
    buckets: &'a [Bucket],
    count: u32,
}

impl<'a> Buckets<'a> {
    #[inline(always)]
    pub fn of(&self, hash: Hash) -> &'a Bucket {
        &self.buckets[hash.bucket(self.count) as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    /// Keys are their own halves' numbers here.
    fn contents(index: &Index, hash: Hash) -> HashSet<u32> {
        (0..200).filter(|&n| index.find(hash, |found| found.0 == n).is_some()).collect()
    }

    #[test]
    fn crowds_are_refused_and_leave_nothing_behind() {
        let mut index = Index::new(4 * 1000).unwrap();
        let hash = Hash::of_parts(u32::MAX, 7);
        let room = (REACH * LANES) as u32;
        for n in 0..room {
            assert!(index.insert(hash, Found(n)), "{n}");
        }
        assert!(!index.insert(hash, Found(room)));
        assert_eq!(index.displaced(), room - LANES as u32);
        assert_eq!(contents(&index, hash), (0..room).collect());
        (0..room).for_each(|n| index.remove(hash, Found(n)));
        assert_eq!(index.displaced(), 0);
        assert!(index.buckets.get().iter().all(|b| b.passed == 0 && b.tags == [0; LANES]));
    }

    proptest! {
        /// Few buckets and few tags, so that keys pass full buckets and share tags, and the way leads round the end.
        #[test]
        fn agrees_with_a_set(steps in prop::collection::vec((0..4u32, 0..3u16, 0..60u32, any::<bool>()), 1..300)) {
            let mut index = Index::new(40).unwrap();
            let mut model = HashSet::new();
            for (bucket, tag, n, insert) in steps {
                let hash = Hash::of_parts(bucket << 30 | 0x3fff_ffff, tag);
                let known = model.iter().any(|&(_, _, m)| m == n);
                if insert && !known {
                    let room = model.len() < index.count() as usize * LANES;
                    prop_assert_eq!(index.insert(hash, Found(n)), room);
                    if room {
                        model.insert((bucket, tag | 1, n));
                    }
                } else if model.remove(&(bucket, tag | 1, n)) {
                    index.remove(hash, Found(n));
                }
                // Keys of a bucket behind may be found as well.
                let found = contents(&index, hash);
                for (b, t, n) in &model {
                    prop_assert!((*b, *t) != (bucket, tag | 1) || found.contains(n));
                }
                prop_assert!(found.iter().all(|n| model.iter().any(|(_, t, m)| (t, m) == (&(tag | 1), n))));
            }
            for (bucket, tag, n) in model {
                index.remove(Hash::of_parts(bucket << 30 | 0x3fff_ffff, tag), Found(n));
            }
            prop_assert!(index.buckets.get().iter().all(|b| b.passed == 0 && b.tags == [0; LANES]));
        }
    }
}
