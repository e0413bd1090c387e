//! Bit vectors against a list of entries that is searched linearly.

use std::collections::BTreeMap;
use std::sync::Arc;

use mmb_packet::window::{CHUNKS, KIND};
use mmb_packet::{Kind, Window};
use proptest::array::uniform32;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::accepted::AcceptedValues;
use super::bit_vector::*;
use super::columns::{FieldColumns, GROUP, compare_narrow, compare_wide, portable};
use super::conditions::{Condition, Conditions};
use super::dimension::Dimension;
use super::lanes::{LANES, LaneSet};
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::pattern::{Entry, Field, MaskedKey, Presence, Ranges, Test, TruePredicates, WordReader, largest};
use crate::vector::{Level, LookupPacket, Simd, VECTOR};

const ALWAYS: Presence = Presence { byte: 0, mask: 0, value: 0 };
const TCP: Presence = Presence { byte: 12, mask: 0xf0, value: 0x10 };

/// Fields of all widths; some overlap, some are not always present.
const FIELDS: [Field; 8] = [
    Field { chunk: 0, shift: 96, width: 32, present: Presence { byte: 12, mask: 0x0f, value: 4 } },
    Field { chunk: 0, shift: 48, width: 16, present: TCP },
    Field { chunk: 0, shift: 48, width: 16, present: ALWAYS },
    Field { chunk: 0, shift: 32, width: 16, present: ALWAYS },
    Field { chunk: 0, shift: 16, width: 8, present: ALWAYS },
    Field { chunk: 1, shift: 0, width: 128, present: ALWAYS },
    Field { chunk: 5, shift: 64, width: 64, present: TCP },
    Field { chunk: 3, shift: 9, width: 3, present: TCP },
];

const PRESENCE: Field = Field { chunk: 0, shift: 0, width: 0, present: TCP };

fn value(width: u8) -> BoxedStrategy<u128> {
    let last = largest(width);
    prop_oneof![0u128..6, Just(last), Just(last - 1), Just(last / 2), Just(last / 2 + 1), 0..=last].boxed()
}

fn test() -> impl Strategy<Value = Test> {
    let ranges = select(FIELDS.to_vec()).prop_flat_map(|field| {
        let range = (value(field.width), value(field.width)).prop_map(|(a, b)| (a.min(b), a.max(b)));
        let many = prop_oneof![9 => vec(range.clone(), 0..4), 1 => vec(range, 60..90)];
        (Just(field), many, any::<bool>(), any::<bool>())
    });
    let within = ranges.prop_map(|(field, ranges, absent, flip)| {
        let ranges = Ranges::new(ranges);
        let ranges = if flip { ranges.complement(field.width) } else { ranges };
        Test::InRanges { field, ranges, absent }
    });
    let absent = Just(Test::InRanges { field: PRESENCE, ranges: Ranges::none(), absent: true });
    let clause = (0u32..3, any::<bool>()).prop_map(|(id, positive)| match positive {
        true => Test::Clause { positive: Some(id), negative: None },
        false => Test::Clause { positive: None, negative: Some(id) },
    });
    prop_oneof![6 => within, 1 => absent, 1 => clause]
}

fn masked() -> impl Strategy<Value = MaskedKey> {
    let bits =
        (select(FIELDS.to_vec()), 0u8..=128, 0u128..8).prop_filter_map("inside", |(field, len, key)| {
            let first =
                usize::from(field.chunk) * 128 + 128 - usize::from(field.shift) - usize::from(field.width);
            MaskedKey::bits(first, len.min(field.width).into(), key)
        });
    let tcp = Just(MaskedKey::byte(12, 0xf0, 0x10).unwrap());
    prop_oneof![4 => bits, 1 => tcp, 1 => Just(MaskedKey::ANY), 1 => Just(MaskedKey::byte(57, 0x12, 2).unwrap())]
}

fn entry() -> impl Strategy<Value = Arc<Entry>> {
    (vec(masked(), 0..3), vec(test(), 0..4)).prop_filter_map("no contradiction", |(covers, tests)| {
        let cover = covers.iter().try_fold(MaskedKey::ANY, |all, one| all.and(one))?;
        Some(Arc::new(Entry::new(&cover, tests)?))
    })
}

