//! Tests of the parent module.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

use super::*;

impl Index {
    /// Every number is in the first bucket of its search order that has a free lane, or before it.
    fn assert_consistent(&self) {
        let buckets = self.buckets.get().iter().enumerate();
        let numbers = buckets
            .flat_map(|(at, bucket)| bucket.entries().map(move |(_, hash, number)| (at, hash, number)));
        let mut len = 0;
        for (at, hash, number) in numbers {
            let passed = self.probes(bucket_of(hash, &self.shape)).take_while(|&probe| probe != at);
            passed.for_each(|probe| assert_eq!(self.buckets.at(probe).free(), 0, "{number} of {hash:#x}"));
            len += 1;
        }
        assert_eq!(len, self.len);
    }
}

proptest! {
    /// With colliding hashes, full buckets, the way from the last bucket to the first, and growth, the index
    /// agrees with a map.
    #[test]
    fn agrees_with_a_map(
        first in 1..4u32,
        steps in prop::collection::vec((0..80u32, 0..4u32, 0..8u32, 0..3u32, any::<bool>()), 1..400),
    ) {
        let mut index = Index::beginning_with(first, 80).unwrap();
        let mut model = HashMap::new();
        for (number, one, more, rest, adds) in steps {
            let hash = one << 30 | rest << 20 | more;
            match model.remove(&number) {
                Some(hash) => index.remove(hash, number),
                None if adds => {
                    model.insert(number, hash);
                    index.insert(hash, number);
                }
                None => index.remove(hash, number),
            }
            index.assert_consistent();
            prop_assert_eq!(index.len as usize, model.len());
            for (&number, &hash) in &model {
                prop_assert_eq!(index.find(hash, |candidate| candidate == number), Some(number));
            }
            let is_known = model.values().any(|&known| known == hash);
            prop_assert_eq!(index.find(hash, |_| true).is_some(), is_known);
        }
    }
}

#[test]
fn all_numbers_may_have_one_hash() {
    let mut index = Index::beginning_with(2, 100).unwrap();
    // The last bucket, whose numbers go on in the first one.
    (0..100).for_each(|number| index.insert(u32::MAX, number));
    index.assert_consistent();
    for gone in 0..100 {
        let found = |number| index.find(u32::MAX, |candidate| candidate == number);
        assert!((gone..100).all(|number| found(number) == Some(number)), "{gone}");
        index.remove(u32::MAX, gone);
        index.assert_consistent();
    }
    assert!(index.buckets.get().iter().all(|bucket| bucket.numbers == [0; LANES]));
}

/// A worker that writes to memory which the kernel has not allocated waits for it.
#[test]
fn memory_grows_with_the_numbers_and_is_requested_before() {
    let mut index = Index::new(1 << 20).unwrap();
    let mut random = SmallRng::seed_from_u64(2);
    for number in 0..1 << 20 {
        index.insert(random.next_u32(), number);
        let used = index.shape.used() as usize * size_of::<Bucket>();
        assert!(used <= index.buckets.requested() || index.shape.used() == index.shape.count());
        // Beyond the first buckets, up to 32 bytes for a number.
        assert!(used <= (FIRST as usize * size_of::<Bucket>()).max(32 * number as usize), "{number}");
    }
    assert!((2 << 20..=4 << 20).contains(&(index.shape.used() as usize * LANES)), "{:?}", index.shape);
}

#[test]
fn hashes_depend_on_the_seed_and_on_both_numbers() {
    let (a, b) = (Hasher::new(1), Hasher::new(2));
    assert_ne!(a.hash(7, 7), b.hash(7, 7));
    let all: HashSet<_> = (0..1000).flat_map(|n| [a.hash(n, 1), a.hash(n, 2)]).collect();
    assert_eq!(all.len(), 2000);
}
