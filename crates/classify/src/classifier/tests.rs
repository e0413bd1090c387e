//! Cases that random rules hardly produce.

use mmb_packet::Window;
use mmb_packet::window::KIND;

use super::lookup::MAX_CHEAP_TABLES;
use super::*;
use crate::lookup::TABLES;
use crate::pattern::{MaskedKey, Pattern};
use crate::vector::{Hit, VECTOR};

fn rule(cover: &MaskedKey) -> Pattern {
    Pattern::new(vec![Entry::new(cover, None).unwrap()], Vec::new()).unwrap()
}

fn found(classifier: &Classifier, windows: &[Window]) -> Vec<Hit> {
    let mut batch = Batch::new();
    batch.len = windows.len();
    batch.windows[..windows.len()].copy_from_slice(windows);
    classifier.classify(&mut batch);
    assert!(batch.hits.is_sorted_by_key(|hit| hit.pkt));
    batch.hits.sort();
    batch.hits
}

/// With a hash under which all keys collide, keys beyond the first group are outside the pages and still
/// found.
#[test]
fn survives_a_useless_hash() {
    let cover = |i: u32| {
        MaskedKey::bits(128, 32, (i / 2).wrapping_mul(0x9e37_79b1).into())
            .and_then(|m| m.and(&MaskedKey::IP))
            .unwrap()
    };
    let mut classifier = Classifier::with_seeds(Seeds::useless());
    classifier.extend((0..100).map(|slot| (slot, rule(&cover(slot)))));
    assert!(classifier.tables().any(|info| info.occupancy.overflow > 0));
    let windows: Vec<Window> = (0..100).map(|i| Window { chunk: *cover(i).key() }).collect();
    let hits = |all: &[u32]| {
        let of =
            |pkt: u32| all.iter().filter(move |slot| **slot / 2 == pkt / 2).map(move |slot| (pkt, *slot));
        (0..100).flat_map(of).map(|(pkt, slot)| Hit::new(pkt as u16, slot)).collect::<Vec<_>>()
    };
    let mut deferred: Vec<u32> = (0..100).collect();
    assert_eq!(found(&classifier, &windows), hits(&deferred));
    while let Some(slot) = deferred.pop() {
        assert!(classifier.remove(slot) && !classifier.remove(slot));
        assert_eq!(found(&classifier, &windows), hits(&deferred));
    }
    assert!(classifier.tables().next().is_none());
}

/// Vectors of which none, few, some and most packets match take different code paths through the same tree.
#[test]
fn any_number_of_matching_packets() {
    let cover = |source: u32, port: Option<u32>| {
        let port = port.map_or(Some(MaskedKey::ANY), |port| MaskedKey::bits(80, 16, port.into()));
        let source = MaskedKey::bits(0, 32, (0x0a00_0000 | source).into());
        source.and_then(|source| source.and(&port?)).and_then(|m| m.and(&MaskedKey::IP)).unwrap()
    };
    // Keys that lead to a rule, to several rules, to a leaf and to a node.
    let mut rules: Vec<MaskedKey> = (0..2000).map(|source| cover(source, None)).collect();
    rules.extend((2000..2100).flat_map(|source| [cover(source, None); 2]));
    rules.extend((2100..2200).flat_map(|source| [cover(source, Some(1)), cover(source, Some(2))]));
    rules.extend((0..100).map(|port| cover(2200, Some(port))));
    let mut classifier = Classifier::with_seed(1);
    classifier.extend((0..).zip(&rules).map(|(slot, cover)| (slot, rule(cover))));
    assert!(
        classifier.root.tables().len() <= MAX_CHEAP_TABLES && classifier.tables().any(|info| info.nodes != 0)
    );
    for part in [0, 1, 16, 31, 32, 33, 60, 84, 85, 86, 87, 130, VECTOR] {
        let packet = |pkt: usize| {
            let matching = pkt * 7 % VECTOR < part;
            let source = if matching { [0, 2010, 2110, 2200][pkt % 4] } else { 0x5_0000 + pkt as u32 };
            Window { chunk: *cover(source, Some(1 + pkt as u32 % 3)).key() }
        };
        let windows: Vec<Window> = (0..VECTOR).map(packet).collect();
        let holds = |(pkt, window): (usize, &Window)| {
            let slots = rules.iter().zip(0..).filter(|(cover, _)| cover.holds(window));
            slots.map(|(_, slot)| Hit::new(pkt as u16, slot)).collect::<Vec<_>>()
        };
        let all: Vec<Hit> = windows.iter().enumerate().flat_map(holds).collect();
        assert_eq!(found(&classifier, &windows), all, "{part}");
    }
}

