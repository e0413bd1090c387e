//! The kinds of TCP options that matching packets can have. A packet has several options, so they are not one
//! number. Matches that require the absence of some kinds exclude them, and every other match needs a kind
//! that remains.

use crate::ast::{Comparison, Cond, Match, MatchExpr};
use crate::field::FieldId;
use crate::ranges::fitting;

/// A set of kinds.
type Kinds = [bool; 256];

/// Checks for options that must be present and absent. The error is the index of the match that requires one.
pub(super) fn check<'a>(matches: impl Iterator<Item = &'a Match> + Clone) -> Result<(), usize> {
    let mut excluded: Kinds = [false; 256];
    // Padding is not an option.
    (excluded[0], excluded[1]) = (true, true);
    for (none, kinds) in matches.clone().filter_map(asked) {
        if none {
            excluded.iter_mut().zip(kinds).for_each(|(out, kind)| *out |= kind);
        }
    }
    let hopeless = |one: &Match| {
        asked(one).is_some_and(|(none, kinds)| {
            !none && kinds.iter().zip(excluded).all(|(kind, excluded)| !kind || excluded)
        })
    };
    matches.clone().position(hopeless).map_or(Ok(()), Err)
}

/// The kinds of a match, and whether it requires their absence or at least one of them. None for matches that
/// hold with and without.
fn asked(one: &Match) -> Option<(bool, Kinds)> {
    let MatchExpr::Field { field, arg } = &one.what else { return None };
    let def = field.def();
    if !def.is_option() {
        return None;
    }
    match (def.option_kind(), arg) {
        (Some(_), Some(_)) if one.negated => None,
        (Some(kind), _) => Some((one.negated, set(|other| other == kind))),
        (None, None) => Some((one.negated, [true; 256])),
        (None, Some(Comparison { cond: Cond::Ne, .. })) if one.negated => None,
        (None, Some(arg)) => {
            let ranges = fitting(arg, FieldId::TcpOpt.def().largest());
            let fits = |kind: u8| ranges.iter().any(|(low, high)| (*low..=*high).contains(&kind.into()));
            Some((one.negated || arg.cond == Cond::Ne, set(fits)))
        }
    }
}

fn set(contains: impl Fn(u8) -> bool) -> Kinds {
    std::array::from_fn(|kind| contains(kind as u8))
}
