//! Kinds of traffic: matches of the rule language.

use mmb_classify::{Classifier, Pattern};
use mmb_lang::{Action, Match, Rule, RuleKind};

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

/// Adds a pattern for the traffic to `classes`, under the slot that is next.
pub(crate) fn enter(
    classes: &mut Classifier,
    matches: &[Match],
    port: &dyn Fn(&str) -> Option<u16>,
) -> Result<u32, String> {
    let rule = Rule {
        kind: RuleKind::Add,
        matches: matches.to_vec(),
        targets: vec![Action::Accept.into()],
        span: Default::default(),
    };
    let slot = u32::try_from(classes.len()).map_err(|_| "there are too many classes".to_owned())?;
    mmb_lang::check(&rule).map_err(|error| error.to_string())?;
    let pattern = Pattern::compile(&rule, port).map_err(|error| error.to_string())?;
    classes.insert(slot, &pattern);
    Ok(slot)
}