/// More tables than the passes take: masks that have nothing in common.
#[test]
fn a_root_with_many_tables() {
    // The byte with the kind is left out.
    let locations = (0..CHUNKS * 16).filter(|&byte| byte != KIND);
    let keys = locations.flat_map(|byte| (0..120u32).map(move |i| (byte * 8, i * 2 + 1)));
    let cover =
        |(at, value): (usize, u32)| MaskedKey::bits(at, 8, value.into()).and_then(|m| m.and(&MaskedKey::IP));
    let rules: Vec<MaskedKey> = keys.filter_map(cover).collect();
    let mut classifier = Classifier::with_seed(3);
    classifier.extend((0..).zip(&rules).map(|(slot, cover)| (slot, rule(cover))));
    assert!(classifier.root.tables().len() > TABLES);
    for windows in rules.chunks(VECTOR) {
        let windows: Vec<Window> = windows.iter().map(|cover| Window { chunk: *cover.key() }).collect();
        let holds = |(pkt, window): (usize, &Window)| {
            let slots = rules.iter().zip(0..).filter(|(cover, _)| cover.holds(window));
            slots.map(|(_, slot)| Hit::new(pkt as u16, slot)).collect::<Vec<_>>()
        };
        let expected: Vec<Hit> = windows.iter().enumerate().flat_map(holds).collect();
        assert_eq!(found(&classifier, &windows), expected);
    }
}

/// Entries behind a pre-filter, and a table that no packet of a vector can match, while rules are added and
/// removed.
#[test]
fn excluded_tables_lose_no_hits() {
    let prefix = |i: u32| {
        let (address, length) = (0x0a00_0000 | i.wrapping_mul(0x9e37_79b1) >> 8, 12 + i as usize % 20);
        let cover = MaskedKey::bits(0, length, u128::from(address) >> (32 - length));
        cover.and_then(|cover| cover.and(&MaskedKey::IP)).unwrap()
    };
    let size = |i: u32| {
        let cover =
            MaskedKey::bits(88 * 8, 16, i.into()).and_then(|m| m.and(&MaskedKey::byte(92, 0x80, 0x80)?));
        cover.and_then(|cover| cover.and(&MaskedKey::IP)).unwrap()
    };
    let rules: Vec<MaskedKey> = (0..14).map(prefix).chain((0..60).map(size)).collect();
    let windows: Vec<Window> = rules.iter().map(|cover| Window { chunk: *cover.key() }).collect();
    let mut classifier = Classifier::with_seed(3);
    let check = |classifier: &Classifier, there: &dyn Fn(usize) -> bool| {
        for windows in [&windows[..14], &windows[14..], &windows[..], &windows[20..21]] {
            let holds = |(pkt, window): (usize, &Window)| {
                let slots =
                    rules.iter().enumerate().filter(|(slot, cover)| there(*slot) && cover.holds(window));
                slots.map(|(slot, _)| Hit::new(pkt as u16, slot as u32)).collect::<Vec<_>>()
            };
            let expected: Vec<Hit> = windows.iter().enumerate().flat_map(holds).collect();
            assert_eq!(found(classifier, windows), expected);
        }
    };
    classifier.extend((14..).zip(&rules[14..]).map(|(slot, cover)| (slot, rule(cover))));
    for (slot, cover) in rules.iter().enumerate().take(14) {
        classifier.insert(slot as u32, &rule(cover));
        check(&classifier, &|other| other <= slot || other >= 14);
    }
    assert!(classifier.pre_filter.is_some() && !classifier.root.tables().is_empty());
    for slot in 0..14 {
        assert!(classifier.remove(slot as u32));
        check(&classifier, &|other| other > slot);
    }
}

/// Rules that require an option and nothing else, some of them the same option, while rules are added and
/// removed.
#[test]
fn presence_of_options() {
    let option =
        |i: u32| MaskedKey::byte(91, 1 << (i % 7 + 1), 0xff).and_then(|m| m.and(&MaskedKey::IP)).unwrap();
    let window = |present: u8| {
        let mut window = Window::default();
        (window.bytes_mut()[KIND], window.bytes_mut()[91]) = (0x14, present);
        window
    };
    let vectors =
        [vec![window(0); 3], vec![window(8), window(0), window(8)], (0..=255).map(window).collect()];
    // A key's rules are stored side by side up to a limit, beyond it in a node.
    let rules: Vec<MaskedKey> = (0..21).map(option).chain((0..90).map(|_| option(2))).collect();
    let mut classifier = Classifier::with_seed(4);
    let check = |classifier: &Classifier, there: &dyn Fn(usize) -> bool| {
        for windows in &vectors {
            let holds = |(pkt, window): (usize, &Window)| {
                let slots = rules.iter().enumerate().filter(|(slot, own)| there(*slot) && own.holds(window));
                slots.map(|(slot, _)| Hit::new(pkt as u16, slot as u32)).collect::<Vec<_>>()
            };
            let expected: Vec<Hit> = windows.iter().enumerate().flat_map(holds).collect();
            assert_eq!(found(classifier, windows), expected);
        }
    };
    for (slot, cover) in rules.iter().enumerate() {
        classifier.insert(slot as u32, &rule(cover));
        check(&classifier, &|other| other <= slot);
    }
    classifier = classifier.rebuilt();
    check(&classifier, &|_| true);
    for slot in 0..rules.len() {
        assert!(classifier.remove(slot as u32));
        check(&classifier, &|other| other > slot);
    }
}

