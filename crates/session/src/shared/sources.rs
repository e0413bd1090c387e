//! Sessions of each source address.
//!
//! Theory of operation. The table has no addresses, only counts beside 40 bits of a keyed hash. The hash
//! names two buckets, each one cache line with seven counts. A source is counted in its first bucket, or in
//! its second one if the first is full. The first bucket says how many of its sources are elsewhere, so that
//! nearly all searches read one cache line. If both are full of other sources, the source is not counted, and
//! so not limited; a source with many sessions has its count long before. Two workers that count a new source
//! at the same time may give it two counts.
//!
//! The last word of a bucket has a byte of each count's hash, never 0, and 0 for a free count. They are
//! compared all at once. A worker takes a free count by writing the byte. Whoever ends the last session of a
//! count writes 0. In between nobody else writes to a count of 0.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use mmb_packet::prefetch;

use crate::hash::mix;

/// The place of a count: number of the bucket, and position in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountPlace(u32, u8);

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

    /// A byte of the tag, but not 0.
    fn mark(self) -> u8 {
        (self.0 >> 32) as u8 | 1
    }
}

#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Bucket {
    counts: [AtomicU64; BUCKET],
    /// A byte for each count, lowest first: [`SourceHash::mark`], or 0 if it is free. In the highest byte,
    /// the number of sources that are counted in their second bucket, since this one was full.
    marks: AtomicU64,
}

/// 1 in each byte.
const BYTES: u64 = u64::MAX / 0xff;
/// The highest byte of [`Bucket::marks`].
const ELSEWHERE: u32 = 56;
/// So many sources elsewhere are no longer counted: the bucket says so for ever.
const MANY_ELSEWHERE: u8 = u8::MAX;

/// The counts whose byte is `mark`, as the highest bits of these bytes. The lowest is one for certain.
#[inline(always)]
fn counts_with(marks: u64, mark: u8) -> u64 {
    let differences = marks ^ (BYTES * u64::from(mark));
    differences.wrapping_sub(BYTES) & !differences & (BYTES << 7) & ((1 << ELSEWHERE) - 1)
}

impl Bucket {
    /// The position of the count of a source, and its value.
    #[inline(always)]
    fn find(&self, hash: SourceHash) -> Option<(u8, u64)> {
        let mut found = counts_with(self.marks.load(Relaxed), hash.mark());
        while found != 0 {
            let at = (found.trailing_zeros() / u8::BITS) as u8;
            let seen = self.counts.get(usize::from(at))?.load(Relaxed);
            if is_count_of(seen, hash) {
                return Some((at, seen));
            }
            found &= found - 1;
        }
        None
    }

