//! Blocks with further conditions against the entries' own conditions.

use std::sync::Arc;

use mmb_packet::window::{BYTES, KIND};
use mmb_packet::{Kind, Window};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::super::block::{Block, first_words};
use super::*;
use crate::pattern::{Entry, Field, Presence, Ranges, Test, TruePredicates, largest};

const TCP: Presence = Presence { byte: KIND as u8, mask: Kind::L4_MASK, value: Kind::TCP };
const ALWAYS: Presence = Presence { byte: 0, mask: 0, value: 0 };

/// Chunk, shift and width.
const PLACES: [(u8, u8, u8); 8] =
    [(0, 48, 16), (0, 32, 16), (0, 32, 32), (1, 0, 128), (3, 96, 32), (4, 56, 8), (4, 97, 20), (5, 0, 8)];

/// Few values, at the ends.
fn value(width: u8) -> impl Strategy<Value = u128> {
    let last = largest(width);
    prop_oneof![0u128..3, Just(last), Just(last - 1), Just(last / 2), Just(last / 2 + 1)]
}

fn test() -> impl Strategy<Value = Test> {
    select(PLACES.to_vec()).prop_flat_map(|(chunk, shift, width)| {
        let range = (value(width), value(width)).prop_map(|(a, b)| (a.min(b), a.max(b)));
        let present = select(vec![TCP, ALWAYS]);
        (vec(range, 0..3), present, any::<bool>(), any::<bool>()).prop_map(
            move |(all, present, not, absent)| {
                let ranges = if not { Ranges::new(all).complement(width) } else { Ranges::new(all) };
                Test::InRanges { field: Field { chunk, shift, width, present }, ranges, absent }
            },
        )
    })
}

/// Leading bits of a field, or the protocol.
fn masked() -> impl Strategy<Value = MaskedKey> {
    let bits = (select(PLACES.to_vec()), 1u8..=32).prop_flat_map(|((chunk, shift, width), len)| {
        let len = len.min(width);
        let first = usize::from(chunk) * 128 + 128 - usize::from(shift) - usize::from(width);
        value(width).prop_map(move |value| {
            MaskedKey::bits(first, len.into(), value >> (width - len)).expect("in one chunk")
        })
    });
    prop_oneof![2 => bits, 1 => Just(MaskedKey::kind((Kind::L4_MASK, Kind::TCP)))]
}

fn entry() -> impl Strategy<Value = Entry> {
    (vec(masked(), 0..3), vec(test(), 0..4)).prop_filter_map("no contradiction", |(covers, tests)| {
        let cover = covers.iter().try_fold(MaskedKey::ANY, |all, one| all.and(one))?;
        Entry::new(&cover, tests)
    })
}

fn window() -> impl Strategy<Value = Window> {
    let values: Vec<_> = PLACES.iter().map(|(_, _, width)| value(*width)).collect();
    (values, vec(0u8..2, BYTES), any::<bool>()).prop_map(|(values, bytes, is_tcp)| {
        let mut window = Window::default();
        window.bytes_mut().copy_from_slice(&bytes);
        for ((chunk, shift, width), value) in PLACES.into_iter().zip(values) {
            let chunk = &mut window.chunk[usize::from(chunk)];
            *chunk = *chunk & !(largest(width) << shift).to_be() | (value << shift).to_be();
        }
        window.bytes_mut()[KIND] = if is_tcp { Kind::IP4 | Kind::TCP } else { Kind::IP6 | Kind::UDP };
        window
    })
}

proptest! {
    /// Also, a block checks no entry in full whose conditions it compares.
    #[test]
    fn blocks_find_exactly_the_matching_entries(
        entries in vec(entry(), 1..5), windows in vec(window(), 1..8), only_ranges: bool,
    ) {
        let comparable: Vec<_> = entries.iter().map(Comparable::new).collect();
        for chunk in 0..CHUNKS {
            let mut block = Block::<4>::about(chunk as u8);
            let mut lanes = Vec::new();
            for (entry, comparable) in entries.iter().zip(&comparable) {
                if usize::from(comparable.chunk()) == chunk && !(only_ranges && comparable.needs_check(chunk)) {
                    block.push((0, entry.clone().into()), comparable);
                    lanes.push(entry);
                }
            }
            let is_excluded = block.is_excluded(&VectorSummary::new(&windows, 0xff));
            for window in &windows {
                let first = first_words(window.chunk[0]);
                let agreeing = block.agreeing_lanes(&first, window);
                let found = block.matches(&first, window, || TruePredicates::NONE);
                let holds = |entry: &&Entry| u32::from(entry.holds(window, TruePredicates::NONE));
                let expected = lanes.iter().map(holds).enumerate().fold(0, |all, (lane, one)| all | one << lane);
                prop_assert_eq!(found, expected);
                prop_assert!(!only_ranges || agreeing == expected);
                prop_assert!(!is_excluded || expected == 0);
            }
        }
    }
}

/// An entry is broad if it has a further condition, and its addresses and ports exclude few packets.
#[test]
fn broad_entries_have_no_narrow_address_or_port() {
    let tcp = MaskedKey::kind((Kind::L4_MASK, Kind::TCP));
    let ttl = || Test::InRanges {
        field: Field { chunk: 4, shift: 56, width: 8, present: ALWAYS },
        ranges: Ranges::new([(3, 9)]),
        absent: false,
    };
    let port = |last: u128| Test::InRanges {
        field: Field { chunk: 0, shift: 32, width: 16, present: TCP },
        ranges: Ranges::new([(0, last)]),
        absent: false,
    };
    let address =
        |bits| tcp.and(&MaskedKey::bits(0, bits, 1).expect("in one chunk")).expect("no contradiction");
    let broad_len = |cover: &MaskedKey, tests: Vec<Test>| {
        let entry = Arc::new(Entry::new(cover, tests).expect("no contradiction"));
        let comparable = Comparable::new(&entry);
        let mut block: Block<4> = Block::about(comparable.chunk());
        block.push((1, entry), &comparable);
        block.broad_len()
    };
    assert_eq!(broad_len(&tcp, vec![ttl()]), 1);
    assert_eq!(broad_len(&tcp, vec![ttl(), port(0x8000)]), 1);
    assert_eq!(broad_len(&tcp, vec![ttl(), port(0x0fff)]), 0);
    assert_eq!(broad_len(&address(3), vec![ttl()]), 1);
    assert_eq!(broad_len(&address(8), vec![ttl()]), 0);
    // Nothing beyond the first chunk.
    assert_eq!(broad_len(&tcp, vec![port(0x8000)]), 0);
}
