//! The classifier against a list of patterns that is walked from the front.

use std::collections::BTreeMap;

use mmb_classify::{Batch, Classifier, Exclusion, Hit, Masked, Pattern, Place, VECTOR};
use mmb_packet::window::{CHUNKS, KIND};
use mmb_packet::{Kind, Window};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

const KINDS: [u8; 5] = [0, Kind::IP4, Kind::IP4 | Kind::TCP, Kind::IP6 | Kind::TCP, Kind::IP6 | Kind::UDP];

/// Bits anywhere; few values, so that keys are shared and windows hit.
fn masked() -> impl Strategy<Value = Masked> {
    let bits = (0..CHUNKS * 8, select(vec![1usize, 4, 8, 16]), 0u128..3)
        .prop_filter_map("inside a chunk", |(byte, width, value)| Masked::bits(byte * 16, width, value));
    let kind = select(KINDS[1..].to_vec()).prop_map(|kind| Masked::kind((0xff, kind)));
    prop_oneof![4 => bits, 1 => kind, 1 => Just(Masked::ANY)]
}

fn pattern() -> impl Strategy<Value = Pattern> {
    let exclusion =
        (masked(), proptest::option::of(masked())).prop_map(|(what, unless)| Exclusion { what, unless });
    (vec(masked(), 0..3), vec(exclusion, 0..3)).prop_filter_map("no contradiction", |(musts, nots)| {
        let must = musts.iter().try_fold(Masked::ANY, |all, one| all.and(one))?;
        Pattern::new(&must, nots)
    })
}

fn window() -> impl Strategy<Value = Window> {
    (select(KINDS.to_vec()), vec(0u8..3, 80)).prop_map(|(kind, bytes)| {
        let mut window = Window::default();
        for (at, byte) in window.bytes_mut().iter_mut().zip(bytes) {
            *at = byte;
        }
        window.bytes_mut()[KIND] = kind;
        window
    })
}

fn matches(pattern: &Pattern, window: &Window) -> bool {
    let excluded =
        |not: &Exclusion| not.what.holds(window) && !not.unless.is_some_and(|unless| unless.holds(window));
    pattern.must().holds(window) && !pattern.not().iter().any(excluded)
}

type Model = BTreeMap<u32, (Pattern, Place)>;

fn check(classifier: &Classifier, model: &Model, windows: &[Window], batch: &mut Batch) {
    assert_eq!(classifier.len(), model.len());
    batch.n = windows.len();
    batch.windows[..windows.len()].copy_from_slice(windows);
    classifier.classify(batch);
    assert!(batch.hits.is_sorted_by_key(|hit| hit.pkt));
    let mut hits = batch.hits.clone();
    hits.sort();
    let expected = windows.iter().enumerate().flat_map(|(pkt, window)| {
        let matching = model.iter().filter(|(_, (pattern, _))| matches(pattern, window));
        matching.map(move |(&slot, _)| Hit { pkt: pkt as u16, slot })
    });
    assert_eq!(hits, expected.collect::<Vec<_>>());
    let chunks = model.values().fold(0, |chunks, (pattern, _)| chunks | read_by(pattern));
    assert_eq!(classifier.chunks(), chunks);
    let tables: Vec<_> = classifier.tables().collect();
    assert_eq!(tables.iter().map(|t| t.occupancy.rules).sum::<usize>(), model.len());
    let mut keys: Vec<_> = model.values().map(|(p, _)| (p.must().mask(), p.must().key())).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(tables.iter().map(|t| t.occupancy.keys).sum::<usize>(), keys.len());
    keys.dedup_by_key(|key| key.0);
    assert_eq!(tables.len(), keys.len());
}

fn read_by(pattern: &Pattern) -> u8 {
    let chunks = |masked: &Masked| (0..CHUNKS).map(|i| u8::from(masked.mask()[i] != 0) << i).sum::<u8>();
    let not = |not: &Exclusion| chunks(&not.what) | not.unless.as_ref().map_or(0, chunks);
    pattern.not().iter().fold(chunks(pattern.must()), |all, one| all | not(one))
}

proptest! {
    #[test]
    fn finds_every_match_and_nothing_else(
        steps in vec((pattern(), any::<u16>(), any::<bool>()), 1..60),
        windows in vec(window(), 1..40),
        seed: u64,
    ) {
        let mut batch = Batch::new();
        let mut classifier = Classifier::with_seed(seed);
        let mut model = Model::new();
        let mut past = Vec::new();
        for (slot, (pattern, choice, remove)) in (0..).zip(steps) {
            if remove && !model.is_empty() {
                let victim = *model.keys().nth(usize::from(choice) % model.len()).unwrap();
                let (_, place) = model.remove(&victim).unwrap();
                prop_assert!(classifier.remove(victim, place));
                prop_assert!(!classifier.remove(victim, place), "twice");
            } else {
                let place = classifier.insert(slot, &pattern);
                model.insert(slot, (pattern, place));
            }
            if slot % 8 == 0 {
                past.push((classifier.clone(), model.clone()));
            }
        }
        past.push((classifier, model));
        for (classifier, model) in &past {
            check(classifier, model, &windows, &mut batch);
        }
    }
}

