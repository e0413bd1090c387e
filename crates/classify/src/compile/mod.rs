//! From the matches of a rule to a [`Pattern`].
//!
//! Theory of operation. Each match is a condition: the value of a field is in a set, or a predicate about
//! bytes is true. A positive match requires bits in the cover (the field is present) and restricts the set of
//! the field's values. Several matches on one field intersect their sets. A negated match means "the field is
//! absent, or its value is in the complement of the set". If the cover requires the field, the match is
//! treated as a positive one with the complement. Otherwise it becomes a test that accepts packets without
//! the field. The longest common prefix of a set's values goes into the cover. The set becomes a test only if
//! the prefix does not imply it. Sets whose parts are much narrower than the whole become several entries
//! (`split`).

mod bits;
mod condition;
mod constraints;
mod split;

use mmb_lang::{Diagnostic, Rule};

use crate::pattern::{Field, Pattern};
use constraints::{Constraints, contradiction};

impl Pattern {
    /// The packets whose values of these fields are within the bounds, first and last included. None: there
    /// can be no such packets.
    pub(crate) fn of_ranges(ranges: impl Iterator<Item = (Field, (u128, u128))>) -> Option<Pattern> {
        Constraints::of_ranges(ranges)
    }

    /// Compiles the matches of a rule. `ifaces` maps an interface name to its port, an index of the
    /// dataplane's port table.
    ///
    /// # Errors
    /// The diagnostic marks the words at fault: an interface that does not exist, a match that contradicts
    /// the others, or a match that the engine does not support ([`mmb_lang::check`] refuses those first, with
    /// its own reasons).
    pub fn compile(rule: &Rule, ifaces: &dyn Fn(&str) -> Option<u16>) -> Result<Pattern, Diagnostic> {
        // Nearly all rules can match. Only for others it matters which match is at fault.
        let constraints = match conjunction(rule, ifaces, false) {
            Ok(constraints) => constraints,
            Err(_) => conjunction(rule, ifaces, true)?,
        };
        constraints.into_pattern().ok_or_else(|| {
            Diagnostic::new(rule.span.span(), "no packet can match all of these matches")
                .with_help("split the rule in two, or remove one of the matches")
        })
    }
}

/// The constraints of all matches of a rule. `each`: the diagnostic marks the first match that contradicts
/// those before it, instead of any.
fn conjunction(
    rule: &Rule,
    ifaces: &dyn Fn(&str) -> Option<u16>,
    each: bool,
) -> Result<Constraints, Diagnostic> {
    let mut constraints = Constraints::of_ip();
    let mut negated = Vec::new();
    for one in &rule.matches {
        let condition = condition::of(one, ifaces)?;
        if one.negated {
            negated.push((one, condition));
            continue;
        }
        let added = constraints.add(condition);
        let possible = added.and_then(|()| if each { constraints.propagate() } else { Some(()) });
        possible.ok_or_else(|| contradiction(one))?;
    }
    if let Some(last) = rule.matches.last() {
        constraints.propagate().ok_or_else(|| contradiction(last))?;
    }
    constraints.exclude_all(negated)?;
    Ok(constraints)
}
