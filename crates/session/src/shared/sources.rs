//! Sessions of each source address.
//!
//! Theory of operation. The table has no addresses, only counts beside 40 bits of a keyed hash. The hash
//! names two buckets of eight counts, each one cache line. A source is counted in either of them. If both are
//! full of other sources, it is not counted, and so not limited; a source with many sessions has its count
//! long before. Two workers that count a new source at the same time may give it two counts.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use mmb_flow::Key;

use crate::hash::mix;

/// Counts in a bucket.
const BUCKET: usize = 8;
/// The fewest and the most buckets.
const BUCKETS: std::ops::RangeInclusive<usize> = 64..=1 << 17;
/// Sessions for each count of the table. Most sources have several sessions.
const SESSIONS_EACH: usize = 4;
/// Bits of a count; the rest is the tag.
const COUNT_BITS: u32 = 24;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

/// The keyed hash of a source address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SourceHash(u64);

impl SourceHash {
    fn tag(self) -> u64 {
        self.0 & !COUNT
    }
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket([AtomicU64; BUCKET]);

/// The sessions of each source.
#[derive(Debug)]
pub(crate) struct SourceTable {
    buckets: Box<[Bucket]>,
    seed: u64,
    /// Several workers write.
    is_shared: bool,
}

impl SourceTable {
    /// A table for the sources of `sessions` sessions.
    pub fn new(sessions: u32, is_shared: bool, seed: u64) -> SourceTable {
        let buckets = (sessions as usize / (BUCKET * SESSIONS_EACH)).next_power_of_two();
        let buckets = buckets.clamp(*BUCKETS.start(), *BUCKETS.end());
        let buckets = (0..buckets).map(|_| Bucket::default()).collect();
        SourceTable { buckets, seed: mix(seed, 0x736f_7572_6365), is_shared }
    }

    /// The hash of the source of packets with this key.
    #[inline]
    pub fn hash(&self, key: &Key) -> SourceHash {
        let [low, high]: [u64; 2] = bytemuck::cast(key.source);
        SourceHash(mix(mix(self.seed, low), high))
    }

    fn buckets(&self, hash: SourceHash) -> [&Bucket; 2] {
        let mask = self.buckets.len() - 1;
        // The lower half has bits that are not in the tag.
        let first = hash.0 as usize & mask;
        let second = (hash.0 >> 40) as usize & mask;
        [&self.buckets[first], &self.buckets[second]]
    }

    /// Counts a session of a source. False if there is no room for another source.
    #[inline]
    pub fn add(&self, hash: SourceHash) -> bool {
        let buckets = self.buckets(hash);
        for count in buckets.iter().flat_map(|bucket| &bucket.0) {
            let mut seen = count.load(Relaxed);
            while seen & !COUNT == hash.tag() && seen & COUNT != 0 {
                if seen & COUNT == COUNT {
                    return false;
                }
                match self.replace(count, seen, seen + 1) {
                    Ok(()) => return true,
                    Err(now) => seen = now,
                }
            }
        }
        self.add_source(buckets, hash)
    }

    /// Counts the first session of a source. False if there is no room.
    fn add_source(&self, buckets: [&Bucket; 2], hash: SourceHash) -> bool {
        buckets.iter().flat_map(|bucket| &bucket.0).any(|count| {
            let seen = count.load(Relaxed);
            seen & COUNT == 0 && self.replace(count, seen, hash.tag() | 1).is_ok()
        })
    }

    /// Counts a session less, which was counted before.
    pub fn remove(&self, hash: SourceHash) {
        for count in self.buckets(hash).iter().flat_map(|bucket| &bucket.0) {
            let mut seen = count.load(Relaxed);
            while seen & !COUNT == hash.tag() && seen & COUNT != 0 {
                match self.replace(count, seen, seen - 1) {
                    Ok(()) => return,
                    Err(now) => seen = now,
                }
            }
        }
    }

    /// The counted sessions of a source.
    pub fn count(&self, hash: SourceHash) -> u64 {
        let buckets = self.buckets(hash);
        let second = if std::ptr::eq(buckets[0], buckets[1]) { 1 } else { 2 };
        let counts = buckets[..second].iter().flat_map(|bucket| &bucket.0).map(|count| count.load(Relaxed));
        counts.filter(|count| count & !COUNT == hash.tag()).map(|count| count & COUNT).sum()
    }

    #[inline]
    fn replace(&self, count: &AtomicU64, old: u64, new: u64) -> Result<(), u64> {
        if self.is_shared {
            return count.compare_exchange(old, new, Relaxed, Relaxed).map(drop);
        }
        count.store(new, Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(n: u32) -> Key {
        let mut key = Key::default();
        key.source[..4].copy_from_slice(&n.to_be_bytes());
        key
    }

    #[test]
    fn sources_are_counted_each_by_itself() {
        for is_shared in [false, true] {
            let table = SourceTable::new(10_000, is_shared, 7);
            for n in 0..200 {
                let hash = table.hash(&source(n));
                assert!((0..n).all(|_| table.add(hash)));
                assert_eq!(table.count(hash), n.into());
            }
            let hash = table.hash(&source(7));
            table.remove(hash);
            assert_eq!((table.count(hash), table.add(hash), table.count(hash)), (6, true, 7));
            for n in 0..200 {
                (0..n).for_each(|_| table.remove(table.hash(&source(n))));
            }
            assert!(table.buckets.iter().flat_map(|b| &b.0).all(|count| count.load(Relaxed) & COUNT == 0));
        }
    }

    #[test]
    fn what_was_not_counted_is_not_removed() {
        let table = SourceTable::new(1, false, 7);
        let all: Vec<_> = (0..100_000).map(|n| table.hash(&source(n))).collect();
        let counted = all.iter().filter(|hash| table.add(**hash)).count();
        assert_eq!(counted, table.buckets.len() * BUCKET, "each count is in use");
        table.remove(table.hash(&source(200_000)));
        assert_eq!(all.iter().map(|hash| table.count(*hash)).sum::<u64>(), counted as u64);
    }

    #[test]
    fn workers_count_together() {
        let table = SourceTable::new(1_000, true, 7);
        let hash = table.hash(&source(1));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert!((0..1_000).all(|_| table.add(hash))));
            }
        });
        assert_eq!(table.count(hash), 4_000);
        (0..4_000).for_each(|_| table.remove(hash));
        assert_eq!(table.count(hash), 0);
    }
}