/// Successive connections between the same hosts: a cached result is used for the next, until a rule reads a
/// differing field.
#[test]
fn packets_of_one_class_share_a_cached_result() {
    let keys = (0..8usize).flat_map(|byte| (0..120u32).map(move |i| (byte * 8, i * 2 + 1)));
    let cover =
        |(at, value): (usize, u32)| MaskedKey::bits(at, 8, value.into()).and_then(|m| m.and(&MaskedKey::IP));
    let mut rules: Vec<MaskedKey> = keys.filter_map(cover).collect();
    let mut classifier = Classifier::with_seed(11);
    classifier.extend((0..).zip(&rules).map(|(slot, cover)| (slot, rule(cover))));
    let mut batch = Batch::new();
    batch.len = VECTOR;
    for round in 0..6 {
        if round == 3 {
            let port = MaskedKey::bits(64, 16, 2000).and_then(|m| m.and(&MaskedKey::IP)).unwrap();
            classifier.insert(rules.len() as u32, &rule(&port));
            rules.push(port);
        }
        assert!(classifier.can_use_cache() && classifier.is_walk_costly());
        for (window, cover) in batch.windows.iter_mut().zip(&rules) {
            *window = Window { chunk: *cover.key() };
            window.bytes_mut()[8..10].copy_from_slice(&(2000u16 - round % 2).to_be_bytes());
        }
        classifier.classify(&mut batch);
        batch.hits.sort();
        let holds = |(pkt, window): (usize, &Window)| {
            let slots = rules.iter().zip(0..).filter(|(cover, _)| cover.holds(window));
            slots.map(|(_, slot)| Hit::new(pkt as u16, slot)).collect::<Vec<_>>()
        };
        let expected: Vec<Hit> = batch.windows.iter().enumerate().flat_map(holds).collect();
        assert_eq!(batch.hits, expected, "round {round}");
    }
}

/// Tables whose keys most packets have, while few packets match: entries that guards cover, also after
/// changes by which guards accept more.
#[test]
fn guarded_tables_lose_no_hits() {
    let random = |i: u32| i.wrapping_mul(0x9e37_79b1) ^ i.wrapping_mul(0x85eb_ca6b) >> 7;
    // Prefixes of 12 to 31 bits of either address, and in every third entry the TTL. The first bits of all
    // addresses are the same, and the next ones have few values.
    let cover = |i: u32| {
        let address = 0x0a00_0000 | random(i) >> 12;
        let length = 12 + i as usize % 20;
        let at = if i.is_multiple_of(2) { 0 } else { 32 };
        let cover = MaskedKey::bits(at, length, u128::from(address) >> (32 - length));
        let ttl = if i.is_multiple_of(3) { MaskedKey::byte(72, 0xff, 60 + i as u8 % 8) } else { None };
        cover.and_then(|cover| cover.and(&MaskedKey::IP)?.and(&ttl.unwrap_or_default())).unwrap()
    };
    let rules: Vec<MaskedKey> =
        (0..600).map(cover).filter(|cover| cover.chunks() > 1 || cover.mask()[0].count_ones() > 17).collect();
    let packet = |pkt: u32| {
        let own = *rules[pkt as usize % rules.len()].key();
        let [source, destination] = [pkt, !pkt].map(|i| (0x0a00_0000 | random(i) >> 12).to_be_bytes());
        let mut window = Window { chunk: if pkt.is_multiple_of(16) { own } else { *MaskedKey::IP.key() } };
        if !pkt.is_multiple_of(16) {
            window.bytes_mut()[..4].copy_from_slice(&source);
            window.bytes_mut()[4..8].copy_from_slice(&destination);
            window.bytes_mut()[72] = 64;
        }
        window
    };
    let windows: Vec<Window> = (0..4 * VECTOR as u32).map(packet).collect();
    let check = |classifier: &Classifier, there: &dyn Fn(usize) -> bool| {
        for windows in windows.chunks(VECTOR) {
            let holds = |(pkt, window): (usize, &Window)| {
                let slots = rules.iter().enumerate();
                let slots = slots.filter(|(slot, own)| there(*slot) && own.holds(window));
                slots.map(|(slot, _)| Hit::new(pkt as u16, slot as u32)).collect::<Vec<_>>()
            };
            let expected: Vec<Hit> = windows.iter().enumerate().flat_map(holds).collect();
            assert_eq!(found(classifier, windows), expected);
        }
    };
    let mut classifier = Classifier::with_seed(3);
    classifier.extend((0..).zip(&rules[..400]).map(|(slot, cover)| (slot, rule(cover))));
    assert!(classifier.root.tables().iter().any(|table| table.guard_reader().is_some()));
    check(&classifier, &|slot| slot < 400);
    let before = classifier.clone();
    for (slot, cover) in rules.iter().enumerate().skip(400) {
        classifier.insert(slot as u32, &rule(cover));
    }
    check(&classifier, &|_| true);
    check(&before, &|slot| slot < 400);
    (0..300).for_each(|slot| assert!(classifier.remove(slot)));
    check(&classifier, &|slot| slot >= 300);
    check(&before, &|slot| slot < 400);
}
