//! Ranges of values, and masks over their bits.

use crate::pattern::{Field, MaskedKey, Ranges, common_bits, largest};

/// The leading bits that all values from `low` to `high` of a field have in common.
pub(super) fn prefix(field: &Field, ends: (u128, u128)) -> Option<MaskedKey> {
    let len = common_bits(field.width, ends);
    if len == 0 {
        return Some(MaskedKey::ANY);
    }
    MaskedKey::bits(first_bit(field)?, len.into(), ends.0 >> (field.width - len))
}

/// The field's most significant bit, as a bit position in the window.
fn first_bit(field: &Field) -> Option<usize> {
    let in_chunk = 128usize.checked_sub(usize::from(field.shift) + usize::from(field.width))?;
    Some(usize::from(field.chunk) * 128 + in_chunk)
}

/// The ranges, each reduced to its first and last value that `cover` allows. Ranges without such a value are
/// dropped.
pub(super) fn trim(values: &Ranges, field: &Field, cover: &MaskedKey) -> Ranges {
    let trim = trim_range(field, cover);
    if values.iter().all(|range| trim(range) == Some(range)) {
        return values.clone();
    }
    Ranges::new(values.iter().filter_map(trim))
}

/// Returns a function that reduces a range to its first and last value that `cover` allows.
fn trim_range(field: &Field, cover: &MaskedKey) -> impl Fn((u128, u128)) -> Option<(u128, u128)> {
    let (mask, key) = field.fixed(cover);
    let last = largest(field.width);
    move |(low, high)| {
        let low = first_from(low, mask, key, last)?;
        // The last value up to `high` is the first value from there on if all bits are inverted.
        let high = last ^ first_from(last ^ high, mask, mask & !key, last)?;
        (low <= high).then_some((low, high))
    }
}

/// Whether `cover` excludes all values outside `values`.
pub(super) fn is_implied(values: &Ranges, field: &Field, cover: &MaskedKey) -> bool {
    let trim = trim_range(field, cover);
    values.gaps(field.width).all(|gap| trim(gap).is_none())
}

/// The smallest value from `from` to `last` (all ones) whose bits in `mask` equal those of `key`.
fn first_from(from: u128, mask: u128, key: u128, last: u128) -> Option<u128> {
    let differ = (from ^ key) & mask;
    if differ == 0 {
        return Some(from);
    }
    let highest = 127 - differ.leading_zeros();
    // Bits from this one upwards keep their value; this bit becomes one.
    let one = if key >> highest & 1 == 1 {
        highest
    } else {
        let above = u128::MAX.checked_shl(highest + 1).unwrap_or(0);
        let free = !mask & !from & above & last;
        if free == 0 {
            return None;
        }
        free.trailing_zeros()
    };
    let above = u128::MAX.checked_shl(one + 1).unwrap_or(0);
    Some(from & above | 1 << one | key & !above & !(1 << one))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pattern::Presence;

    const FIELD: Field =
        Field { chunk: 1, shift: 40, width: 6, present: Presence { byte: 12, mask: 0, value: 0 } };

    fn cover(mask: u128, key: u128) -> MaskedKey {
        let bit = |i: usize| {
            (mask >> (5 - i) & 1 == 1)
                .then(|| MaskedKey::bits(first_bit(&FIELD).unwrap() + i, 1, key >> (5 - i)))
        };
        (0..6).filter_map(bit).fold(MaskedKey::ANY, |all, one| all.and(&one.unwrap()).unwrap())
    }

    proptest! {
        #[test]
        fn finds_the_first(from in 0u128..64, mask in 0u128..64, key in 0u128..64) {
            let key = key & mask;
            let naive = (from..64).find(|value| value & mask == key);
            prop_assert_eq!(first_from(from, mask, key, 63), naive);
        }

        #[test]
        fn restriction_keeps_the_common_values(set in proptest::collection::vec((0u128..64, 0u128..64), 0..4),
                                 mask in 0u128..64, key in 0u128..64) {
            let (set, cover) = (Ranges::new(set), cover(mask, key));
            prop_assert_eq!(FIELD.fixed(&cover), (mask, key & mask));
            let allowed = |value: &u128| value & mask == key & mask;
            let trim = trim(&set, &FIELD, &cover);
            for (low, high) in trim.iter() {
                prop_assert!(allowed(&low) && allowed(&high));
            }
            for value in (0..64).filter(allowed) {
                prop_assert_eq!(trim.contains(value), set.contains(value));
            }
            let all = (0..64).filter(allowed).all(|value| set.contains(value));
            prop_assert_eq!(is_implied(&set, &FIELD, &cover), all);
        }

        #[test]
        fn a_prefix_has_the_common_bits_of_all_values(a in 0u128..64, b in 0u128..64) {
            let (low, high) = (a.min(b), a.max(b));
            let (mask, key) = FIELD.fixed(&prefix(&FIELD, (low, high)).unwrap());
            prop_assert!((low..=high).all(|value| value & mask == key));
            prop_assert_eq!(mask.count_ones(), u32::from(common_bits(6, (low, high))));
            // With one more bit, some value differs.
            let next = 32u128 >> mask.count_ones();
            prop_assert!(next == 0 || (low..=high).any(|value| (value ^ low) & next != 0));
        }
    }
}
