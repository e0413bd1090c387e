//! Sets of numbers that bindings choose from.

use mmb_lang::{FieldId, Range, ValueItem, ValueSet, merge_ranges};

/// A non-empty set of numbers as ranges. Members are numbered in ascending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberSet {
    /// First and last number of each range, ascending, with gaps in between.
    ranges: Box<[Range]>,
    /// Number of members up to the end of each range.
    ends: Box<[u128]>,
}

impl NumberSet {
    /// The numbers that the values of a field denote; `None` for values that are not numbers.
    pub(crate) fn of(field: FieldId, values: &ValueSet) -> Option<NumberSet> {
        let max = field.def().largest();
        let ranges: Option<Vec<_>> = values.iter().map(ValueItem::bounds).collect();
        NumberSet::new(ranges?).filter(|values| values.ranges.iter().all(|(_, last)| *last <= max))
    }

    /// The default set of a field: ports from 1024 on, all numbers of other fields.
    pub(crate) fn all(field: FieldId) -> NumberSet {
        use FieldId::*;
        let range = match field {
            TcpSport | TcpDport | UdpSport | UdpDport => (1024, 65535),
            _ => (0, field.def().largest()),
        };
        NumberSet::from_ranges(vec![range])
    }

    /// A set of ranges in any order, overlapping or not. `None` for no range or a range that ends before it
    /// starts.
    pub fn new(mut ranges: Vec<Range>) -> Option<NumberSet> {
        if ranges.is_empty() || ranges.iter().any(|(first, last)| first > last) {
            return None;
        }
        merge_ranges(&mut ranges);
        Some(NumberSet::from_ranges(ranges))
    }

    /// A set of ordered ranges with gaps in between.
    fn from_ranges(ranges: Vec<Range>) -> NumberSet {
        let ends = ranges
            .iter()
            .scan(0_u128, |count, (first, last)| {
                *count = count.saturating_add((last - first).saturating_add(1));
                Some(*count)
            })
            .collect();
        NumberSet { ranges: ranges.into(), ends }
    }

    /// Number of members, at least 1; saturates at 2^128 - 1.
    pub fn len(&self) -> u128 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Always false.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The member at this position in ascending order, from 0; `None` from [`NumberSet::len`] on.
    pub fn nth(&self, place: u128) -> Option<u128> {
        let range = self.ends.partition_point(|end| *end <= place);
        let (first, _) = self.ranges.get(range)?;
        let before = if range == 0 { 0 } else { *self.ends.get(range - 1)? };
        Some(first + (place - before))
    }

    /// Whether a number is a member.
    pub fn contains(&self, number: u128) -> bool {
        let range = self.ranges.partition_point(|(_, last)| *last < number);
        self.ranges.get(range).is_some_and(|(first, _)| *first <= number)
    }

    /// The only member, if there is one member.
    pub fn single(&self) -> Option<u128> {
        match *self.ranges {
            [(first, last)] if first == last => Some(first),
            _ => None,
        }
    }

    /// First and last number of each range, ascending, with gaps in between.
    pub fn ranges(&self) -> &[Range] {
        &self.ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_are_merged() {
        let values = NumberSet::new(vec![(7, 9), (1, 3), (10, 10), (2, 4), (20, 20)]).unwrap();
        assert_eq!(values.ranges(), [(1, 4), (7, 10), (20, 20)]);
        assert_eq!(values.len(), 9);
        assert_eq!(
            (values.nth(3), values.nth(4), values.nth(8), values.nth(9)),
            (Some(4), Some(7), Some(20), None)
        );
        assert_eq!((values.single(), NumberSet::new(vec![(5, 5)]).unwrap().single()), (None, Some(5)));
        assert_eq!((NumberSet::new(vec![]), NumberSet::new(vec![(2, 1)])), (None, None));
    }

    #[test]
    fn whole_fields() {
        assert_eq!(NumberSet::all(FieldId::UdpSport).ranges(), [(1024, 65535)]);
        assert_eq!(NumberSet::all(FieldId::Ip6FlowLabel).ranges(), [(0, 0xfffff)]);
        let all = NumberSet::all(FieldId::Ip6Saddr);
        assert_eq!((all.len(), all.nth(u128::MAX - 1)), (u128::MAX, Some(u128::MAX - 1)));
        assert_eq!(NumberSet::all(FieldId::IpId).len(), 65536);
    }

    proptest! {
        /// Positions and members correspond one to one, in order.
        #[test]
        fn every_member_has_a_place(parts in prop::collection::vec((0..300_u128, 0..9_u128), 1..9)) {
            let ranges: Vec<_> = parts.iter().map(|(first, more)| (*first, first + more)).collect();
            let values = NumberSet::new(ranges.clone()).unwrap();
            let naive: Vec<u128> =
                (0..400).filter(|n| ranges.iter().any(|(first, last)| first <= n && n <= last)).collect();
            let placed: Vec<u128> = (0..values.len()).filter_map(|place| values.nth(place)).collect();
            prop_assert_eq!(&placed, &naive);
            prop_assert!((0..400).all(|n| values.contains(n) == naive.contains(&n)));
        }
    }
}
