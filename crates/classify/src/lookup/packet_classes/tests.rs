//! Tests of the parent module.

use mmb_packet::Window;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::pattern::{Field, MaskedKey, Presence, Ranges, TruePredicates};

fn test() -> impl Strategy<Value = Test> {
    let present = (0u8..16, 0u8..4, 0u8..4).prop_map(|(byte, mask, value)| Presence {
        byte,
        mask,
        value: value & mask,
    });
    let ranges = vec((0u128..400, 0u128..400), 0..4);
    let place = prop_oneof![
        3 => Just((48u8, 16u8)), 3 => Just((32, 16)), 1 => Just((40, 16)), 1 => Just((56, 8)), 1 => Just((16, 8))
    ];
    (place, present, ranges, any::<bool>()).prop_map(|((shift, width), present, ranges, absent)| {
        Test::InRanges {
            field: Field { chunk: 0, shift, width, present },
            ranges: Ranges::new(ranges),
            absent,
        }
    })
}

fn cover() -> impl Strategy<Value = MaskedKey> {
    let bits = (0usize..128, 1usize..20, 0u128..3)
        .prop_filter_map("inside a chunk", |(at, width, value)| MaskedKey::bits(at, width, value));
    vec(bits, 0..3).prop_filter_map("no contradiction", |all| {
        all.iter().try_fold(MaskedKey::ANY, |all, one| all.and(one))
    })
}

/// Small numbers and few bits, so that windows often share a class.
fn window() -> impl Strategy<Value = Window> {
    (vec(0u8..2, CHUNK), 0u16..500, 0u16..500).prop_map(|(bytes, sport, dport)| {
        let mut window = Window::default();
        window.bytes_mut()[..CHUNK].copy_from_slice(&bytes);
        window.bytes_mut()[8..10].copy_from_slice(&sport.to_be_bytes());
        window.bytes_mut()[10..12].copy_from_slice(&dport.to_be_bytes());
        window
    })
}

proptest! {
    /// Windows with the same key match the same entries.
    #[test]
    fn packets_of_one_class_match_the_same_entries(
        entries in vec((cover(), vec(test(), 0..3)), 0..8), windows in vec(window(), 2..60),
    ) {
        let entries: Vec<Entry> = entries.into_iter().filter_map(|(cover, tests)| Entry::new(&cover, tests)).collect();
        let mut classes = PacketClasses::default();
        entries.iter().for_each(|entry| classes.add(entry));
        let matched = |window: &Window| entries.iter().map(|e| e.holds(window, TruePredicates::NONE)).collect::<Vec<_>>();
        for a in &windows {
            for b in windows.iter().filter(|b| classes.key(b.chunk[0]) == classes.key(a.chunk[0])) {
                prop_assert_eq!(matched(a), matched(b));
            }
        }
    }

    /// A class starts at the last end of a range before the number, or behind that at a multiple of 64.
    #[test]
    fn classes_start_at_range_ends(ranges in vec((any::<u16>(), any::<u16>()), 0..20), numbers: Vec<u16>) {
        let mut classes = PortClasses::default();
        let mut starts = vec![0];
        for (a, b) in ranges {
            let (low, high) = (a.min(b), a.max(b));
            classes.cut(low, high);
            starts.push(low);
            starts.extend(high.checked_add(1));
        }
        let edges = starts.iter().flat_map(|at| [at.saturating_sub(1), *at, at.saturating_add(1)]);
        for number in numbers.into_iter().chain(edges.collect::<Vec<_>>()) {
            let (start, last) = (classes.start(number), starts.iter().copied().filter(|at| *at <= number).max());
            prop_assert!(start <= number && (Some(start) == last || Some(start) > last && start % 64 == 0));
            let gap = starts.iter().all(|at| at >> 6 != number >> 6);
            prop_assert!(!gap || Some(start) == last);
        }
        classes.cut_all();
        prop_assert!((0..=u16::MAX).all(|number| classes.start(number) == number));
    }
}

#[test]
fn untested_ports_do_not_split_classes() {
    let web = MaskedKey::bits(80, 16, 80).expect("inside");
    let mut classes = PacketClasses::default();
    classes.add(&Entry::new(&web, None).expect("about IP"));
    let key = |sport: u16, dport: u16| {
        let mut window = Window::default();
        window.bytes_mut()[8..10].copy_from_slice(&sport.to_be_bytes());
        window.bytes_mut()[10..12].copy_from_slice(&dport.to_be_bytes());
        classes.key(window.chunk[0])
    };
    assert_eq!(key(1, 80), key(60_000, 80));
    assert_eq!(key(1, 81), key(1, 65_535));
    assert!(key(1, 79) != key(1, 80) && key(1, 80) != key(1, 81) && key(1, 79) != key(1, 81));
}