/// Keys that differ in their last bits only, as address ranges and port lists do, in numbers that split pages.
#[test]
fn many_keys_come_and_go() {
    let key = |i: u32| Masked::bits(0, 32, (0x0a00_0000 + i).into()).unwrap();
    let pattern = |i: u32| Pattern::new(&key(i), None).unwrap();
    let window = |i: u32| Window { chunk: *pattern(i).must().key() };
    let n = 50_000;
    let mut classifier = Classifier::with_seed(5);
    let mut places: Vec<Place> = (0..n).map(|i| classifier.insert(i, &pattern(i))).collect();
    let full = classifier.clone();
    let occupancy = full.tables().next().unwrap().occupancy;
    assert_eq!((occupancy.keys, occupancy.rules), (n as usize, n as usize));
    let load = occupancy.keys as f64 / occupancy.lanes as f64;
    assert_eq!(occupancy.overflow, 0);
    assert!(load > 0.25, "the hash spreads badly: {load}");

    for i in (0..n).filter(|i| i % 100 != 0) {
        assert!(classifier.remove(i, places[i as usize]));
    }
    let rest = classifier.tables().next().unwrap().occupancy;
    assert!(rest.pages * 10 < occupancy.pages, "{} of {} pages are left", rest.pages, occupancy.pages);

    let mut batch = Batch::new();
    for first in (0..n).step_by(VECTOR) {
        batch.n = VECTOR;
        for (i, slot) in (first..).take(VECTOR).enumerate() {
            batch.windows[i] = window(slot);
        }
        full.classify(&mut batch);
        let all = (first..n).take(VECTOR).enumerate().map(|(i, slot)| Hit { pkt: i as u16, slot });
        assert_eq!(batch.hits, all.clone().collect::<Vec<_>>());
        classifier.classify(&mut batch);
        assert_eq!(batch.hits, all.filter(|hit| hit.slot % 100 == 0).collect::<Vec<_>>());
    }
    for (i, place) in places.drain(..).enumerate().filter(|(i, _)| i % 100 == 0) {
        assert!(classifier.remove(i as u32, place));
    }
    assert!(classifier.is_empty() && classifier.tables().next().is_none() && classifier.chunks() == 0);
}

/// Keys as rule sets have them: regular in some bits, constant in the others.
#[test]
fn regular_keys_spread_evenly() {
    let bits = |at, width, value: u32| Masked::bits(at, width, value.into()).unwrap();
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
            for i in 0..20_000 {
                let [a, b, c] = shape(i).map(|(at, value)| bits(at, 16, value));
                let Some(must) = a.and(&b).and_then(|ab| ab.and(&c)) else { continue };
                classifier.insert(i, &Pattern::new(&must, None).unwrap());
            }
            let occupancy = classifier.tables().next().unwrap().occupancy;
            let load = occupancy.keys as f64 / occupancy.lanes as f64;
            assert_eq!(occupancy.overflow, 0);
            assert!(load > 0.15, "{name}, seed {seed}: {load}");
        }
    }
}

/// Time and memory grow with the number of rules, not with its square, when all rules have the same key.
#[test]
fn a_key_with_many_rules() {
    let n = 100_000;
    let port = |i: u128| Masked::bits(80, 16, i).unwrap();
    let plain = Pattern::new(&port(80), None).unwrap();
    let guarded = |i: u32| {
        let not = Exclusion { what: Masked::bits(64, 16, u128::from(i) % 7).unwrap(), unless: None };
        Pattern::new(&port(80), [not]).unwrap()
    };
    let mut classifier = Classifier::with_seed(5);
    let mut places = Vec::new();
    let mut older = Vec::new();
    for i in 0..n {
        if i % 1000 == 0 {
            older.push(classifier.clone());
        }
        places.push(classifier.insert(i, &if i % 2 == 0 { plain.clone() } else { guarded(i) }));
    }
    let occupancy = classifier.tables().next().unwrap().occupancy;
    assert_eq!((occupancy.keys, occupancy.rules), (1, n as usize));
    assert!(occupancy.bytes < n as usize * 300, "{} bytes", occupancy.bytes);
    let mut batch = Batch::new();
    batch.n = 1;
    batch.windows[0] = Window { chunk: *plain.must().key() };
    classifier.classify(&mut batch);
    let excluded = (0..n).filter(|i| i % 2 == 1 && i % 7 == 0).count();
    assert_eq!(batch.hits.len(), n as usize - excluded);
    for (i, place) in (0..n).zip(&places).rev() {
        assert!(classifier.remove(i, *place));
    }
    assert!(classifier.is_empty());
    assert!(older.iter().enumerate().all(|(i, c)| c.len() == i * 1000));
}

#[test]
fn packets_that_are_not_ip_match_nothing() {
    let mut classifier = Classifier::new();
    classifier.insert(0, &Pattern::new(&Masked::ANY, None).unwrap());
    let mut batch = Batch::default();
    batch.n = VECTOR + 1;
    classifier.classify(&mut batch);
    assert_eq!(batch.hits, []);
    batch.windows[VECTOR - 1].bytes_mut()[KIND] = Kind::IP6;
    classifier.classify(&mut batch);
    assert_eq!(batch.hits, [Hit { pkt: VECTOR as u16 - 1, slot: 0 }]);
    assert!(Pattern::new(&Masked::kind((0xff, 0)), None).is_none());
}
