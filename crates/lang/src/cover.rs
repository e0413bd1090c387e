//! Whether one rule matches all packets of another.
//!
//! Theory of operation. The matches of a rule all have to hold. So a list of matches covers another one if
//! each of its matches follows from a match of the other. Two matches are compared if they are about the same
//! field. The answer "no" may be wrong, for example if only several matches together imply one.

use std::net::IpAddr;

use crate::ast::{Comparison, Cond, Match, MatchExpr, Value, ValueItem};
use crate::field::{FieldId, ValueKind};

/// Whether every packet that matches all of `inner` matches all of `outer`, as far as can be seen.
pub fn covers(outer: &[Match], inner: &[Match]) -> bool {
    outer.iter().all(|one| inner.iter().any(|other| follows(one, other)) || is_all(one))
}

fn is_all(one: &Match) -> bool {
    !one.negated && one.what == MatchExpr::All
}

/// Whether `one` holds for all packets for which `other` holds.
fn follows(one: &Match, other: &Match) -> bool {
    if one == other {
        return true;
    }
    let (MatchExpr::Field { field, arg }, MatchExpr::Field { field: other_field, arg: other_arg }) =
        (&one.what, &other.what)
    else {
        return false;
    };
    if field != other_field || one.negated || other.negated || !is_ordered(*field) {
        return false;
    }
    match (arg, other_arg) {
        // The field is present if it can be compared.
        (None, Some(_)) => true,
        (Some(one), Some(other)) => match (ranges(*field, one), ranges(*field, other)) {
            (Some(one), Some(other)) => other.iter().all(|range| is_within(*range, &one)),
            _ => false,
        },
        (_, None) => false,
    }
}

/// Whether the values of a field are numbers or addresses, and a match without a value asks whether it is
/// there.
fn is_ordered(field: FieldId) -> bool {
    use ValueKind::{EtherType, Int, Ip4, Ip6, Proto};
    matches!(field.def().kind, Int | Proto | EtherType | Ip4 | Ip6)
}

/// Returns the values for which a comparison holds: inclusive ranges, ascending, with gaps in between. None:
/// some value is not a number.
fn ranges(field: FieldId, comparison: &Comparison) -> Option<Vec<(u128, u128)>> {
    let max = u128::MAX >> (128 - u32::from(field.def().width_bits).clamp(1, 128));
    let listed: Option<Vec<_>> = comparison.values.iter().map(bounds).collect();
    let listed = merged(listed?);
    let (first, last) = (listed.first()?.0, listed.last()?.1);
    let below = |end: u128| end.checked_sub(1).map(|end| (0, end));
    let above = |start: u128| (start < max).then(|| (start + 1, max));
    Some(match comparison.cond {
        Cond::Eq => listed,
        Cond::Ne => {
            let gaps = listed.windows(2).map(|pair| (pair[0].1 + 1, pair[1].0 - 1));
            below(first).into_iter().chain(gaps).chain(above(last)).collect()
        }
        Cond::Lt => below(first).into_iter().collect(),
        Cond::Le => vec![(0, last)],
        Cond::Gt => above(last).into_iter().collect(),
        Cond::Ge => vec![(first, max)],
        Cond::Contains => return None,
    })
}

/// Joins ranges that overlap or touch.
fn merged(mut ranges: Vec<(u128, u128)>) -> Vec<(u128, u128)> {
    ranges.sort_unstable();
    ranges.dedup_by(|next, kept| {
        let joins = next.0 <= kept.1.saturating_add(1);
        kept.1 = if joins { kept.1.max(next.1) } else { kept.1 };
        joins
    });
    ranges
}

/// Whether a range lies in one of the ranges.
fn is_within((first, last): (u128, u128), ranges: &[(u128, u128)]) -> bool {
    ranges.iter().any(|range| range.0 <= first && last <= range.1)
}

/// Returns first and last number of an item.
fn bounds(item: &ValueItem) -> Option<(u128, u128)> {
    let of = |value: &Value| match value {
        Value::Int(number) => Some((u128::from(*number), u128::from(*number))),
        Value::Prefix { addr: IpAddr::V4(addr), len } => {
            let hosts = u32::MAX.checked_shr((*len).into()).unwrap_or(0);
            Some((u128::from(addr.to_bits() & !hosts), u128::from(addr.to_bits() | hosts)))
        }
        Value::Prefix { addr: IpAddr::V6(addr), len } => {
            let hosts = u128::MAX.checked_shr((*len).into()).unwrap_or(0);
            Some((addr.to_bits() & !hosts, addr.to_bits() | hosts))
        }
        Value::Iface(_) | Value::Bytes(_) | Value::Option { .. } => None,
    };
    match item {
        ValueItem::Single(value) => of(value),
        ValueItem::Range(ends) => Some((of(&ends[0])?.0, of(&ends[1])?.1)),
    }
}

#[cfg(test)]
mod tests;
