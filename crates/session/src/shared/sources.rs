//! Sessions of each source address.
//!
//! Theory of operation. The table has no addresses, only counts beside 40 bits of a keyed hash. The hash
//! names two buckets, each one cache line with seven counts. A source is counted in its first bucket, or in
//! its second one if the first is full. The first bucket says how many of its sources are elsewhere, so that
//! nearly all searches read one cache line. If both are full of other sources, the source is not counted, and
//! so not limited; a source with many sessions has its count long before. Two workers that count a new source
//! at the same time may give it two counts.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use mmb_packet::prefetch;

use crate::hash::mix;

/// Counts in a bucket.
const BUCKET: usize = 7;
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
#[repr(C, align(64))]
struct Bucket {
    counts: [AtomicU64; BUCKET],
    /// Sources that are counted in their second bucket, since this one was full.
    elsewhere: AtomicU64,
}

impl Bucket {
    /// The first count that `is` accepts, and its value. Without branches, since any of them may be it.
    #[inline(always)]
    fn find(&self, is: impl Fn(u64) -> bool) -> Option<(&AtomicU64, u64)> {
        let counts = self.counts.iter().enumerate();
        let found = counts.fold(0, |found, (at, count)| found | u32::from(is(count.load(Relaxed))) << at);
        let count = self.counts.get(found.trailing_zeros() as usize)?;
        Some((count, count.load(Relaxed))).filter(|(_, seen)| is(*seen))
    }

    /// The count of a source.
    #[inline(always)]
    fn find_source(&self, hash: SourceHash) -> Option<(&AtomicU64, u64)> {
        self.find(|count| is_count_of(count, hash))
    }
}

/// Whether a source has this count, and at least one session.
#[inline(always)]
fn is_count_of(count: u64, hash: SourceHash) -> bool {
    count.wrapping_sub(hash.tag()).wrapping_sub(1) < COUNT
}

/// The sessions of each source.
#[derive(Debug)]
pub(crate) struct SourceTable {
    buckets: Box<[Bucket]>,
    key: [u64; 2],
    /// Several workers write.
    is_shared: bool,
}

impl SourceTable {
    /// A table for the sources of `sessions` sessions.
    pub fn new(sessions: u32, is_shared: bool, seed: u64) -> SourceTable {
        let buckets = (sessions as usize / (BUCKET * SESSIONS_EACH)).next_power_of_two();
        let buckets = buckets.clamp(*BUCKETS.start(), *BUCKETS.end());
        let buckets = (0..buckets).map(|_| Bucket::default()).collect();
        let key = [1, 2].map(|half| mix(mix(seed, 0x736f_7572_6365), half));
        SourceTable { buckets, key, is_shared }
    }

    /// The hash of a source address, as in [`mmb_flow::Key::source`].
    #[inline]
    pub fn hash(&self, source: [u8; 16]) -> SourceHash {
        let [low, high]: [u64; 2] = bytemuck::cast(source);
        let wide = u128::from(low ^ self.key[0]) * u128::from(high ^ self.key[1]);
        SourceHash(wide as u64 ^ (wide >> 64) as u64)
    }

    #[inline(always)]
    fn first(&self, hash: SourceHash) -> &Bucket {
        // The lower half has bits that are not in the tag.
        &self.buckets[hash.0 as usize & (self.buckets.len() - 1)]
    }

    fn second(&self, hash: SourceHash) -> &Bucket {
        &self.buckets[(hash.0 >> 40) as usize & (self.buckets.len() - 1)]
    }

    /// Prefetches what the other functions read of a source.
    #[inline]
    pub fn prefetch(&self, hash: SourceHash) {
        prefetch::read_l2(self.first(hash));
    }

    /// The count of a source, its value, and whether it is in the second bucket.
    #[inline]
    fn find(&self, hash: SourceHash) -> Option<(&AtomicU64, u64, bool)> {
        let first = self.first(hash);
        if let Some((count, seen)) = first.find_source(hash) {
            return Some((count, seen, false));
        }
        if first.elsewhere.load(Relaxed) == 0 {
            return None;
        }
        self.second(hash).find_source(hash).map(|(count, seen)| (count, seen, true))
    }

