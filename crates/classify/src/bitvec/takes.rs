//! What entries take in a dimension.

use mmb_packet::window::CHUNKS;

use crate::masked::Masked;
use crate::pattern::{Entry, Field, Test};
use crate::ranges::{Ranges, largest};

/// Most ranges of one entry that are told apart. Beyond that neighbours count as one: a leaf looks at its candidates
/// again in any case.
const MOST_RANGES: usize = 64;

/// What an entry takes in a dimension.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Takes {
    /// None: any value.
    pub values: Option<Ranges>,
    pub absent: bool,
}

impl Takes {
    /// What `entry` takes of a field, or more than that.
    pub fn of(entry: &Entry, field: &Field) -> Takes {
        let within = entry.tests.iter().filter_map(|test| match test {
            Test::Within { field: tested, ranges, absent } if tested == field => {
                Some((ranges.clone(), *absent))
            }
            _ => None,
        });
        let within = within.reduce(|one, other| (one.0.and(&other.0), one.1 && other.1));
        let both = entry.cover.and(&field.present.masked());
        let absent = both != Some(entry.cover) && within.as_ref().is_none_or(|(_, absent)| *absent);
        if both.is_none() {
            return Takes { values: Some(Ranges::none()), absent };
        }
        let (mask, key) = field.fixed(&entry.cover);
        let free = 128 - (!mask & largest(field.width)).leading_zeros();
        let low = largest(free as u8);
        let covered = (free < field.width.into()).then(|| Ranges::new([(key & !low, key | low)]));
        let values = match (covered, within) {
            (Some(covered), Some((ranges, _))) => Some(covered.and(&ranges)),
            (Some(covered), None) => Some(covered),
            (None, Some((ranges, _))) => Some(ranges),
            (None, None) => None,
        };
        Takes { values: values.map(few), absent }
    }
}

/// Whether being taken in dimensions over these fields, and having the bits of `known`, is all that `entry` asks for.
pub(super) fn is_decided<'a>(
    entry: &Entry,
    fields: impl Iterator<Item = &'a Field> + Clone,
    known: &Masked,
) -> bool {
    let tested = |test: &Test| match test {
        Test::Within { field, .. } => {
            let of_field = |test: &Test| match test {
                Test::Within { field: other, ranges, .. } if other == field => ranges.iter().count(),
                _ => 0,
            };
            // Where there are several tests they meet in no more ranges than they have together.
            entry.tests.iter().map(of_field).sum::<usize>() <= MOST_RANGES
                && fields.clone().any(|other| other == field)
        }
        Test::Clause { .. } => false,
    };
    if !entry.tests.iter().all(tested) {
        return false;
    }
    let mut open: [u128; CHUNKS] = std::array::from_fn(|i| entry.cover.mask()[i] & !known.mask()[i]);
    for field in fields {
        let present = field.present.masked();
        if entry.cover.and(&present) != Some(entry.cover) {
            continue;
        }
        let (mask, _) = field.fixed(&entry.cover);
        let rest = largest(field.width) & !mask;
        // The bits in front; others are not told apart by ranges.
        let asked = if rest & rest.wrapping_add(1) == 0 { mask } else { 0 };
        if let Some(chunk) = open.get_mut(usize::from(field.chunk)) {
            *chunk &= !asked.checked_shl(field.shift.into()).unwrap_or(0).to_be();
        }
        open.iter_mut().zip(present.mask()).for_each(|(open, mask)| *open &= !mask);
    }
    open == [0; CHUNKS]
}

/// The same ranges, or fewer that hold all of their values.
fn few(ranges: Ranges) -> Ranges {
    let all: Vec<_> = ranges.iter().collect();
    if all.len() <= MOST_RANGES {
        return ranges;
    }
    let groups = all.chunks(all.len().div_ceil(MOST_RANGES));
    Ranges::new(groups.filter_map(|group| Some((group.first()?.0, group.last()?.1))))
}
