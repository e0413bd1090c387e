//! Sets of numbers.

/// A set of numbers as closed intervals: sorted, disjoint and not adjacent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intervals(Vec<(u128, u128)>);

impl Intervals {
    /// The union of intervals in any order. An interval whose ends are swapped is empty.
    pub fn of(intervals: impl IntoIterator<Item = (u128, u128)>) -> Self {
        let mut all: Vec<_> = intervals.into_iter().filter(|(low, high)| low <= high).collect();
        all.sort_unstable();
        let mut joined: Vec<(u128, u128)> = Vec::with_capacity(all.len());
        for (low, high) in all {
            match joined.last_mut() {
                Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
                _ => joined.push((low, high)),
            }
        }
        Intervals(joined)
    }

    /// The set of one number.
    pub fn one(number: u128) -> Self {
        Intervals(vec![(number, number)])
    }

    /// The numbers from 0 to `max` that are not in the set.
    pub fn complement(&self, max: u128) -> Self {
        let mut rest = Vec::with_capacity(self.0.len() + 1);
        let mut from = Some(0);
        for &(low, high) in &self.0 {
            if let Some(from) = from.filter(|from| *from < low) {
                rest.push((from, low - 1));
            }
            from = high.checked_add(1);
        }
        rest.extend(from.filter(|from| *from <= max).map(|from| (from, max)));
        Intervals(rest)
    }

    /// The intersection of two sets.
    pub fn intersection(&self, other: &Self) -> Self {
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut both = Vec::new();
        while let (Some(&&(a_low, a_high)), Some(&&(b_low, b_high))) = (a.peek(), b.peek()) {
            let (low, high) = (a_low.max(b_low), a_high.min(b_high));
            if low <= high {
                both.push((low, high));
            }
            if a_high < b_high {
                a.next()
            } else {
                b.next()
            };
        }
        Intervals(both)
    }

    /// The union of two sets.
    pub fn union(&self, other: &Self) -> Self {
        Intervals::of(self.iter().chain(other.iter()))
    }

    /// Whether the sets have no common number.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        let (few, many) = if self.count() <= other.count() { (self, other) } else { (other, self) };
        few.iter().all(|(low, high)| {
            let next = many.0.partition_point(|&(_, end)| end < low);
            many.0.get(next).is_none_or(|&(start, _)| start > high)
        })
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The intervals in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (u128, u128)> + '_ {
        self.0.iter().copied()
    }

    /// Number of intervals.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The single numbers, if there are at most `limit`.
    pub fn numbers(&self, limit: u128) -> Option<Vec<u128>> {
        let mut count: u128 = 0;
        for (low, high) in self.iter() {
            count = count.checked_add(high - low)?.checked_add(1).filter(|count| *count <= limit)?;
        }
        Some(self.iter().flat_map(|(low, high)| low..=high).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(bits: u16) -> Intervals {
        Intervals::of((0..16).filter(|bit| bits >> bit & 1 == 1).map(|bit| (bit, bit)))
    }

    fn bits(set: &Intervals) -> u16 {
        set.numbers(16).unwrap().iter().fold(0, |bits, bit| bits | 1 << bit)
    }

    #[test]
    fn sets_of_small_numbers_behave_like_bits() {
        let some = [0u16, 1, 0x8000, 0xffff, 0x0ff0, 0x5555, 0xaaaa, 0x1248, 0xf00f, 0x7ffe];
        for a in some {
            assert_eq!(bits(&set(a)), a);
            assert_eq!(bits(&set(a).complement(15)), !a);
            assert_eq!(set(a).is_empty(), a == 0);
            for b in some {
                assert_eq!(bits(&set(a).intersection(&set(b))), a & b, "{a:x} {b:x}");
                assert_eq!(bits(&set(a).union(&set(b))), a | b);
                assert_eq!(set(a).is_disjoint(&set(b)), a & b == 0, "{a:x} {b:x}");
            }
        }
    }

    #[test]
    fn the_ends_of_128_bits_work() {
        let all = Intervals::of([(0, u128::MAX)]);
        assert!(all.complement(u128::MAX).is_empty());
        assert_eq!(Intervals::of([]).complement(u128::MAX), all);
        assert_eq!(
            Intervals::of([(5, u128::MAX), (3, 4), (9, 2)]).iter().collect::<Vec<_>>(),
            [(3, u128::MAX)]
        );
        assert_eq!(all.numbers(10), None);
    }
}
