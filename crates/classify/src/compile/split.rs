//! Splits a rule into several entries if that makes the covers more selective.
//!
//! `tcp-dport {80,443}` has a common prefix of seven bits. As two entries, each has all sixteen bits. A range
//! like `tcp-dport 1020-1030` crosses a power of two: its halves have ten and twelve bits in common, the
//! whole has five. In contrast, `tcp-dport != 80` gains nothing. So parts are rated by the number of values
//! that their prefixes allow.

use super::bits::{is_implied, prefix};
use crate::pattern::{Field, MaskedKey, Ranges, common_bits};

/// Maximum number of entries of a rule.
const MAX_ENTRIES: usize = 8;

/// Splitting must reduce the values that the prefixes allow to this share.
const MAX_SHARE: f64 = 0.25;

/// An entry's cover and the values that need a test.
type Part = (MaskedKey, Vec<(Field, Ranges)>);

/// The entries of a rule: covers, each with the values to test in addition. `values` are those of fields that
/// `cover` requires.
pub(super) fn entries(cover: &MaskedKey, values: &[(Field, Ranges)]) -> Vec<Part> {
    // A set that the cover implies needs neither parts nor a test.
    let open = values.iter().filter(|(field, set)| !is_implied(set, field, cover));
    let mut fields: Vec<FieldParts> = open.map(|(field, set)| FieldParts::new(*field, set)).collect();
    fields.sort_by(|a, b| a.left.total_cmp(&b.left));
    let mut entries: Vec<Part> = vec![(*cover, Vec::new())];
    for field_parts in fields {
        let whole = vec![field_parts.whole];
        let parts =
            if entries.len() * field_parts.parts.len() <= MAX_ENTRIES { field_parts.parts } else { whole };
        let with = |(cover, tests): &Part, part: &Ranges| {
            let cover = cover.and(&prefix(&field_parts.field, part.ends()?)?)?;
            let mut tests = tests.clone();
            tests.push((field_parts.field, part.clone()));
            Some((cover, tests))
        };
        entries =
            entries.iter().flat_map(|entry| parts.iter().filter_map(move |part| with(entry, part))).collect();
    }
    for (cover, tests) in &mut entries {
        tests.retain(|(field, set)| !is_implied(set, field, cover));
    }
    entries
}

/// The values of a field, as a whole and in parts.
struct FieldParts {
    field: Field,
    whole: Ranges,
    /// Only the whole, if splitting does not pay.
    parts: Vec<Ranges>,
    /// Values that the parts' prefixes allow, as a share of those that the whole's prefix allows.
    left: f64,
}

impl FieldParts {
    fn new(field: Field, set: &Ranges) -> FieldParts {
        let unsplit = FieldParts { field, whole: set.clone(), parts: vec![set.clone()], left: 1.0 };
        let pieces: Vec<_> = set.iter().take(MAX_ENTRIES + 1).collect();
        let Some(ends) = set.ends() else { return unsplit };
        if pieces.len() > MAX_ENTRIES {
            return unsplit;
        }
        let passes = |ends| share(field.width, ends);
        let mut parts = Vec::with_capacity(MAX_ENTRIES);
        let mut room = MAX_ENTRIES - pieces.len();
        for piece in pieces {
            let (low, high) = halves(field.width, piece);
            if room > 0 && passes(low) + passes(high) <= MAX_SHARE * passes(piece) {
                room -= 1;
                parts.extend([low, high]);
            } else {
                parts.push(piece);
            }
        }
        let left = parts.iter().map(|part| passes(*part)).sum::<f64>() / passes(ends);
        if left > MAX_SHARE {
            return unsplit;
        }
        FieldParts { parts: parts.into_iter().map(|part| Ranges::new([part])).collect(), left, ..unsplit }
    }
}

/// The share of all values that have the common prefix of these two.
fn share(width: u8, ends: (u128, u128)) -> f64 {
    0.5f64.powi(common_bits(width, ends).into())
}

/// A range, cut where the first bit changes in which its values differ. A single value yields itself twice.
fn halves(width: u8, (low, high): (u128, u128)) -> ((u128, u128), (u128, u128)) {
    let differing = width - common_bits(width, (low, high));
    let Some(bit) = differing.checked_sub(1) else { return ((low, high), (low, high)) };
    let middle = high >> bit << bit;
    ((low, middle.wrapping_sub(1)), (middle, high))
}
