//! A small index compared with a model, concurrent writers, and lookups with misleading lanes. Needs root.
#![allow(clippy::unwrap_used)]

use std::collections::HashSet;
use std::net::Ipv4Addr;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::super::fast_flow::{FAST_SLOTS, FastFlowStats, FastKey};
use super::super::fast_path::tests::{NOW, packet, rig};
use super::super::program::tests::in_namespace;
use super::*;

fn key(n: u32) -> Key {
    std::array::from_fn(|at| if at == 1 { n } else { 7 })
}

impl Index {
    /// The values of all taken lanes, sorted.
    fn taken(&self) -> Vec<u64> {
        let buckets = (0..=self.mask).filter_map(|at| self.buckets.get(at));
        let lanes = buckets.flat_map(|bucket| &bucket.0).map(|lane| lane.load(Ordering::Relaxed));
        let mut taken: Vec<u64> = lanes.filter(|lane| *lane != 0).collect();
        taken.sort_unstable();
        taken
    }

    fn has(&self, key: &Key, slot: u32) -> bool {
        let (lane, buckets) = self.locate(key, slot).unwrap();
        buckets.iter().any(|bucket| bucket.find(lane).is_some())
    }

    /// The lanes that the program searches for a key.
    fn lanes(&self, key: &Key) -> [&AtomicU64; 2 * LANES] {
        let [first, second] = self.locate(key, 0).unwrap().1;
        assert!(!std::ptr::eq(first, second), "once in 32,768 times");
        let mut lanes = first.0.iter().chain(&second.0);
        std::array::from_fn(|_| lanes.next().unwrap())
    }
}

#[test]
fn the_index_matches_a_model() {
    let Some(_alone) = in_namespace() else { return };
    let index = Index::create(c"few", 2).unwrap();
    let steps = prop::collection::vec((any::<bool>(), 0..8u32, 1..5u32), 1..200);
    let mut runner = TestRunner::new(Config { cases: 300, failure_persistence: None, ..Config::default() });
    let refused = std::cell::Cell::new(0);
    let result = runner.run(&steps, |steps| {
        let mut model = HashSet::new();
        for (put, n, slot) in steps {
            let (key, pair) = (key(n), (n, slot));
            let full = index.locate(&key, slot).unwrap().1.iter().all(|bucket| bucket.free_lanes() == 0);
            if !put {
                index.remove(&key, slot);
                model.remove(&pair);
            } else if full && !model.contains(&pair) {
                prop_assert!(!index.insert(&key, slot));
                refused.set(refused.get() + 1);
            } else {
                prop_assert!(index.insert(&key, slot));
                model.insert(pair);
            }
            let lane = |(n, slot): &(u32, u32)| index.locate(&self::key(*n), *slot).unwrap().0;
            let mut lanes: Vec<u64> = model.iter().map(lane).collect();
            lanes.sort_unstable();
            prop_assert_eq!(index.taken(), lanes);
            prop_assert!(model.iter().all(|(n, slot)| index.has(&self::key(*n), *slot)));
        }
        model.iter().for_each(|(n, slot)| index.remove(&self::key(*n), *slot));
        Ok(())
    });
    result.unwrap();
    assert!(refused.get() > 100, "{refused:?}");
}

/// No thread removes or replaces another thread's entries, and there is room for as many as there are lanes.
#[test]
fn two_threads_write_concurrently() {
    let Some(_alone) = in_namespace() else { return };
    let index = Index::create(c"one", 1).unwrap();
    let half = LANES as u32 / 2;
    std::thread::scope(|scope| {
        for first in [1, 1 + half] {
            let (index, mine) = (&index, (first..first + half).map(|n| (key(n), n)));
            let mine: Vec<(Key, u32)> = mine.collect();
            scope.spawn(move || {
                for _ in 0..1_000_000 {
                    assert!(mine.iter().all(|(key, slot)| index.insert(key, *slot)));
                    assert!(mine.iter().all(|(key, slot)| index.has(key, *slot)));
                    mine.iter().for_each(|(key, slot)| index.remove(key, *slot));
                    assert!(!mine.iter().any(|(key, slot)| index.has(key, *slot)));
                }
            });
        }
    });
    assert_eq!(index.taken(), []);
}

