//! Tests of the parent module.

use super::*;

/// The cached hits of one key.
fn lookup(cache: &mut MatchCache, seeds: Seeds, key: u32) -> Option<Vec<u32>> {
    let known = cache.find(cache.prefetch_set(seeds, key.into()), key.into());
    cache.record_lookups(1, known.is_known().into());
    let (from, to) = known.run();
    known.is_known().then(|| cache.hits()[from..to].to_vec())
}

#[test]
fn finds_inserted_hits_until_the_rules_change() {
    let (mut cache, seeds) = (MatchCache::default(), Seeds::from_seed(1));
    assert!(cache.start_vector(7));
    assert_eq!(lookup(&mut cache, seeds, 1), None);
    cache.insert(seeds, 1, &[3, 4], &[5]);
    cache.insert(seeds, 2, &[], &[]);
    cache.insert(seeds, 3, &[0; MAX_HITS + 1], &[]);
    assert_eq!(lookup(&mut cache, seeds, 1), Some(vec![3, 4, 5]));
    assert_eq!(lookup(&mut cache, seeds, 2), Some(vec![]));
    assert_eq!(lookup(&mut cache, seeds, 3), None, "too long");
    for stamp in [8, 7] {
        assert!(cache.start_vector(stamp));
        assert_eq!(lookup(&mut cache, seeds, 1), None, "of another classifier");
    }
}

/// Many thousand keys, so that sets and ring wrap many times: results are correct, and recent keys are
/// found.
#[test]
fn old_results_are_dropped_and_none_is_wrong() {
    let (mut cache, seeds) = (MatchCache::default(), Seeds::from_seed(2));
    assert!(cache.start_vector(1));
    let hits = |key: u32| vec![key; key as usize % (MAX_HITS + 1)];
    let mut found_count = 0;
    for key in 0..100_000 {
        cache.insert(seeds, key.into(), &hits(key), &[]);
        assert_eq!(lookup(&mut cache, seeds, key), Some(hits(key)));
        if let Some(found) = lookup(&mut cache, seeds, key / 2) {
            assert_eq!(found, hits(key / 2));
            found_count += 1;
        }
    }
    assert!(found_count > 1000 && cache.written > 4 * RING as u64, "{found_count}, {}", cache.written);
}

#[test]
fn pauses_when_keys_do_not_recur() {
    let (mut cache, seeds) = (MatchCache::default(), Seeds::useless());
    for key in 0..TRIAL {
        assert!(cache.start_vector(1));
        assert_eq!(lookup(&mut cache, seeds, key), None);
    }
    assert!((0..REST).all(|_| !cache.start_vector(1)));
    assert!(cache.start_vector(1), "another trial");
    cache.insert(seeds, 0, &[1], &[]);
    for _ in 0..10 * TRIAL {
        assert!(cache.start_vector(1));
        assert_eq!(lookup(&mut cache, seeds, 0), Some(vec![1]));
    }
}
