//! The classifier against a list of patterns that is searched linearly.

use std::collections::BTreeMap;

use mmb_classify::{
    Batch, ByteSource, Classifier, Entry, Field, Hit, MaskedKey, Occupancy, Pattern, Predicate, Presence,
    Ranges, Relation, Structure, Test, TruePredicates, VECTOR,
};
use mmb_packet::build::{Frame, Ip4, Tcp};
use mmb_packet::window::{BYTES, CHUNKS, KIND};
use mmb_packet::{Kind, Meta, PayloadLayer, Window, fill_window, parse};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

const KINDS: [u8; 4] = [Kind::IP4, Kind::IP4 | Kind::TCP, Kind::IP6 | Kind::TCP, Kind::IP6 | Kind::UDP];

/// Bits at any place with few values, so that keys are shared and windows hit.
fn masked() -> impl Strategy<Value = MaskedKey> {
    let bits = (0..CHUNKS * 8, select(vec![1usize, 4, 8, 16]), 0u128..3)
        .prop_filter_map("inside a chunk", |(byte, width, value)| MaskedKey::bits(byte * 16, width, value));
    // Prefixes of one address.
    let prefix =
        (1usize..24, 0u128..3).prop_filter_map("inside", |(len, value)| MaskedKey::bits(0, len, value));
    let kind = select(KINDS.to_vec()).prop_map(|kind| MaskedKey::kind((0xff, kind)));
    prop_oneof![4 => bits, 4 => prefix, 1 => kind, 1 => Just(MaskedKey::ANY)]
}

/// A range of 16-bit values, or its complement, at few places.
fn test() -> impl Strategy<Value = Test> {
    (0u8..CHUNKS as u8, 0u8..4, 0u128..0x300, 0u128..0x200, any::<bool>()).prop_map(
        |(chunk, word, low, span, absent)| {
            let present = Presence { byte: KIND as u8, mask: Kind::L4_MASK, value: Kind::TCP };
            let field = Field { chunk, shift: word * 16, width: 16, present };
            Test::InRanges { field, ranges: Ranges::new([(low, low + span)]), absent }
        },
    )
}

/// One entry, or two that differ in one bit.
fn pattern() -> impl Strategy<Value = Pattern> {
    (vec(masked(), 0..3), vec(test(), 0..2), vec(test(), 0..2), any::<bool>()).prop_filter_map(
        "no contradiction",
        |(musts, tests, others, split)| {
            let must = musts.iter().try_fold(MaskedKey::ANY, |all, one| all.and(one))?;
            let half = |bit| must.and(&MaskedKey::bits(BYTES * 8 - 16, 1, bit)?);
            let entries = match (split, half(0), half(1)) {
                (true, Some(a), Some(b)) => vec![Entry::new(&a, tests)?, Entry::new(&b, others)?],
                _ => vec![Entry::new(&must, tests)?],
            };
            Pattern::new(entries, Vec::new())
        },
    )
}

fn window() -> impl Strategy<Value = Window> {
    (select(KINDS.to_vec()), vec(0u8..3, BYTES)).prop_map(|(kind, bytes)| {
        let mut window = Window::default();
        window.bytes_mut().copy_from_slice(&bytes);
        window.bytes_mut()[KIND] = kind;
        window
    })
}

fn exact(must: &MaskedKey) -> Pattern {
    let entry = Entry::new(must, None).expect("about IP");
    Pattern::new(vec![entry], Vec::new()).expect("one entry")
}

fn cover(pattern: &Pattern) -> MaskedKey {
    pattern.entries()[0].cover()
}

/// The sum over all hash tables of a classifier.
fn hashed(classifier: &Classifier) -> Occupancy {
    let tables = classifier.tables().filter(|info| info.structure == Structure::Hash);
    tables.fold(Occupancy::default(), |sum, info| Occupancy {
        keys: sum.keys + info.occupancy.keys,
        pages: sum.pages + info.occupancy.pages,
        lanes: sum.lanes + info.occupancy.lanes,
        overflow: sum.overflow + info.occupancy.overflow,
        bytes: sum.bytes + info.occupancy.bytes,
    })
}

type Model = BTreeMap<u32, Pattern>;

