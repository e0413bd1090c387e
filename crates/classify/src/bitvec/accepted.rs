//! The values of a field that an entry accepts.

use mmb_packet::window::CHUNKS;

use crate::pattern::{Entry, Field, MaskedKey, Ranges, Test, largest};

/// Maximum number of ranges of one entry that are kept apart. Beyond that, neighbouring ranges are joined,
/// and the candidates are checked in full.
const MAX_RANGES: usize = 64;

/// The values of a dimension's field that an entry accepts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AcceptedValues {
    /// None: the entry accepts any value.
    pub values: Option<Ranges>,
    pub absent: bool,
}

impl AcceptedValues {
    /// A superset of the values of a field that `entry` accepts.
    pub fn of(entry: &Entry, field: &Field) -> AcceptedValues {
        let within = entry.tests.iter().filter_map(|test| match test {
            Test::InRanges { field: tested, ranges, absent } if tested == field => {
                Some((ranges.clone(), *absent))
            }
            _ => None,
        });
        let within = within.reduce(|one, other| (one.0.and(&other.0), one.1 && other.1));
        let both = entry.cover().and(&field.present.masked());
        let absent = both != Some(entry.cover()) && within.as_ref().is_none_or(|(_, absent)| *absent);
        if both.is_none() {
            return AcceptedValues { values: Some(Ranges::none()), absent };
        }
        let (mask, key) = field.fixed(&entry.cover());
        let free = 128 - (!mask & largest(field.width)).leading_zeros();
        let low = largest(free as u8);
        let covered = (free < field.width.into()).then(|| Ranges::new([(key & !low, key | low)]));
        let values = match (covered, within) {
            (Some(covered), Some((ranges, _))) => Some(covered.and(&ranges)),
            (Some(covered), None) => Some(covered),
            (None, Some((ranges, _))) => Some(ranges),
            (None, None) => None,
        };
        AcceptedValues { values: values.map(limit_ranges), absent }
    }
}

/// Whether dimensions over these fields, together with the bits of `known`, check all conditions of `entry`.
pub(super) fn is_decided<'a>(
    entry: &Entry,
    fields: impl Iterator<Item = &'a Field> + Clone,
    known: &MaskedKey,
) -> bool {
    let tested = |test: &Test| match test {
        Test::InRanges { field, .. } => {
            let of_field = |test: &Test| match test {
                Test::InRanges { field: other, ranges, .. } if other == field => ranges.iter().count(),
                _ => 0,
            };
            // The intersection of several tests has at most as many ranges as the tests together.
            entry.tests.iter().map(of_field).sum::<usize>() <= MAX_RANGES
                && fields.clone().any(|other| other == field)
        }
        Test::Clause { .. } => false,
    };
    if !entry.tests.iter().all(tested) {
        return false;
    }
    let mut open: [u128; CHUNKS] = std::array::from_fn(|i| entry.mask(i) & !known.mask()[i]);
    for field in fields {
        let present = field.present.masked();
        if entry.cover().and(&present) != Some(entry.cover()) {
            continue;
        }
        let (mask, _) = field.fixed(&entry.cover());
        let rest = largest(field.width) & !mask;
        // Only leading bits can be expressed as a range.
        let chunks_read = if rest & rest.wrapping_add(1) == 0 { mask } else { 0 };
        if let Some(chunk) = open.get_mut(usize::from(field.chunk)) {
            *chunk &= !chunks_read.checked_shl(field.shift.into()).unwrap_or(0).to_be();
        }
        open.iter_mut().zip(present.mask()).for_each(|(open, mask)| *open &= !mask);
    }
    open == [0; CHUNKS]
}

/// Returns the ranges if they are few, otherwise fewer ranges that cover them.
fn limit_ranges(ranges: Ranges) -> Ranges {
    let all: Vec<_> = ranges.iter().collect();
    if all.len() <= MAX_RANGES {
        return ranges;
    }
    let groups = all.chunks(all.len().div_ceil(MAX_RANGES));
    Ranges::new(groups.filter_map(|group| Some((group.first()?.0, group.last()?.1))))
}