fn window() -> impl Strategy<Value = Window> {
    let fields = FIELDS.map(|field| value(field.width)).to_vec();
    (fields, select(vec![Kind::IP4 | Kind::TCP, Kind::IP6 | Kind::TCP, Kind::IP4, 0]), any::<u8>()).prop_map(
        |(values, kind, flags)| {
            let mut window = Window { chunk: [0; CHUNKS] };
            for (field, value) in FIELDS.iter().zip(values) {
                window.chunk[usize::from(field.chunk)] ^= (value << field.shift).to_be();
            }
            window.bytes_mut()[KIND] = kind;
            window.bytes_mut()[57] = flags;
            window
        },
    )
}

fn check(vector: &BitVector, model: &[(u32, Arc<Entry>)], windows: &[Window]) {
    assert_eq!(vector.len(), model.len());
    let sorted = |mut all: Vec<(u32, MaskedKey)>| {
        all.sort_by_key(|(slot, _)| *slot);
        all
    };
    let listed = vector.iter().map(|(slot, entry)| (slot, entry.cover())).collect();
    assert_eq!(sorted(listed), sorted(model.iter().map(|(slot, entry)| (*slot, entry.cover())).collect()));
    let facts = TruePredicates::new(&[1]);
    let packets = windows.iter().zip(0..).map(|(window, head)| LookupPacket { window, facts, head });
    let packets: Vec<LookupPacket<'_>> = packets.collect();
    let mut x = vec![Vec::new(); windows.len()];
    vector.classify(&packets, Simd::PORTABLE, |head, slot| x[usize::from(head)].push(slot));
    for level in [Level::Avx2, Level::Avx512] {
        let mut same = vec![Vec::new(); windows.len()];
        let simd = Simd::detect().at_most(level);
        vector.classify(&packets, simd, |head, slot| same[usize::from(head)].push(slot));
        assert_eq!(same, x);
    }
    for (packet, mut found) in packets.iter().zip(x) {
        let window = packet.window;
        let mut alone = Vec::new();
        vector.classify(&[*packet], Simd::PORTABLE, |_, slot| alone.push(slot));
        assert_eq!(found, alone);
        found.sort();
        let holds = model.iter().filter(|(_, entry)| entry.holds(window, facts));
        let mut expected: Vec<u32> = holds.map(|(slot, _)| *slot).collect();
        expected.sort();
        assert_eq!(found, expected);
    }
}

proptest! {
    #[test]
    fn finds_exactly_the_matching_rules(
        first in prop_oneof![3 => vec(entry(), 0..40), 1 => vec(entry(), 250..300)],
        steps in vec((entry(), any::<u16>(), any::<bool>()), 0..80),
        windows in vec(window(), 1..30),
        alike: u8,
    ) {
        // Some chunks are equal in all windows.
        let same = windows[0].chunk;
        let mut windows = windows;
        for (chunk, same) in same.into_iter().enumerate().filter(|(chunk, _)| alike >> chunk & 1 == 1) {
            windows.iter_mut().for_each(|window| window.chunk[chunk] = same);
        }
        let mut model: Vec<(u32, Arc<Entry>)> = (0..).zip(first).collect();
        let mut vector = BitVector::build(&model);
        let mut past = vec![(vector.clone(), model.clone())];
        for (slot, (entry, choice, remove)) in (1000..).zip(steps) {
            if remove && !model.is_empty() {
                let (victim, entry) = model.swap_remove(usize::from(choice) % model.len());
                prop_assert_eq!(vector.remove(victim), Some(entry));
                prop_assert_eq!(vector.remove(victim), None);
            } else {
                vector.insert(slot, entry.clone());
                model.push((slot, entry));
            }
            if slot % 16 == 0 {
                past.push((vector.clone(), model.clone()));
            }
        }
        past.push((vector.clone(), model.clone()));
        for (vector, model) in &past {
            check(vector, model, &windows);
        }
        for (slot, _) in model {
            prop_assert!(vector.remove(slot).is_some());
        }
        prop_assert_eq!(vector.partitions.len(), 0);
    }
}