    /// Counts a session of a source. False if there is no room for another source.
    #[inline]
    pub fn add(&self, hash: SourceHash) -> bool {
        while let Some((count, seen, _)) = self.find(hash) {
            if seen & COUNT == COUNT {
                return false;
            }
            if self.replace(count, seen, seen + 1) {
                return true;
            }
        }
        self.add_source(hash)
    }

    /// Counts the first session of a source. False if there is no room.
    #[inline]
    fn add_source(&self, hash: SourceHash) -> bool {
        let is_free = |count| count & COUNT == 0;
        let first = self.first(hash);
        while let Some((count, seen)) = first.find(is_free) {
            if self.replace(count, seen, hash.tag() | 1) {
                return true;
            }
        }
        let second = self.second(hash);
        while let Some((count, seen)) = second.find(is_free) {
            // First this number: another worker may remove the session as soon as it is counted.
            first.elsewhere.fetch_add(1, Relaxed);
            if self.replace(count, seen, hash.tag() | 1) {
                return true;
            }
            first.elsewhere.fetch_sub(1, Relaxed);
        }
        false
    }

    /// Counts a session less, which was counted before.
    #[inline]
    pub fn remove(&self, hash: SourceHash) {
        while let Some((count, seen, is_elsewhere)) = self.find(hash) {
            if self.replace(count, seen, seen - 1) {
                if is_elsewhere && seen & COUNT == 1 {
                    self.first(hash).elsewhere.fetch_sub(1, Relaxed);
                }
                return;
            }
        }
    }

    /// The counted sessions of a source.
    #[inline]
    pub fn count(&self, hash: SourceHash) -> u64 {
        self.find(hash).map_or(0, |(_, seen, _)| seen & COUNT)
    }

    /// Replaces a count, unless it has changed.
    #[inline]
    fn replace(&self, count: &AtomicU64, old: u64, new: u64) -> bool {
        if self.is_shared {
            return count.compare_exchange(old, new, Relaxed, Relaxed).is_ok();
        }
        count.store(new, Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(n: u32) -> [u8; 16] {
        u128::from(n).to_be_bytes()
    }

    #[test]
    fn sources_are_counted_each_by_itself() {
        for is_shared in [false, true] {
            let table = SourceTable::new(10_000, is_shared, 7);
            for n in 0..200 {
                let hash = table.hash(source(n));
                assert!((0..n).all(|_| table.add(hash)));
                assert_eq!(table.count(hash), u64::from(n));
            }
            let hash = table.hash(source(7));
            table.remove(hash);
            assert_eq!((table.count(hash), table.add(hash), table.count(hash)), (6, true, 7));
            for n in 0..200 {
                (0..n).for_each(|_| table.remove(table.hash(source(n))));
            }
            let counts = table.buckets.iter().flat_map(|bucket| &bucket.counts);
            assert!(counts.into_iter().all(|count| count.load(Relaxed) & COUNT == 0));
            assert!(table.buckets.iter().all(|bucket| bucket.elsewhere.load(Relaxed) == 0));
        }
    }

    #[test]
    fn what_was_not_counted_is_not_removed() {
        let table = SourceTable::new(1, false, 7);
        let all: Vec<_> = (0..100_000).map(|n| table.hash(source(n))).collect();
        let counted = all.iter().filter(|hash| table.add(**hash)).count();
        assert_eq!(counted, table.buckets.len() * BUCKET, "each count is in use");
        table.remove(table.hash(source(200_000)));
        assert_eq!(all.iter().map(|hash| table.count(*hash)).sum::<u64>(), counted as u64);
    }

    #[test]
    fn workers_count_together() {
        let table = SourceTable::new(1_000, true, 7);
        let hash = table.hash(source(1));
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
