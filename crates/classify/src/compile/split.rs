//! One rule as several entries, where that says more.
//!
//! `tcp-dport {80,443}` has a common prefix of seven bits; as two entries, each has all sixteen. A range like
//! `tcp-dport 1020-1030` crosses a power of two, and its halves have ten and twelve bits in common where the whole has
//! five. On the other hand `tcp-dport != 80` gains nothing. So the parts of a set are weighed by how many values their
//! prefixes let pass.

use super::MOST_ENTRIES;
use super::bits::{common, prefix, says_all};
use crate::masked::Masked;
use crate::pattern::Field;
use crate::ranges::Ranges;

/// Splitting must leave at most this part of the values that a prefix lets pass.
const WORTH_IT: f64 = 0.25;

/// An entry's cover and the values that need a test.
type Part = (Masked, Vec<(Field, Ranges)>);

/// The entries of a rule: covers, each with the values that are to be tested beside it. `values` are those of fields
/// that `cover` says are there.
pub(super) fn entries(cover: &Masked, values: &[(Field, Ranges)]) -> Vec<Part> {
    let mut choices: Vec<Choice> = values.iter().map(|(field, set)| Choice::new(*field, set)).collect();
    choices.sort_by(|a, b| a.left.total_cmp(&b.left));
    let mut entries: Vec<Part> = vec![(*cover, Vec::new())];
    for choice in choices {
        let whole = vec![choice.whole];
        let parts = if entries.len() * choice.parts.len() <= MOST_ENTRIES { choice.parts } else { whole };
        let with = |(cover, tests): &Part, part: &Ranges| {
            let cover = cover.and(&prefix(&choice.field, part.ends()?)?)?;
            let mut tests = tests.clone();
            tests.push((choice.field, part.clone()));
            Some((cover, tests))
        };
        entries =
            entries.iter().flat_map(|entry| parts.iter().filter_map(move |part| with(entry, part))).collect();
    }
    for (cover, tests) in &mut entries {
        tests.retain(|(field, set)| !says_all(set, field, cover));
    }
    entries
}

/// A field's values, whole and in parts.
struct Choice {
    field: Field,
    whole: Ranges,
    /// The whole alone where splitting is not worth it.
    parts: Vec<Ranges>,
    /// Which part of the values that the whole's prefix lets pass the parts' prefixes let pass.
    left: f64,
}

impl Choice {
    fn new(field: Field, set: &Ranges) -> Choice {
        let unsplit = Choice { field, whole: set.clone(), parts: vec![set.clone()], left: 1.0 };
        let pieces: Vec<_> = set.iter().take(MOST_ENTRIES + 1).collect();
        let Some(ends) = set.ends() else { return unsplit };
        if pieces.len() > MOST_ENTRIES {
            return unsplit;
        }
        let passes = |ends| share(field.width, ends);
        let mut parts = Vec::with_capacity(MOST_ENTRIES);
        let mut room = MOST_ENTRIES - pieces.len();
        for piece in pieces {
            let (low, high) = halves(field.width, piece);
            if room > 0 && passes(low) + passes(high) <= WORTH_IT * passes(piece) {
                room -= 1;
                parts.extend([low, high]);
            } else {
                parts.push(piece);
            }
        }
        let left = parts.iter().map(|part| passes(*part)).sum::<f64>() / passes(ends);
        if left > WORTH_IT {
            return unsplit;
        }
        Choice { parts: parts.into_iter().map(|part| Ranges::new([part])).collect(), left, ..unsplit }
    }
}

/// The part of all values that have the common prefix of these two.
fn share(width: u8, ends: (u128, u128)) -> f64 {
    0.5f64.powi(common(width, ends).into())
}

/// A range, cut where the first bit that its values do not have in common changes. One value: that one and no other.
fn halves(width: u8, (low, high): (u128, u128)) -> ((u128, u128), (u128, u128)) {
    let differing = width - common(width, (low, high));
    let Some(bit) = differing.checked_sub(1) else { return ((low, high), (low, high)) };
    let middle = high >> bit << bit;
    ((low, middle.wrapping_sub(1)), (middle, high))
}