proptest! {
    /// Columns exclude exactly the packets whose value of the field an entry does not accept.
    #[test]
    fn columns_agree_with_entries(
        entries in vec((entry(), 0..LANES, any::<bool>()), 1..60),
        windows in vec(window(), 1..=VECTOR),
        field in select(FIELDS.iter().copied().filter(|field| field.width <= 32).collect::<Vec<_>>()),
    ) {
        let (mut all, mut conditions) = (BTreeMap::new(), Conditions::default());
        for (entry, lane, _) in &entries {
            conditions.remove(*lane);
            let accepted = AcceptedValues::of(entry, &field).values;
            accepted.iter().for_each(|values| conditions.insert(*lane, values, field.width));
            all.insert(*lane, accepted);
        }
        for (_, lane, _) in entries.iter().filter(|(.., remove)| *remove) {
            conditions.remove(*lane);
            all.remove(lane);
        }
        all.retain(|lane, _| lane % 3 != 0);
        let mut lanes = LaneSet::default();
        all.keys().for_each(|lane| lanes.set(*lane, true));
        let windows: Vec<&Window> = windows.iter().collect();
        let mut columns = FieldColumns::new();
        columns.start(all.len(), windows.len());
        let reader = WordReader::of(&field).unwrap();
        columns.apply((reader, field.width), (&conditions, lanes.blocks()), &windows, &portable());
        for (accepted, set) in all.values().zip(columns.sets()) {
            let accepts = |at: &usize| {
                accepted.as_ref().is_none_or(|values| values.contains(field.value(windows[*at])))
            };
            let expected: Vec<usize> = (0..windows.len()).filter(accepts).collect();
            prop_assert_eq!(set.is_empty(), expected.is_empty());
            prop_assert_eq!(set.packets().collect::<Vec<_>>(), expected);
        }
    }
}

#[cfg(target_arch = "x86_64")]
proptest! {
    #[test]
    #[allow(unsafe_code)]
    fn kernels_compare_as_portable_code_does(
        words in uniform32(any::<u32>()),
        more in uniform32(any::<u32>()),
        at in 0usize..32,
        last: u32,
        span: u32,
        equal: bool,
    ) {
        let wide: [u32; GROUP] = bytemuck::cast([words, more]);
        let narrow = wide.map(|word| word as u16);
        let last = if equal { words[at] } else { last };
        let condition = Condition { last, span };
        let twice = |word: u32| word << 16 | word & 0xffff;
        let both = Condition { last: twice(last), span: twice(span) };
        let portable = (compare_wide(&wide, condition), compare_narrow(&narrow, both));
        let level = Simd::detect().level();
        if level >= Level::Avx2 {
            // SAFETY: the processor has the instructions.
            let found = unsafe { (avx2::compare_wide(&wide, condition), avx2::compare_narrow(&narrow, both)) };
            prop_assert_eq!(found, portable);
        }
        if level >= Level::Avx512 {
            // SAFETY: the processor has the instructions.
            let found =
                unsafe { (avx512::compare_wide(&wide, condition), avx512::compare_narrow(&narrow, both)) };
            prop_assert_eq!(found, portable);
        }
    }
}

/// A dimension after removal of its entries equals the dimension before they were added.
#[test]
fn bounds_are_removed_with_their_entries() {
    let mut dim = Dimension::new(FIELDS[3]);
    let accepted = |i: u128| AcceptedValues {
        values: Some(Ranges::new([(i * 7, i * 7 + 90), (60_000 + i, 65_535)])),
        absent: false,
    };
    assert!(dim.is_trivial());
    for i in 0..500 {
        dim.insert(i, &accepted(i as u128));
    }
    assert!(!dim.is_trivial());
    for i in 0..500 {
        dim.remove(i * 7 % 500, &accepted((i * 7 % 500) as u128));
    }
    assert!(dim.is_trivial());
}
