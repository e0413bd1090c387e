//! The values of matches as ranges of numbers.

use std::net::IpAddr;

use crate::ast::{Comparison, Cond, Value, ValueItem};

/// The numbers from the first to the second, inclusive.
pub type Range = (u128, u128);

impl Value {
    /// The numbers that a number, an address or a subnet stands for. None: the value is not a number.
    pub fn bounds(&self) -> Option<Range> {
        let (first, bits, len) = match self {
            Value::Int(number) => return Some(((*number).into(), (*number).into())),
            Value::Prefix { addr: IpAddr::V4(addr), len } => (addr.to_bits().into(), 32, u32::from(*len)),
            Value::Prefix { addr: IpAddr::V6(addr), len } => (addr.to_bits(), 128, u32::from(*len)),
            Value::Iface(_) | Value::Bytes(_) | Value::Set(_) | Value::PairSet(..) | Value::Option { .. } => {
                return None;
            }
        };
        let hosts = u128::MAX.checked_shr(128 - u32::saturating_sub(bits, len)).unwrap_or(0);
        Some((first & !hosts, first | hosts))
    }
}

impl ValueItem {
    /// The numbers that a member of a set stands for. None: one of its values is not a number.
    pub fn bounds(&self) -> Option<Range> {
        match self {
            ValueItem::Single(value) => value.bounds(),
            ValueItem::Range(ends) => Some((ends[0].bounds()?.0, ends[1].bounds()?.1)),
        }
    }
}

/// The numbers up to `max` for which a comparison holds; for `!=`, those for which it does not hold. Values
/// that are not numbers are ignored.
pub(crate) fn fitting(arg: &Comparison, max: u128) -> Vec<Range> {
    let all = arg.values.iter().filter_map(ValueItem::bounds);
    all.filter_map(|(low, high)| match arg.cond {
        Cond::Lt => Some((0, low.checked_sub(1)?)),
        Cond::Le => Some((0, low)),
        Cond::Gt => (high < max).then_some((high.saturating_add(1), max)),
        Cond::Ge => Some((low, max)),
        Cond::Eq | Cond::Ne | Cond::Contains => Some((low, high)),
    })
    .collect()
}

/// Sorts ranges, and joins those that overlap or touch.
pub fn merge_ranges(ranges: &mut Vec<Range>) {
    ranges.sort_unstable();
    ranges.dedup_by(|next, kept| {
        let joins = next.0 <= kept.1.saturating_add(1);
        if joins {
            kept.1 = kept.1.max(next.1);
        }
        joins
    });
}

/// The numbers up to `max` in none of the ranges.
pub(crate) fn complement(mut ranges: Vec<Range>, max: u128) -> Vec<Range> {
    ranges.sort_unstable();
    let mut gaps = Vec::with_capacity(ranges.len() + 1);
    let mut next = Some(0);
    for (low, high) in ranges {
        let Some(start) = next else { break };
        if low > start {
            gaps.push((start, low - 1));
        }
        next = if high >= max { None } else { Some(start.max(high + 1)) };
    }
    gaps.extend(next.map(|start| (start, max)));
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_complement_of_ranges() {
        assert_eq!(complement(vec![], 9), [(0, 9)]);
        assert_eq!(complement(vec![(0, 9)], 9), []);
        assert_eq!(complement(vec![(5, 5), (1, 3), (2, 2)], 9), [(0, 0), (4, 4), (6, 9)]);
        assert_eq!(complement(vec![(0, 1), (1, u128::MAX)], u128::MAX), []);
        assert_eq!(complement(vec![(0, 3), (9, 9)], 9), [(4, 8)]);
    }

    #[test]
    fn subnets_are_ranges() {
        let bounds = Value::bounds;
        let value = |addr: &str, len| Value::Prefix { addr: addr.parse().unwrap(), len };
        assert_eq!(bounds(&value("10.0.0.0", 8)), Some((0x0a00_0000, 0x0aff_ffff)));
        assert_eq!(bounds(&value("0.0.0.0", 0)), Some((0, 0xffff_ffff)));
        assert_eq!(bounds(&value("10.0.0.1", 32)), Some((0x0a00_0001, 0x0a00_0001)));
        assert_eq!(bounds(&value("::", 0)), Some((0, u128::MAX)));
        assert_eq!(bounds(&value("::1", 128)), Some((1, 1)));
        assert_eq!(bounds(&value("ff00::", 8)), Some((0xff << 120, u128::MAX)));
    }
}
