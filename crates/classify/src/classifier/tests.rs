//! Cases that rules as they come hardly meet.

use super::*;

fn rule(cover: &Masked) -> Pattern {
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

/// With a hash that tells no keys apart, everything beyond the first group lands outside the pages, and works.
#[test]
fn survives_a_useless_hash() {
    let cover = |i: u32| {
        Masked::bits(128, 32, (i / 2).wrapping_mul(0x9e37_79b1).into())
            .and_then(|m| m.and(&Masked::IP))
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
    let mut left: Vec<u32> = (0..100).collect();
    assert_eq!(found(&classifier, &windows), hits(&left));
    while let Some(slot) = left.pop() {
        assert!(classifier.remove(slot) && !classifier.remove(slot));
        assert_eq!(found(&classifier, &windows), hits(&left));
    }
    assert!(classifier.tables().next().is_none());
}

/// Vectors of which none, few, some and most packets match: they take different ways through the same tree.
#[test]
fn however_many_packets_match() {
    let cover = |source: u32, port: Option<u32>| {
        let port = port.map_or(Some(Masked::ANY), |port| Masked::bits(80, 16, port.into()));
        let source = Masked::bits(0, 32, (0x0a00_0000 | source).into());
        source.and_then(|source| source.and(&port?)).and_then(|m| m.and(&Masked::IP)).unwrap()
    };
    // Keys that lead to a rule, to several, to a leaf and to a node.
    let mut rules: Vec<Masked> = (0..2000).map(|source| cover(source, None)).collect();
    rules.extend((2000..2100).flat_map(|source| [cover(source, None); 2]));
    rules.extend((2100..2200).flat_map(|source| [cover(source, Some(1)), cover(source, Some(2))]));
    rules.extend((0..100).map(|port| cover(2200, Some(port))));
    let mut classifier = Classifier::with_seed(1);
    classifier.extend((0..).zip(&rules).map(|(slot, cover)| (slot, rule(cover))));
    assert!(classifier.root.tables().len() <= CHEAP && classifier.tables().any(|info| info.nodes != 0));
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

/// More tables than are probed together: masks that have nothing in common.
#[test]
fn a_root_with_many_tables() {
    // The kind's own byte is left out.
    let places = (0..CHUNKS * 16).filter(|&byte| byte != KIND);
    let keys = places.flat_map(|byte| (0..120u32).map(move |i| (byte * 8, i * 2 + 1)));
    let cover =
        |(at, value): (usize, u32)| Masked::bits(at, 8, value.into()).and_then(|m| m.and(&Masked::IP));
    let rules: Vec<Masked> = keys.filter_map(cover).collect();
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

/// Entries behind a sieve, and a table that no packet of a vector asks about, while rules come and go.
#[test]
fn what_is_passed_by_loses_nothing() {
    let prefix = |i: u32| {
        let (address, length) = (0x0a00_0000 | i.wrapping_mul(0x9e37_79b1) >> 8, 12 + i as usize % 20);
        let cover = Masked::bits(0, length, u128::from(address) >> (32 - length));
        cover.and_then(|cover| cover.and(&Masked::IP)).unwrap()
    };
    let size = |i: u32| {
        let cover = Masked::bits(88 * 8, 16, i.into()).and_then(|m| m.and(&Masked::byte(92, 0x80, 0x80)?));
        cover.and_then(|cover| cover.and(&Masked::IP)).unwrap()
    };
    let rules: Vec<Masked> = (0..14).map(prefix).chain((0..60).map(size)).collect();
    let windows: Vec<Window> = rules.iter().map(|cover| Window { chunk: *cover.key() }).collect();
    let mut classifier = Classifier::with_seed(3);
    let check = |classifier: &Classifier, there: &dyn Fn(usize) -> bool| {
        for windows in [&windows[..14], &windows[14..], &windows[..]] {
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
    assert!(classifier.sieve.is_some() && !classifier.root.tables().is_empty());
    for slot in 0..14 {
        assert!(classifier.remove(slot as u32));
        check(&classifier, &|other| other > slot);
    }
}

/// Rules that ask for an option and for nothing else, some for the same: what no packet of a vector has is passed by, and
/// what many rules ask for is one key, while rules come and go.
#[test]
fn presence_of_options() {
    let option = |i: u32| Masked::byte(91, 1 << (i % 7 + 1), 0xff).and_then(|m| m.and(&Masked::IP)).unwrap();
    let window = |present: u8| {
        let mut window = Window::default();
        (window.bytes_mut()[KIND], window.bytes_mut()[91]) = (0x14, present);
        window
    };
    let vectors =
        [vec![window(0); 3], vec![window(8), window(0), window(8)], (0..=255).map(window).collect()];
    // Up to some a key's rules stand side by side, beyond that in a node.
    let rules: Vec<Masked> = (0..21).map(option).chain((0..90).map(|_| option(2))).collect();
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

/// Connections between the same hosts, one after the other: what is recalled of one is what matches the next, until a rule
/// looks at what differs.
#[test]
fn what_no_rule_tells_apart_is_recalled() {
    let keys = (0..8usize).flat_map(|byte| (0..120u32).map(move |i| (byte * 8, i * 2 + 1)));
    let cover =
        |(at, value): (usize, u32)| Masked::bits(at, 8, value.into()).and_then(|m| m.and(&Masked::IP));
    let mut rules: Vec<Masked> = keys.filter_map(cover).collect();
    let mut classifier = Classifier::with_seed(11);
    classifier.extend((0..).zip(&rules).map(|(slot, cover)| (slot, rule(cover))));
    let mut batch = Batch::new();
    batch.len = VECTOR;
    for round in 0..6 {
        if round == 3 {
            let port = Masked::bits(64, 16, 2000).and_then(|m| m.and(&Masked::IP)).unwrap();
            classifier.insert(rules.len() as u32, &rule(&port));
            rules.push(port);
        }
        assert!(classifier.is_by_flow() && classifier.is_costly());
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
