//! Sets of values as ranges.

use std::sync::Arc;

use mmb_lang::merge_ranges;

/// A set of numbers: disjoint inclusive ranges in ascending order, with a gap between any two. Clones share
/// memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ranges(Arc<[(u128, u128)]>);

/// Up to this many ranges are searched linearly.
const MAX_LINEAR: usize = 4;

impl Ranges {
    /// The union of `ranges`, each `(low, high)`. Ranges with low above high are ignored.
    pub fn new(ranges: impl IntoIterator<Item = (u128, u128)>) -> Ranges {
        let mut ranges = ranges.into_iter().filter(|(low, high)| low <= high);
        let Some(first) = ranges.next() else { return Ranges::none() };
        let Some(second) = ranges.next() else { return Ranges([first].into()) };
        let mut all: Vec<_> = [first, second].into_iter().chain(ranges).collect();
        merge_ranges(&mut all);
        Ranges(all.into())
    }

    /// The empty set.
    pub fn none() -> Ranges {
        Ranges(Arc::default())
    }

    /// All values of `width` bits (at most 128).
    pub fn all(width: u8) -> Ranges {
        Ranges([(0, largest(width))].into())
    }

    /// Whether `value` is in the set.
    #[inline]
    pub fn contains(&self, value: u128) -> bool {
        if self.0.len() <= MAX_LINEAR {
            return self.0.iter().any(|&(low, high)| low <= value && value <= high);
        }
        let behind = self.0.partition_point(|&(low, _)| low <= value);
        behind.checked_sub(1).is_some_and(|at| value <= self.0[at].1)
    }

    /// The values of the set that have at most `width` bits.
    pub(crate) fn within(&self, width: u8) -> Ranges {
        match self.ends() {
            Some((_, last)) if last > largest(width) => self.and(&Ranges::all(width)),
            _ => self.clone(),
        }
    }

    /// The values of `width` bits that are not in the set.
    pub fn complement(&self, width: u8) -> Ranges {
        Ranges(self.gaps(width).collect())
    }

    /// The ranges of values of `width` bits that are not in the set, ascending.
    pub(crate) fn gaps(&self, width: u8) -> impl Iterator<Item = (u128, u128)> + '_ {
        let last = largest(width);
        let from = std::iter::once(Some(0)).chain(self.0.iter().map(|(_, high)| high.checked_add(1)));
        let to = self.0.iter().map(|(low, _)| low.checked_sub(1)).chain([Some(last)]);
        from.zip(to).filter_map(move |(from, to)| {
            let (from, to) = (from?, to?.min(last));
            (from <= to).then_some((from, to))
        })
    }

    /// The intersection of both sets.
    pub fn and(&self, other: &Ranges) -> Ranges {
        let (mut mine, mut theirs) = (self.iter().peekable(), other.iter().peekable());
        let mut both = Vec::new();
        while let (Some(&a), Some(&b)) = (mine.peek(), theirs.peek()) {
            let (low, high) = (a.0.max(b.0), a.1.min(b.1));
            if low <= high {
                both.push((low, high));
            }
            if a.1 < b.1 {
                mine.next();
            } else {
                theirs.next();
            }
        }
        Ranges(both.into())
    }

    /// The smallest and the largest number. None for the empty set.
    pub fn ends(&self) -> Option<(u128, u128)> {
        Some((self.0.first()?.0, self.0.last()?.1))
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ranges, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u128, u128)> + '_ {
        self.0.iter().copied()
    }

    /// Bytes of memory, including memory shared with clones.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}

/// The largest number of `width` bits.
pub(crate) fn largest(width: u8) -> u128 {
    u128::MAX.checked_shr(128 - u32::from(width.min(128))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Values at and next to the ends of the sets.
    const VALUES: std::ops::Range<u128> = 0..40;

    fn members(set: &Ranges) -> Vec<u128> {
        VALUES.filter(|&value| set.iter().any(|(low, high)| (low..=high).contains(&value))).collect()
    }

    proptest! {
        #[test]
        fn is_a_set(a in proptest::collection::vec((0u128..32, 0u128..32), 0..9),
                    b in proptest::collection::vec((0u128..32, 0u128..32), 0..9)) {
            let (x, y) = (Ranges::new(a.clone()), Ranges::new(b));
            let given: Vec<_> =
                VALUES.filter(|v| a.iter().any(|(low, high)| (low..=high).contains(&v))).collect();
            prop_assert_eq!(members(&x), given);
            for value in VALUES {
                let (in_x, in_y) = (members(&x).contains(&value), members(&y).contains(&value));
                prop_assert_eq!(x.contains(value), in_x);
                prop_assert_eq!(x.and(&y).contains(value), in_x && in_y);
                prop_assert_eq!(x.complement(5).contains(value), !in_x && value < 32);
                prop_assert_eq!(x.complement(3).contains(value), !in_x && value < 8);
                prop_assert_eq!(x.within(3).contains(value), in_x && value < 8);
            }
            for set in [&x, &y, &x.and(&y), &x.complement(5)] {
                let ranges: Vec<_> = set.iter().collect();
                prop_assert!(ranges.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0));
                prop_assert_eq!(set.ends(), members(set).first().copied().zip(members(set).last().copied()));
                prop_assert_eq!(set.is_empty(), members(set).is_empty());
            }
        }
    }

    #[test]
    fn ranges_of_extreme_widths() {
        assert_eq!(Ranges::all(128).ends(), Some((0, u128::MAX)));
        assert_eq!(Ranges::all(0).ends(), Some((0, 0)));
        assert!(Ranges::all(128).complement(128).is_empty());
        assert_eq!(Ranges::none().complement(128), Ranges::all(128));
        let odd = Ranges::new([(0, 3), (u128::MAX, u128::MAX)]);
        assert_eq!(odd.complement(128), Ranges::new([(4, u128::MAX - 1)]));
    }
}
