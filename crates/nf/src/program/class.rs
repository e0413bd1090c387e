//! Kinds of traffic: matches of the rule language.

use mmb_lang::{Action, AddKind, Match, Rule};
use mmb_policy::Policy;

/// In the rule language.
pub(crate) fn text(matches: &[Match]) -> String {
    matches.iter().map(Match::to_string).collect::<Vec<_>>().join(" ")
}

/// Those of `more` that are not there are added.
pub(crate) fn extend(matches: &mut Vec<Match>, more: &[Match]) {
    for one in more {
        if !matches.contains(one) {
            matches.push(one.clone());
        }
    }
}

/// Whether all that the one asks is asked by the other.
pub(crate) fn implied(by: &[Match], asked: &[Match]) -> bool {
    asked.iter().all(|one| by.contains(one))
}

/// Why no packet can match both.
pub(crate) fn contradiction(a: &[Match], b: &[Match]) -> Option<String> {
    let mut both = a.to_vec();
    extend(&mut both, b);
    mmb_lang::parse_matches(&text(&both)).err().map(|error| error.to_string())
}

/// A rule that accepts the traffic, in `classes`; its slot.
pub(crate) fn enter(
    classes: &mut Policy,
    matches: &[Match],
    port: &dyn Fn(&str) -> Option<u16>,
) -> Result<u32, String> {
    let rule = Rule {
        kind: AddKind::Add,
        matches: matches.to_vec(),
        targets: vec![Action::Accept.into()],
        span: Default::default(),
    };
    // Slots are given out in order, and none was ever given back.
    let slot = classes.slots();
    classes.add(&rule, port).map_err(|error| error.to_string())?;
    u32::try_from(slot).map_err(|_| "there are too many classes".to_owned())
}