    /// Sources that are counted in their second bucket.
    #[inline(always)]
    fn elsewhere(&self) -> u8 {
        (self.marks.load(Relaxed) >> ELSEWHERE) as u8
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

    /// Number of the first bucket of a source.
    #[inline(always)]
    fn first(&self, hash: SourceHash) -> u32 {
        // The lower half has bits that are not in the tag.
        hash.0 as u32 & (self.buckets.len() - 1) as u32
    }

    /// Number of the second bucket of a source.
    fn second(&self, hash: SourceHash) -> u32 {
        (hash.0 >> 40) as u32 & (self.buckets.len() - 1) as u32
    }

    #[inline(always)]
    fn bucket(&self, number: u32) -> &Bucket {
        &self.buckets[number as usize]
    }

    /// Prefetches what the other functions read of a source, one of many, into the L2 cache.
    #[inline]
    pub fn prefetch(&self, hash: SourceHash) {
        prefetch::read_l2(self.bucket(self.first(hash)));
    }

    /// As [`SourceTable::prefetch`], for the source that is next.
    #[inline]
    pub fn prefetch_next(&self, hash: SourceHash) {
        prefetch::read(self.bucket(self.first(hash)));
    }

    /// The place of the count of a source, and its value.
    #[inline]
    fn find(&self, hash: SourceHash) -> Option<(CountPlace, u64)> {
        let number = self.first(hash);
        let first = self.bucket(number);
        if let Some((at, seen)) = first.find(hash) {
            return Some((CountPlace(number, at), seen));
        }
        if first.elsewhere() == 0 {
            return None;
        }
        let number = self.second(hash);
        self.bucket(number).find(hash).map(|(at, seen)| (CountPlace(number, at), seen))
    }

    /// Counts a session of a source. False if there is no room for another source.
    #[inline]
    pub fn add(&self, hash: SourceHash) -> bool {
        while let Some((place, seen)) = self.find(hash) {
            if seen & COUNT == COUNT {
                return false;
            }
            if self.replace(place, seen, seen + 1) {
                return true;
            }
        }
        self.add_source(hash)
    }

    /// Counts a session of a source whose count [`SourceTable::count`] has found at a place, or has not
    /// found. False if there is no room for another source.
    #[inline]
    pub fn add_at(&self, hash: SourceHash, place: Option<CountPlace>) -> bool {
        let Some(place) = place else { return self.add_source(hash) };
        let seen = self.at(place).map_or(0, |count| count.load(Relaxed));
        // Sessions may have ended since then.
        let is_countable = is_count_of(seen, hash) && seen & COUNT != COUNT;
        is_countable && self.replace(place, seen, seen + 1) || self.add(hash)
    }

    /// Counts the first session of a source. False if there is no room.
    #[inline]
    fn add_source(&self, hash: SourceHash) -> bool {
        let (first, second) = (self.first(hash), self.second(hash));
        if self.take(first, hash) {
            return true;
        }
        // First this number: another worker may search the source as soon as it is counted.
        self.note_elsewhere(first, u8::saturating_add);
        let is_counted = self.take(second, hash);
        if !is_counted {
            self.note_elsewhere(first, u8::saturating_sub);
        }
        is_counted
    }

    /// Takes a free count of a bucket for the first session of a source. False if there is none.
    #[inline]
    fn take(&self, bucket: u32, hash: SourceHash) -> bool {
        let bucket = self.bucket(bucket);
        let mut at = 0;
        let is_free = self.update(&bucket.marks, |marks| {
            let free = counts_with(marks, 0);
            at = free.trailing_zeros() / u8::BITS;
            (free != 0).then(|| marks | u64::from(hash.mark()) << (at * u8::BITS))
        });
        if let Some(count) = bucket.counts.get(at as usize).filter(|_| is_free) {
            count.store(hash.tag() | 1, Relaxed);
        }
        is_free
    }

    /// Changes the number of sources of a bucket that are elsewhere by 1.
    #[cold]
    fn note_elsewhere(&self, bucket: u32, change: impl Fn(u8, u8) -> u8) {
        self.update(&self.bucket(bucket).marks, |marks| {
            let elsewhere = (marks >> ELSEWHERE) as u8;
            let changed = if elsewhere == MANY_ELSEWHERE { elsewhere } else { change(elsewhere, 1) };
            Some(marks & ((1 << ELSEWHERE) - 1) | u64::from(changed) << ELSEWHERE)
        });
    }

    /// Counts a session less, which was counted before.
    #[inline]
    pub fn remove(&self, hash: SourceHash) {
        while let Some((place, seen)) = self.find(hash) {
            if !self.replace(place, seen, seen - 1) {
                continue;
            }
            if seen & COUNT == 1 {
                let CountPlace(bucket, at) = place;
                let mark = 0xff << (u32::from(at) * u8::BITS);
                self.update(&self.bucket(bucket).marks, |marks| Some(marks & !mark));
                // A source whose buckets are one and the same is in its first one.
                if bucket != self.first(hash) {
                    self.note_elsewhere(self.first(hash), u8::saturating_sub);
                }
            }
            return;
        }
    }

    /// The counted sessions of a source, and where they are counted.
    #[inline]
    pub fn count(&self, hash: SourceHash) -> (u64, Option<CountPlace>) {
        self.find(hash).map_or((0, None), |(place, seen)| (seen & COUNT, Some(place)))
    }

    #[inline(always)]
    fn at(&self, CountPlace(number, at): CountPlace) -> Option<&AtomicU64> {
        self.bucket(number).counts.get(usize::from(at))
    }

    /// Changes a word. False if `change` returns none.
    #[inline]
    fn update(&self, word: &AtomicU64, mut change: impl FnMut(u64) -> Option<u64>) -> bool {
        if self.is_shared {
            return word.fetch_update(Relaxed, Relaxed, change).is_ok();
        }
        change(word.load(Relaxed)).inspect(|&new| word.store(new, Relaxed)).is_some()
    }

    /// Replaces a count, unless it has changed.
    #[inline]
    fn replace(&self, place: CountPlace, old: u64, new: u64) -> bool {
        let Some(count) = self.at(place) else { return false };
        if self.is_shared {
            return count.compare_exchange(old, new, Relaxed, Relaxed).is_ok();
        }
        count.store(new, Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn source(n: u32) -> [u8; 16] {
        u128::from(n).to_be_bytes()
    }

    proptest! {
        /// Whatever the order, and with places that are out of date.
        #[test]
        fn agrees_with_a_map(
            is_shared in any::<bool>(),
            steps in prop::collection::vec((0u32..900, 0u8..4, any::<bool>()), 1..3000),
        ) {
            let (table, mut model) = (SourceTable::new(1, is_shared, 7), HashMap::new());
            let mut old = HashMap::new();
            for (n, step, is_late) in steps {
                let (hash, sessions) = (table.hash(source(n)), model.entry(n).or_insert(0u64));
                let (seen, place) = table.count(hash);
                prop_assert_eq!(seen, *sessions);
                match step {
                    0 => *sessions += u64::from(table.add(hash)),
                    1 => {
                        let stale = old.insert(n, place).filter(|stale| stale.is_some()).filter(|_| is_late);
                        *sessions += u64::from(table.add_at(hash, stale.unwrap_or(place)));
                    }
                    _ if *sessions > 0 => {
                        table.remove(hash);
                        *sessions -= 1;
                    }
                    _ => {}
                }
            }
            for (n, sessions) in model {
                let hash = table.hash(source(n));
                prop_assert_eq!(table.count(hash).0, sessions);
                (0..sessions).for_each(|_| table.remove(hash));
            }
            prop_assert!(table.buckets.iter().all(|bucket| bucket.marks.load(Relaxed) == 0));
        }
    }

    #[test]
    fn sources_are_counted_each_by_itself() {
        for is_shared in [false, true] {
            let table = SourceTable::new(10_000, is_shared, 7);
            for n in 0..200 {
                let hash = table.hash(source(n));
                assert!((0..n).all(|_| table.add(hash)));
                assert_eq!(table.count(hash).0, u64::from(n));
            }
            let hash = table.hash(source(7));
            table.remove(hash);
            assert_eq!((table.count(hash).0, table.add(hash), table.count(hash).0), (6, true, 7));
            for n in 0..200 {
                (0..n).for_each(|_| table.remove(table.hash(source(n))));
            }
            let counts = table.buckets.iter().flat_map(|bucket| &bucket.counts);
            assert!(counts.into_iter().all(|count| count.load(Relaxed) & COUNT == 0));
            assert!(table.buckets.iter().all(|bucket| bucket.marks.load(Relaxed) == 0));
        }
    }

    #[test]
    fn what_was_not_counted_is_not_removed() {
        let table = SourceTable::new(1, false, 7);
        let all: Vec<_> = (0..100_000).map(|n| table.hash(source(n))).collect();
        let counted = all.iter().filter(|hash| table.add(**hash)).count();
        assert_eq!(counted, table.buckets.len() * BUCKET, "each count is in use");
        table.remove(table.hash(source(200_000)));
        assert_eq!(all.iter().map(|hash| table.count(*hash).0).sum::<u64>(), counted as u64);
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
        assert_eq!(table.count(hash).0, 4_000);
        (0..4_000).for_each(|_| table.remove(hash));
        assert_eq!(table.count(hash).0, 0);
    }
}
