//! In which dimensions a leaf tells its entries apart.

use mmb_packet::window::CHUNKS;

use super::takes::Takes;
use crate::pattern::{Entry, Field, Presence, Test};
use crate::ranges::largest;

/// Most dimensions that a leaf has.
const MOST: usize = 16;

/// So many entries speak for all when dimensions are compared, and so many packets for the traffic.
const SAMPLE: usize = 64;
const PACKETS: usize = 32;

/// What a dimension costs a packet, and what a candidate does that is looked at in full; by measurement, in ticks.
const DIMENSION: f64 = 12.0;
const CANDIDATE: f64 = 24.0;

/// A field of which there always is a value.
const fn bits(byte: usize, width: u8) -> Field {
    let shift = (128 - byte % 16 * 8) as u8 - width;
    Field { chunk: (byte / 16) as u8, shift, width, present: Presence { byte: 0, mask: 0, value: 0 } }
}

/// What entries' covers are about: the window's fields, small ones together.
const PLACES: [Field; 28] = [
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

/// The fields to look at, in this order: greedily those that rule out most of what the ones before leave.
pub(super) fn dimensions(entries: &[&Entry]) -> Vec<Field> {
    let step = entries.len().div_ceil(SAMPLE).max(1);
    let sample: Vec<&Entry> = entries.iter().step_by(step).copied().collect();
    let pairs = (sample.len().min(PACKETS) * sample.len()) as f64;
    let mut rated: Vec<(Field, Left)> =
        tested(entries).into_iter().map(|field| (field, leaves(&field, &sample))).collect();
    let covered = entries.iter().fold([0; CHUNKS], |mut all, entry| {
        all.iter_mut().zip(entry.cover.mask()).for_each(|(all, mask)| *all |= mask);
        all
    });
    let places = PLACES.into_iter().filter(|place| place.bits_of(&covered) != 0);
    rated.extend(places.map(|field| (field, leaves(&field, &sample))));

    let (mut left, mut chosen) = ([u64::MAX; PACKETS], Vec::new());
    let count = |left: &Left| left.iter().take(sample.len()).map(|row| row.count_ones()).sum::<u32>();
    left.iter_mut().for_each(|row| *row &= u64::MAX >> (64 - sample.len().clamp(1, 64)));
    while chosen.len() < MOST {
        let with = |other: &Left| -> Left { std::array::from_fn(|packet| left[packet] & other[packet]) };
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
    }
    chosen
}

/// The fields that tests are about.
fn tested(entries: &[&Entry]) -> Vec<Field> {
    let tests = entries.iter().flat_map(|entry| entry.tests.iter());
    let field = |test: &Test| if let Test::Within { field, .. } = test { Some(*field) } else { None };
    let mut fields: Vec<Field> = tests.filter_map(field).collect();
    fields.sort_unstable();
    fields.dedup();
    fields
}

/// For each of the packets, the entries of the sample that are left.
type Left = [u64; PACKETS];

/// Which entries a field leaves of packets that match an entry of the sample each, and have any value where that takes
/// all.
fn leaves(field: &Field, sample: &[&Entry]) -> Left {
    let takes: Vec<Takes> = sample.iter().map(|entry| Takes::of(entry, field)).collect();
    let mut left = [0; PACKETS];
    for (packet, (row, own)) in left.iter_mut().zip(&takes).enumerate() {
        let anything = (packet as u128 + 1).wrapping_mul(ANYTHING) & largest(field.width);
        let value = own.values.as_ref().map_or(Some(anything), |values| Some(values.ends()?.0));
        for (at, other) in takes.iter().enumerate() {
            let takes = match value {
                Some(value) => other.values.as_ref().is_none_or(|values| values.contains(value)),
                None => other.absent,
            };
            *row |= u64::from(takes) << (at % 64);
        }
    }
    left
}

/// Multiples of it are spread over all values of any width.
const ANYTHING: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
