//! The choice of the dimensions of a partition.

use mmb_packet::window::CHUNKS;

use super::accepted::AcceptedValues;
use super::conditions::word_bits;
use crate::pattern::{Entry, Field, MaskedKey, Presence, Test, largest};

/// Maximum number of dimensions of a partition.
const MAX_DIMENSIONS: usize = 16;

/// Number of entries, and of synthetic packets, in the sample that dimensions are rated with.
const SAMPLE: usize = 64;
const PACKETS: usize = 32;

/// Measured costs in clock ticks: of a dimension for a packet, and of checking a candidate in full.
const DIMENSION: f64 = 6.0;
const CANDIDATE: f64 = 24.0;

/// So many entries justify a dimension for a field that they restrict, even if it excludes none of the
/// sample. Otherwise the dimensions would not decide these entries, and might never exclude them.
const MIN_RESTRICTED: usize = 2;

/// One entry justifies it among so few entries, if all packets can be compared with it at once.
const FEW: usize = 64;

/// A field that every packet has.
const fn bits(byte: usize, width: u8) -> Field {
    let shift = (128 - byte % 16 * 8) as u8 - width;
    Field { chunk: (byte / 16) as u8, shift, width, present: Presence { byte: 0, mask: 0, value: 0 } }
}

/// Fields that covers can refer to: those of the window, small ones combined.
const WINDOW_FIELDS: [Field; 28] = [
    bits(0, 32),
    bits(4, 32),
    bits(8, 16),
    bits(10, 16),
    bits(12, 8),
    bits(13, 8),
    bits(14, 16),
    bits(16, 128),
    bits(32, 128),
    bits(48, 32),
    bits(52, 32),
    bits(56, 8),
    bits(57, 8),
    bits(58, 16),
    bits(60, 16),
    bits(62, 16),
    bits(64, 16),
    bits(66, 16),
    bits(68, 16),
    bits(70, 16),
    bits(72, 8),
    bits(78, 16),
    bits(80, 64),
    bits(88, 16),
    bits(90, 8),
    bits(91, 8),
    bits(92, 8),
    bits(94, 16),
];

/// The fields to use as dimensions, in order. Each excludes most of the entries that the fields before it
/// leave. Fields follow that exclude hardly an entry of the sample, but that many entries restrict.
pub(super) fn choose_dimensions(entries: &[&Entry]) -> Vec<Field> {
    let step = entries.len().div_ceil(SAMPLE).max(1);
    let sample: Vec<&Entry> = entries.iter().step_by(step).copied().collect();
    let pairs = (sample.len().min(PACKETS) * sample.len()) as f64;
    let tested = tested(entries);
    let mut rated: Vec<(Field, Remaining)> =
        tested.iter().map(|field| (*field, partitions(field, &sample))).collect();
    let shared = shared_cover(entries);
    let varying = varying_bits(entries, &shared);
    let replaces = |field: &Field, place: &Field| {
        let has_field =
            |entry: &&Entry| entry.fixed(place).0 == 0 || entry.cover().implies(&field.present.masked());
        field.has_place_of(place) && entries.iter().all(has_field)
    };
    let places = WINDOW_FIELDS
        .into_iter()
        .filter(|place| place.bits_of(&varying) != 0 && !tested.iter().any(|field| replaces(field, place)));
    rated.extend(places.map(|field| (field, partitions(&field, &sample))));

    let (mut left, mut chosen) = ([u64::MAX; PACKETS], Vec::new());
    let count = |left: &Remaining| left.iter().take(sample.len()).map(|row| row.count_ones()).sum::<u32>();
    left.iter_mut().for_each(|row| *row &= u64::MAX >> (64 - sample.len().clamp(1, 64)));
    while chosen.len() < MAX_DIMENSIONS {
        let with =
            |other: &Remaining| -> Remaining { std::array::from_fn(|packet| left[packet] & other[packet]) };
        let Some((field, best)) =
            rated.iter().map(|(field, own)| (*field, with(own))).min_by_key(|(_, both)| count(both))
        else {
            break;
        };
        let ruled_out = f64::from(count(&left) - count(&best)) / pairs * entries.len() as f64;
        if ruled_out * CANDIDATE <= DIMENSION {
            break;
        }
        left = best;
        chosen.push(field);
        rated.retain(|(other, _)| *other != field);
    }
    let is_restricted = |field: &Field| {
        let restricts = |entry: &&&Entry| {
            entry.ranges_of(field).next().is_some() || entry.fixed(field).0 & field.bits_of(&varying) != 0
        };
        let is_cheap = entries.len() <= FEW
            && word_bits(field.width).is_some()
            && shared.implies(&field.present.masked());
        entries.iter().filter(restricts).count() >= if is_cheap { 1 } else { MIN_RESTRICTED }
    };
    chosen.extend(rated.iter().map(|(field, _)| *field).filter(is_restricted));
    chosen.truncate(MAX_DIMENSIONS);
    chosen
}

/// What the covers of all entries require.
fn shared_cover(entries: &[&Entry]) -> MaskedKey {
    let covers = entries.iter().map(|entry| entry.cover());
    covers.reduce(|shared, cover| shared.shared(&cover)).unwrap_or(MaskedKey::ANY)
}

/// The bits on which an entry has a condition that not all entries share.
fn varying_bits(entries: &[&Entry], shared: &MaskedKey) -> [u128; CHUNKS] {
    let mut varying = [0; CHUNKS];
    for entry in entries {
        let cover = entry.cover();
        let masks = cover.mask().iter().zip(shared.mask());
        varying.iter_mut().zip(masks).for_each(|(bits, (mask, shared))| *bits |= mask & !shared);
    }
    varying
}

/// The fields that tests refer to.
fn tested(entries: &[&Entry]) -> Vec<Field> {
    let tests = entries.iter().flat_map(|entry| entry.tests.iter());
    let field = |test: &Test| if let Test::InRanges { field, .. } = test { Some(*field) } else { None };
    let mut fields: Vec<Field> = tests.filter_map(field).collect();
    fields.sort_unstable();
    fields.dedup();
    fields
}

/// For each synthetic packet, the entries of the sample that remain, as bits.
type Remaining = [u64; PACKETS];

/// The entries that a field leaves for each synthetic packet. Packet `i` matches entry `i` of the sample, and
/// has an arbitrary value where that entry accepts any.
fn partitions(field: &Field, sample: &[&Entry]) -> Remaining {
    let accepted: Vec<AcceptedValues> = sample.iter().map(|entry| AcceptedValues::of(entry, field)).collect();
    let mut left = [0; PACKETS];
    for (packet, (row, own)) in left.iter_mut().zip(&accepted).enumerate() {
        let anything = (packet as u128 + 1).wrapping_mul(SPREAD) & largest(field.width);
        let value = own.values.as_ref().map_or(Some(anything), |values| Some(values.ends()?.0));
        for (at, other) in accepted.iter().enumerate() {
            let accepted = match value {
                Some(value) => other.values.as_ref().is_none_or(|values| values.contains(value)),
                None => other.absent,
            };
            *row |= u64::from(accepted) << (at % 64);
        }
    }
    left
}

/// Odd constant; its multiples are spread over all values of any width.
const SPREAD: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