fn check(classifier: &Classifier, model: &Model, windows: &[Window], batch: &mut Batch) {
    assert_eq!(classifier.len(), model.len());
    batch.len = windows.len();
    batch.windows[..windows.len()].copy_from_slice(windows);
    classifier.classify(batch);
    assert!(batch.hits.is_sorted_by_key(|hit| hit.pkt));
    let mut hits = batch.hits.clone();
    hits.sort();
    let matches = |pattern: &Pattern, window: &Window| {
        pattern.entries().iter().any(|entry| entry.holds(window, TruePredicates::NONE))
    };
    let expected = windows.iter().enumerate().flat_map(|(pkt, window)| {
        let matching = model.iter().filter(move |(_, pattern)| matches(pattern, window));
        matching.map(move |(&slot, _)| Hit::new(pkt as u16, slot))
    });
    let expected: Vec<_> = expected.collect();
    let differ = hits.iter().zip(&expected).find(|(a, b)| a != b);
    assert_eq!((differ, hits.len()), (None, expected.len()), "found and expected");
    // The portable code finds the same.
    let mut plain = Batch::new().without_wide_vectors();
    plain.len = windows.len();
    plain.windows[..windows.len()].copy_from_slice(windows);
    classifier.classify(&mut plain);
    plain.hits.sort();
    assert_eq!(plain.hits, hits);
    let entries = || model.values().flat_map(|pattern| pattern.entries());
    assert_eq!(classifier.chunks(), entries().fold(0, |chunks, entry| chunks | entry.chunks()));
    let top = classifier.tables().filter(|info| info.depth == 0);
    assert_eq!(top.map(|info| info.entries).sum::<usize>(), entries().count());
}

proptest! {
    #[test]
    fn finds_exactly_the_matching_rules(
        bulk in vec(pattern(), 0..120),
        steps in vec((pattern(), any::<u16>(), 0u8..5), 1..120),
        trains in vec((window(), 1usize..4), 1..40),
        seed: u64,
    ) {
        let windows: Vec<Window> = trains.iter().flat_map(|&(w, n)| std::iter::repeat_n(w, n)).collect();
        let mut batch = Batch::new();
        let mut classifier = Classifier::with_seed(seed);
        let mut model: Model = (1000..).zip(bulk).collect();
        classifier.extend(model.clone());
        let mut past = Vec::new();
        for (slot, (pattern, choice, step)) in (0..).zip(steps) {
            match step {
                0 | 1 if !model.is_empty() => {
                    let victim = *model.keys().nth(usize::from(choice) % model.len()).unwrap();
                    model.remove(&victim);
                    prop_assert!(classifier.remove(victim));
                    prop_assert!(!classifier.remove(victim), "twice");
                }
                2 if choice % 8 == 0 => {
                    classifier = classifier.rebuilt();
                    prop_assert!(!classifier.is_stale());
                }
                _ => {
                    classifier.insert(slot, &pattern);
                    model.insert(slot, pattern);
                }
            }
            if slot % 8 == 0 {
                past.push((classifier.clone(), model.clone()));
            }
        }
        past.push((classifier, model));
        for (classifier, model) in &past {
            check(classifier, model, &windows, &mut batch);
            check(&classifier.rebuilt(), model, &windows, &mut batch);
        }
        let (mut classifier, model) = past.pop().unwrap();
        model.keys().for_each(|&slot| assert!(classifier.remove(slot)));
        check(&classifier, &Model::new(), &windows, &mut batch);
        prop_assert!(classifier.tables().next().is_none());
    }
}

/// Rules that read only the first chunk, so that the match cache is used until the rules change.
fn flow_rule() -> impl Strategy<Value = Pattern> {
    let bits = (0usize..12, select(vec![4usize, 8, 16]), 0u128..3)
        .prop_filter_map("inside", |(byte, width, value)| MaskedKey::bits(byte * 8, width, value));
    vec(bits, 0..3).prop_filter_map("no contradiction", |musts| {
        let must = musts.iter().try_fold(MaskedKey::ANY, |all, one| all.and(one))?;
        Pattern::new(vec![Entry::new(&must, None)?], Vec::new())
    })
}

proptest! {
    #[test]
    fn flows_that_come_again(
        rules in vec(flow_rule(), 40..120),
        steps in vec((flow_rule(), any::<u16>(), any::<bool>()), 1..20),
        windows in vec(window(), 1..100),
    ) {
        let mut batch = Batch::new();
        let mut classifier = Classifier::new();
        let mut model: Model = (1000..).zip(rules).collect();
        classifier.extend(model.clone());
        for (slot, (pattern, choice, insert)) in (0..).zip(steps) {
            let old = (classifier.clone(), model.clone());
            if insert {
                classifier.insert(slot, &pattern);
                model.insert(slot, pattern);
            } else {
                let victim = *model.keys().nth(usize::from(choice) % model.len()).unwrap();
                model.remove(&victim);
                prop_assert!(classifier.remove(victim));
            }
            for (classifier, model) in [&old, &(classifier.clone(), model.clone()), &old] {
                check(classifier, model, &windows, &mut batch);
                check(classifier, model, &windows, &mut batch);
            }
        }
    }
}