/// A flow is found in any lane of its two buckets, whatever the other lanes contain, and no other entry is
/// applied.
#[test]
fn lanes_are_hints() {
    let Some(rig) = rig() else { return };
    let (sent, path) = (packet(17), &rig.path);
    let (frame, key) = (sent.build(), rig.key(17, sent.ends[0], sent.ends[1]));
    let other = FastKey { source_port: 9, ..key };
    for (slot, key) in [(1, &key), (2, &other), (3, &key)] {
        path.install(slot, NOW, key, &rig.wire()).unwrap();
    }
    path.revoke(3);
    let raw = format::key(&key).unwrap();
    let (lane, _) = path.index.locate(&raw, 1).unwrap();
    let (tag, lanes) = (lane & !u64::from(u32::MAX), path.index.lanes(&raw));
    // The flow's tag with another flow's slot, the flow's revoked slot, a free slot, the header, an invalid
    // slot; and other tags.
    let wrong = [tag | 2, tag | 3, tag | 4, tag, tag | u64::from(FAST_SLOTS), lane ^ 1 << 32, lane ^ 1 << 63];
    for at in 0..lanes.len() {
        for turn in 0..wrong.len() {
            for (n, to) in lanes.iter().enumerate() {
                to.store(wrong[(n + turn) % wrong.len()], Ordering::Relaxed);
            }
            assert_eq!(rig.send(&frame), None, "lane {at}, {turn}");
            lanes[at].store(lane, Ordering::Relaxed);
            assert!(rig.send(&frame).is_some(), "lane {at}, {turn}");
        }
    }
    assert_eq!([2, 3, 4].map(|slot| path.flow_stats(slot)), [FastFlowStats::default(); 3]);
    assert_eq!(path.flow_stats(1).packets, 16 * wrong.len() as u64);
}

#[test]
fn full_buckets_refuse_a_flow() {
    let Some(rig) = rig() else { return };
    let (sent, path) = (packet(6), &rig.path);
    let (frame, key) = (sent.build(), rig.key(6, sent.ends[0], sent.ends[1]));
    let lanes = path.index.lanes(&format::key(&key).unwrap());
    lanes.iter().for_each(|lane| lane.store(u64::MAX, Ordering::Relaxed));
    assert_eq!(path.install(1, NOW, &key, &rig.wire()), Err(libc::ENOSPC));
    assert_eq!(rig.send(&frame), None);
    // A lane that leads to the slot does not match: the failed installation was undone.
    lanes[0].store(path.index.locate(&format::key(&key).unwrap(), 1).unwrap().0, Ordering::Relaxed);
    assert_eq!(rig.send(&frame), None);
    for lane in lanes {
        lanes[0].store(u64::MAX, Ordering::Relaxed);
        lane.store(0, Ordering::Relaxed);
        path.install(1, NOW, &key, &rig.wire()).unwrap();
        assert_ne!(lane.load(Ordering::Relaxed), 0);
        assert!(rig.send(&frame).is_some());
        path.remove(&key, 1);
        assert_eq!(lane.load(Ordering::Relaxed), 0);
        assert_eq!(rig.send(&frame), None);
        lane.store(u64::MAX, Ordering::Relaxed);
    }
}

/// Every slot gets a flow, and each is found, for similar and for different keys.
#[test]
fn every_slot_finds_room() {
    let Some(rig) = rig() else { return };
    let (sent, path) = (packet(6), &rig.path);
    let ends = |slot: u32| match slot % 3 {
        0 => [(Ipv4Addr::from(slot).into(), 1000), sent.ends[1]],
        1 => [sent.ends[0], (Ipv4Addr::from(slot << 8).into(), 80)],
        _ => [(Ipv4Addr::from(slot >> 8).into(), slot as u16), sent.ends[1]],
    };
    let key = |slot| rig.key(6, ends(slot)[0], ends(slot)[1]);
    for slot in 1..FAST_SLOTS {
        assert_eq!(path.install(slot, NOW, &key(slot), &rig.wire()), Ok(()), "{slot}");
    }
    assert_eq!(path.index.taken().len() as u32, FAST_SLOTS - 1);
    for slot in (1..FAST_SLOTS).step_by(101) {
        let mut sent = sent.clone();
        sent.ends = ends(slot);
        assert!(rig.send(&sent.build()).is_some(), "{slot}");
        assert_eq!(path.flow_stats(slot).packets, 1);
    }
    (1..FAST_SLOTS).for_each(|slot| path.remove(&key(slot), slot));
    assert_eq!(path.index.taken(), []);
}
