//! Traffic classes: matches of the rule language.

use mmb_classify::{Classifier, Pattern};
use mmb_lang::{Action, Match, Rule, RuleKind};

use super::errors::ChainError;

/// Returns the text of matches in the rule language.
pub(crate) fn text(matches: &[Match]) -> String {
    matches.iter().map(Match::to_string).collect::<Vec<_>>().join(" ")
}

/// Appends the matches of `more` that are not in `matches` yet.
pub(crate) fn extend(matches: &mut Vec<Match>, more: &[Match]) {
    for one in more {
        if !matches.contains(one) {
            matches.push(one.clone());
        }
    }
}

/// Whether a class contains all matches of another one.
pub(crate) fn is_implied(class: &[Match], other: &[Match]) -> bool {
    other.iter().all(|one| class.contains(one))
}

/// Returns why no packet can match both classes. None: a packet can.
pub(crate) fn contradiction(a: &[Match], b: &[Match]) -> Option<String> {
    let mut both = a.to_vec();
    extend(&mut both, b);
    mmb_lang::parse_matches(&text(&both)).err().map(|error| error.to_string())
}

/// Adds a class to a classifier, under the next slot. Returns the slot.
pub(crate) fn insert(
    classes: &mut Classifier,
    matches: &[Match],
    resolve_port: &dyn Fn(&str) -> Option<u16>,
) -> Result<u32, ChainError> {
    let rule = Rule {
        kind: RuleKind::Add,
        matches: matches.to_vec(),
        targets: vec![Action::Accept.into()],
        label: None,
        span: Default::default(),
    };
    let max = u32::MAX as usize / 2;
    let slot =
        u32::try_from(classes.len()).map_err(|_| ChainError::TooMany { what: "traffic classes", max })?;
    if let Some((_, name)) = matches.iter().find_map(Match::named_set) {
        let why = format!("`@{}` is a named set, and only rules can match those", &**name);
        return Err(ChainError::InvalidClass { class: text(matches), why });
    }
    let pattern = mmb_lang::check(&rule).and_then(|()| Pattern::compile(&rule, resolve_port));
    let invalid = |why| ChainError::InvalidClass { class: text(matches), why };
    classes.insert(slot, &pattern.map_err(|error| invalid(error.to_string()))?);
    Ok(slot)
}
