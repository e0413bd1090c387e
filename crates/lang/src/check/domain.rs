//! Ranges of values that a field cannot have in a matching packet.
//!
//! # Theory of operation
//!
//! A condition on a number is a set of ranges. The conditions on one field together permit the values that
//! none of them excludes. The excluded ranges of all fields are collected in one list and sorted once. If the
//! excluded ranges of a field cover all of its values, no packet can match.

use std::net::IpAddr;

use crate::ast::{Comparison, Cond, Match, MatchExpr, Value, ValueItem};
use crate::field::{FieldDef, FieldId, ValueKind};

/// Values from the first to the second, inclusive.
pub(super) type Range = (u128, u128);

/// The largest value of a field.
pub(super) fn max(def: &FieldDef) -> u128 {
    u128::MAX.checked_shr(128_u32.saturating_sub(def.width_bits.into())).unwrap_or(0)
}

/// Whether a field has one number per packet, so that conditions can be combined. `tcp-opt` has several.
fn is_number(def: &FieldDef) -> bool {
    let number = matches!(
        def.kind,
        ValueKind::Int | ValueKind::Flag | ValueKind::Proto | ValueKind::Ip4 | ValueKind::Ip6
    );
    number && def.id != FieldId::TcpOpt
}

/// The field that a match compares with numbers, and the values that the match excludes.
pub(super) fn excluded(one: &Match) -> Option<(&'static FieldDef, Vec<Range>)> {
    let MatchExpr::Field { field, arg: Some(arg) } = &one.what else { return None };
    let def = field.def();
    if !is_number(def) {
        return None;
    }
    let fitting = fitting(arg, max(def));
    Some((def, if (arg.cond == Cond::Ne) == one.negated { complement(fitting, max(def)) } else { fitting }))
}

/// Whether a match is more than equality or inequality with one value.
pub(super) fn is_complex(one: &Match) -> bool {
    match &one.what {
        MatchExpr::Field { arg: Some(arg), .. } => {
            !matches!(arg.cond, Cond::Eq | Cond::Ne) || arg.values.single().is_none()
        }
        _ => false,
    }
}

/// The values of a condition; for `!=`, the excluded ones.
pub(super) fn fitting(arg: &Comparison, max: u128) -> Vec<Range> {
    let ends = |item: &ValueItem| match item {
        ValueItem::Single(value) => range(value),
        ValueItem::Range(ends) => Some((range(&ends[0])?.0, range(&ends[1])?.1)),
    };
    let all = arg.values.iter().filter_map(ends);
    all.filter_map(|(low, high)| match arg.cond {
        Cond::Lt => Some((0, low.checked_sub(1)?)),
        Cond::Le => Some((0, low)),
        Cond::Gt => (high < max).then_some((high.saturating_add(1), max)),
        Cond::Ge => Some((low, max)),
        Cond::Eq | Cond::Ne | Cond::Contains => Some((low, high)),
    })
    .collect()
}

/// The values of a number, an address or a subnet.
fn range(value: &Value) -> Option<Range> {
    match value {
        Value::Int(number) => Some(((*number).into(), (*number).into())),
        Value::Prefix { addr, len } => {
            let (first, bits) = match addr {
                IpAddr::V4(addr) => (u128::from(addr.to_bits()), 32),
                IpAddr::V6(addr) => (addr.to_bits(), 128),
            };
            let hosts = u128::MAX.checked_shr(128 - (bits - u32::from(*len))).unwrap_or(0);
            Some((first, first | hosts))
        }
        Value::Iface(_) | Value::Bytes(_) | Value::Option { .. } => None,
    }
}

/// The values up to `max` in none of the ranges.
pub(super) fn complement(mut ranges: Vec<Range>, max: u128) -> Vec<Range> {
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
        let value = |addr: &str, len| Value::Prefix { addr: addr.parse().unwrap(), len };
        assert_eq!(range(&value("10.0.0.0", 8)), Some((0x0a00_0000, 0x0aff_ffff)));
        assert_eq!(range(&value("0.0.0.0", 0)), Some((0, 0xffff_ffff)));
        assert_eq!(range(&value("10.0.0.1", 32)), Some((0x0a00_0001, 0x0a00_0001)));
        assert_eq!(range(&value("::", 0)), Some((0, u128::MAX)));
        assert_eq!(range(&value("::1", 128)), Some((1, 1)));
        assert_eq!(range(&value("ff00::", 8)), Some((0xff << 120, u128::MAX)));
    }
}
