//! Whether one rule matches all packets of another.
//!
//! Theory of operation. The matches of a rule all have to hold. So a list of matches covers another one if
//! each of its matches follows from a match of the other. Two matches are compared if they are about the same
//! field. The answer "no" may be wrong, for example if only several matches together imply one.

use crate::ast::{Comparison, Cond, Match, MatchExpr};
use crate::field::{FieldId, ValueKind};
use crate::ranges::{Range, complement, fitting, merge_ranges};

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
    let has_set = |arg: &Option<Comparison>| arg.as_ref().is_some_and(|arg| arg.named_set().is_some());
    match (arg, other_arg) {
        // The elements of a set change.
        _ if has_set(arg) || has_set(other_arg) && arg.is_some() => false,
        // The field is present if it can be compared.
        (None, Some(_)) => true,
        (Some(one), Some(other)) => {
            let one = ranges(*field, one);
            ranges(*field, other).iter().all(|range| is_within(*range, &one))
        }
        (_, None) => false,
    }
}

/// Whether the values of a field are numbers or addresses, and a match without a value asks whether it is
/// there.
fn is_ordered(field: FieldId) -> bool {
    use ValueKind::{EtherType, Int, Ip4, Ip6, Proto};
    matches!(field.def().kind, Int | Proto | EtherType | Ip4 | Ip6)
}

/// The numbers for which a comparison holds: ascending, with gaps in between.
fn ranges(field: FieldId, arg: &Comparison) -> Vec<Range> {
    let max = field.def().largest();
    let mut fitting = fitting(arg, max);
    if arg.cond == Cond::Ne {
        fitting = complement(fitting, max);
    }
    merge_ranges(&mut fitting);
    fitting
}

/// Whether a range lies in one of the ranges.
fn is_within((first, last): Range, ranges: &[Range]) -> bool {
    ranges.iter().any(|range| range.0 <= first && last <= range.1)
}

#[cfg(test)]
mod tests;
