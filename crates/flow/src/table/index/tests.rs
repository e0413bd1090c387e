//! Tests of the parent module.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

use super::*;
use crate::shape::CROWD;

impl Index {
    /// Whether the index is empty and all counters are zero.
    fn is_clean(&self) -> bool {
        let empty = self.buckets.get().iter().all(|b| b.passed == 0 && b.tags == [0; LANES]);
        empty && (self.keys, self.displaced) == (0, 0)
    }
}

/// In these tests the number of a flow is its key.
fn contents(index: &Index, hash: Hash) -> HashSet<u32> {
    (0..2 * (REACH * LANES) as u32).filter(|&n| index.find(hash, |found| found.0 == n).is_some()).collect()
}

#[test]
fn an_overfull_bucket_refuses_entries_and_keeps_no_remains() {
    let mut index = Index::new(4 * 1000).unwrap();
    let hash = Hash::of_parts(u32::MAX, 0, 7);
    let room = (REACH * LANES) as u32;
    for n in 0..room {
        assert!(index.insert(hash, FlowRef(n)), "{n}");
    }
    assert!(!index.insert(hash, FlowRef(room)));
    assert_eq!(index.displaced(), room - LANES as u32);
    assert_eq!(contents(&index, hash), (0..room).collect());
    (0..room).for_each(|n| index.remove(hash, FlowRef(n)));
    assert!(index.is_clean());
}

#[test]
fn a_full_bucket_stays_findable() {
    let mut index = Index::beginning_with(2, 4 * 64).unwrap();
    // In each of the first two buckets. The keys of the first bucket would move.
    let hash = |n: u32| match n < 16 {
        true => Hash::of_parts(0, 1, n as u16),
        false => Hash::of_parts(1 << 31, 0, n as u16),
    };
    // With the other eight of the first bucket, the second one's keys fill what is within its reach.
    let all = 8 + (REACH * LANES) as u32;
    (0..all).for_each(|n| assert!(index.insert(hash(n), FlowRef(n)), "{n}"));
    let grow = |gone: u32| {
        index.remove(hash(gone), FlowRef(gone));
        index.grow(|found| hash(found.0), |_| {});
        assert!((0..gone).all(|n| index.find(hash(n), |found| found.0 == n).0 == n), "{gone}");
        index.shape.used()
    };
    // Sixteen keys need room. Half a bucket of the others must go first.
    assert_eq!((all - 8..all).rev().map(grow).collect::<Vec<_>>(), [2, 2, 2, 2, 2, 2, 2, 4]);
}

/// Shortly before a doubling is complete, the buckets that are not split yet are fullest. Half of what a
/// search may visit has to be enough for 700,000 keys: then tables of any size refuse none.
#[test]
fn growing_displaces_no_key_by_half_of_the_reach() {
    let buckets = 1 << 17;
    let mut index = Index::beginning_with(buckets, 8 * buckets).unwrap();
    let mut random = SmallRng::seed_from_u64(1);
    let mut hashes = Vec::new();
    while index.shape.used() < index.shape.count() {
        for _ in 0..2 {
            let hash = Hash::of_parts(random.next_u32(), random.next_u32() as u16, random.next_u32() as u16);
            let found = FlowRef(hashes.len() as u32);
            hashes.push(hash);
            assert!(index.insert(hash, found));
            let is_there = |at: usize| index.buckets.get()[at].lane_of(hash.tag(), found).is_some();
            let passed = index.probes(hash).position(is_there);
            assert!(passed.is_some_and(|passed| passed < REACH / 2), "{passed:?}");
        }
        index.grow(|found| hashes[found.0 as usize], |_| {});
    }
    assert!(hashes.len() > 5 * buckets as usize);
}

/// A worker that writes to memory which the kernel has not allocated waits for it.
#[test]
fn memory_is_requested_before_buckets_use_it() {
    let mut index = Index::new(1 << 20).unwrap();
    let mut random = SmallRng::seed_from_u64(2);
    let mut hashes = Vec::new();
    let mut ahead = 0;
    while index.shape.used() < index.shape.count() {
        let hash = Hash::of_parts(random.next_u32(), random.next_u32() as u16, random.next_u32() as u16);
        hashes.push(hash);
        assert!(index.insert(hash, FlowRef(hashes.len() as u32 - 1)));
        index.grow(|found| hashes[found.0 as usize], |_| {});
        let (used, requested) = ((index.shape.used() as usize + REACH) << 6, index.buckets.requested());
        assert!(used <= requested || requested >= index.bytes(), "{used} {requested}");
        ahead = ahead.max(requested.saturating_sub(used));
    }
    // Little more than what is used.
    assert!(ahead <= 2 * HUGE, "{ahead}");
}

proptest! {
    /// Few buckets and few tags, so that keys pass full buckets and share tags while the index grows.
    #[test]
    fn agrees_with_a_set(
        steps in prop::collection::vec((0..4u32, 0..8u16, 0..3u16, 0..60u32, any::<bool>(), any::<bool>()), 1..300),
    ) {
        let mut index = Index::beginning_with(2, 80).unwrap();
        let mut model = HashMap::new();
        for (one, more, tag, n, insert, grow) in steps {
            let hash = Hash::of_parts(one << 30 | 0x3fff_ffff, more, tag);
            if insert && !model.contains_key(&n) {
                prop_assert!(index.insert(hash, FlowRef(n)));
                model.insert(n, hash);
            } else if let Some(hash) = model.remove(&n) {
                index.remove(hash, FlowRef(n));
            }
            if grow {
                let used = index.shape.used();
                let grows = !index.shape.is_whole() || index.keys * 2 > used * CROWD;
                index.grow(|found| model[&found.0], |_| {});
                prop_assert_eq!(index.shape.used() > used, grows && used < index.shape.count());
            }
            prop_assert_eq!(index.keys as usize, model.len());
            // Keys of a later bucket may be found too.
            for (n, hash) in &model {
                prop_assert!(contents(&index, *hash).contains(n));
            }
            prop_assert!(contents(&index, hash).iter().all(|n| model.contains_key(n)));
        }
        for (n, hash) in model {
            index.remove(hash, FlowRef(n));
        }
        prop_assert!(index.is_clean());
    }
}