/// Keys that differ only in their last bits, as in address ranges and port lists, in numbers that split
/// pages.
#[test]
fn many_keys_come_and_go() {
    let pattern = |i: u32| exact(&MaskedKey::bits(0, 32, (0x0a00_0000 + i).into()).unwrap());
    let window = |i: u32| Window { chunk: *cover(&pattern(i)).key() };
    let n = 50_000;
    let mut classifier = Classifier::with_seed(5);
    (0..n).for_each(|i| classifier.insert(i, &pattern(i)));
    let full = classifier.clone();
    let occupancy = hashed(&full);
    assert_eq!(occupancy.keys, n as usize);
    let load = occupancy.keys as f64 / occupancy.lanes as f64;
    assert_eq!(occupancy.overflow, 0);
    assert!(load > 0.25, "the hash spreads badly: {load}");

    for i in (0..n).filter(|i| i % 100 != 0) {
        assert!(classifier.remove(i));
    }
    let rest = hashed(&classifier);
    assert!(rest.pages * 10 < occupancy.pages, "{} of {} pages are left", rest.pages, occupancy.pages);

    let mut batch = Batch::new();
    for first in (0..n).step_by(VECTOR) {
        batch.len = VECTOR;
        for (i, slot) in (first..).take(VECTOR).enumerate() {
            batch.windows[i] = window(slot);
        }
        full.classify(&mut batch);
        let all = (first..n).take(VECTOR).enumerate().map(|(i, slot)| Hit::new(i as u16, slot));
        assert_eq!(batch.hits, all.clone().collect::<Vec<_>>());
        classifier.classify(&mut batch);
        assert_eq!(batch.hits, all.filter(|hit| hit.slot % 100 == 0).collect::<Vec<_>>());
    }
    assert!((0..n).step_by(100).all(|i| classifier.remove(i)));
    assert!(classifier.is_empty() && classifier.tables().next().is_none() && classifier.chunks() == 0);
}

/// Keys as in real rule sets: regular in some bits, constant in others.
#[test]
fn regular_keys_spread_evenly() {
    let bits = |at, width, value: u32| MaskedKey::bits(at, width, value.into()).unwrap();
    /// Name, and 16-bit values at three places for each number.
    type Shape = (&'static str, fn(u32) -> [(usize, u32); 3]);
    let shapes: [Shape; 6] = [
        ("destination ports", |i| [(80, i), (112, 0), (112, 0)]),
        ("networks", |i| [(0, i), (112, 0), (112, 0)]),
        ("hosts and ports", |i| [(16, i / 100), (80, i % 100), (112, 0)]),
        ("pairs of hosts", |i| [(16, i / 128), (48, i % 128), (64, 0x0a0a)]),
        ("every 256th", |i| [(8, i), (112, 0), (112, 0)]),
        ("second chunk", |i| [(128 + 48, i), (128 + 112, i % 7), (112, 0)]),
    ];
    for (name, shape) in shapes {
        for seed in 0..16 {
            let mut classifier = Classifier::with_seed(seed);
            let rule = |i| {
                let [a, b, c] = shape(i).map(|(at, value)| bits(at, 16, value));
                (i, exact(&a.and(&b).and_then(|ab| ab.and(&c)).unwrap()))
            };
            classifier.extend((0..20_000).map(rule));
            let occupancy = hashed(&classifier);
            let load = occupancy.keys as f64 / occupancy.lanes as f64;
            assert_eq!(occupancy.overflow, 0);
            assert!(load > 0.15, "{name}, seed {seed}: {load}");
        }
    }
}

/// Time and memory grow linearly with the number of rules that have the same key.
#[test]
fn a_key_with_many_rules() {
    let n = 100_000;
    let port = exact(&MaskedKey::bits(80, 16, 7).unwrap());
    let mut classifier = Classifier::with_seed(5);
    let mut older = Vec::new();
    for i in 0..n {
        if i % 1000 == 0 {
            older.push(classifier.clone());
        }
        classifier.insert(i, &port);
    }
    assert!(classifier.bytes() < n as usize * 500, "{} bytes", classifier.bytes());
    let mut batch = Batch::new();
    batch.len = 1;
    batch.windows[0] = Window { chunk: *cover(&port).key() };
    classifier.classify(&mut batch);
    assert_eq!(batch.hits.len(), n as usize);
    assert!((0..n).rev().all(|i| classifier.remove(i)));
    assert!(classifier.is_empty());
    assert!(older.iter().enumerate().all(|(i, c)| c.len() == i * 1000));
}

#[test]
fn every_entry_requires_ip() {
    assert!(Entry::new(&MaskedKey::kind((0xff, 0)), None).is_none());
}

#[test]
fn packets_beyond_the_vector_are_ignored() {
    let mut classifier = Classifier::new();
    classifier.insert(0, &exact(&MaskedKey::kind((Kind::L3_MASK, Kind::IP6))));
    let mut batch = Batch::default();
    batch.windows.iter_mut().for_each(|window| window.bytes_mut()[KIND] = Kind::IP4);
    batch.windows[VECTOR - 1].bytes_mut()[KIND] = Kind::IP6;
    batch.len = VECTOR + 1;
    classifier.classify(&mut batch);
    assert_eq!(batch.hits, [Hit::new(VECTOR as u16 - 1, 0)]);
}

/// Few rules, which the early scan mostly excludes: compared one by one, and behind a pre-filter.
#[test]
fn a_single_match_among_few_rules_is_found() {
    let about = |at, width, value| exact(&MaskedKey::bits(at, width, value).expect("inside a chunk"));
    let sets = [
        vec![about(80, 16, 7)],
        vec![about(80, 16, 7), about(300, 8, 3)],
        (1..9).map(|i| about(0, 24 + i as usize / 4, (5 << (i / 4)) | (i % 2))).collect(),
    ];
    for rules in sets {
        let mut classifier = Classifier::with_seed(3);
        classifier.extend((0..).zip(rules.iter().cloned()));
        for (slot, rule) in rules.iter().enumerate() {
            let mut batch = Batch::new();
            batch.len = VECTOR;
            batch.windows.iter_mut().for_each(|window| window.bytes_mut()[KIND] = Kind::IP4);
            classifier.classify(&mut batch);
            assert_eq!(batch.hits, []);
            batch.windows[VECTOR - 1] = Window { chunk: *cover(rule).key() };
            classifier.classify(&mut batch);
            let found = |hit: &Hit| usize::from(hit.pkt) == VECTOR - 1 && hit.slot == slot as u32;
            assert!(batch.hits.iter().any(found), "{slot}: {:?}", batch.hits);
        }
    }
}

/// Rules about bytes: found through a pivot, or by a false predicate. Results do not carry over to the next
/// vector.
#[test]
fn rules_on_bytes() {
    let kind = MaskedKey::kind((Kind::L4_MASK, Kind::TCP));
    let rule = |pivot, tests: Vec<Test>| {
        let entry = Entry::new(&kind, tests).unwrap().with_pivot(pivot);
        let ask = Predicate::bytes(
            ByteSource::Payload(PayloadLayer::Tcp),
            Relation::Starts,
            vec![Box::from(&b"GET"[..])],
        );
        Pattern::new(vec![entry], vec![ask.unwrap()]).unwrap()
    };
    let mut classifier = Classifier::with_seed(9);
    classifier.extend((0..100).map(|slot| (slot, rule(Some(0), Vec::new()))));
    classifier.insert(100, &rule(None, vec![Test::Clause { positive: None, negative: Some(0) }]));
    let payloads: [&[u8]; 4] = [b"GET /", b"GET /", b"PUT /", b""];
    let frames = payloads.map(|payload| {
        let bytes =
            Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), Tcp::new(1, 2)).payload(payload).build();
        let mut meta = Meta::default();
        parse(&bytes, bytes.len(), &mut meta).unwrap();
        (bytes, meta)
    });
    let mut batch = Batch::new();
    let mut hits = |classifier: &Classifier| {
        batch.len = frames.len();
        for (pkt, (bytes, meta)) in frames.iter().enumerate() {
            fill_window(bytes, meta, 0, 1, classifier.chunks(), &mut batch.windows[pkt]);
            if classifier.needs_bytes() {
                classifier.inspect(&mut batch, pkt, bytes, meta);
            }
        }
        classifier.classify(&mut batch);
        let of = |pkt| batch.hits.iter().filter(move |hit| hit.pkt == pkt).map(|hit| hit.slot);
        (0..4).map(|pkt| (of(pkt).count(), of(pkt).max())).collect::<Vec<_>>()
    };
    let all = [(100, Some(99)), (100, Some(99)), (1, Some(100)), (1, Some(100))];
    assert_eq!(hits(&classifier), all);
    assert_eq!(hits(&classifier.rebuilt()), all);
    assert!((0..100).all(|slot| classifier.remove(slot)));
    let rest = [(0, None), (0, None), (1, Some(100)), (1, Some(100))];
    assert_eq!(hits(&classifier), rest);
    assert!(classifier.remove(100) && !classifier.needs_bytes());
    assert_eq!(hits(&classifier), [(0, None); 4]);
}
