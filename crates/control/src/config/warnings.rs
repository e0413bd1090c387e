//! Warnings about rules that never do what they say.
//!
//! Theory of operation. `accept` beats `drop`. A `drop` whose packets an `accept` rule matches all drops
//! nothing. Rules are compared in pairs ([`mmb_lang::covers`]). The number of pairs is limited, so that a
//! change of a large policy stays cheap; rules beyond it are not compared.

use mmb_lang::{Action, Rule, RuleKind};
use mmb_policy::{Policy, RuleView};

/// Most rules of each kind that are compared.
const MOST_RULES: usize = 500;
/// Most warnings about one change.
const MOST_WARNINGS: usize = 20;

/// A rule that drops or accepts.
struct Entry<'a> {
    view: RuleView<'a>,
    rule: Rule,
}

/// Returns a sentence for each `drop` rule that never drops, because of an `accept` rule. `only`: those in
/// which the rule with this index takes part.
pub fn ineffective_drops(policy: &Policy, only: Option<u32>) -> Vec<String> {
    let (accepts, drops) = (entries(policy, only, true), entries(policy, only, false));
    let mut warnings = Vec::new();
    for drop in &drops {
        let is_about = |entry: &Entry<'_>| only.is_none_or(|only| only == entry.view.index);
        let mut candidates = accepts.iter().filter(|accept| is_about(drop) || is_about(accept));
        if let Some(accept) = candidates.find(|accept| overrides(&accept.rule, &drop.rule)) {
            let (drop, accept) = (&drop.view, &accept.view);
            warnings.push(format!(
                "rule {} (`{}`) never drops: rule {} (`{}`) accepts the same packets; `block` beats `accept`",
                drop.index, drop.text, accept.index, accept.text
            ));
        }
        if warnings.len() == MOST_WARNINGS {
            break;
        }
    }
    warnings
}

/// The first rules that accept or drop; `only` is among them if it is one.
fn entries(policy: &Policy, only: Option<u32>, accepts: bool) -> Vec<Entry<'_>> {
    let is_wanted = |view: &RuleView<'_>| {
        let info = policy.rule_info(view.slot);
        if accepts { info.accepts } else { info.drops && !info.blocks }
    };
    let first = policy.rules().filter(is_wanted).take(MOST_RULES);
    let is_one = |view: &RuleView<'_>| only == Some(view.index) && is_wanted(view);
    let one = policy.rules().filter(|_| only.is_some()).filter(is_one);
    first.chain(one).filter_map(|view| Some(Entry { rule: view.rule().ok()?, view })).collect()
}

/// Whether an accepting rule lets all packets of a dropping rule pass.
fn overrides(accept: &Rule, drop: &Rule) -> bool {
    let has_chain = accept.targets.iter().any(|target| matches!(target.action, Action::Chain { .. }));
    // A stateful rule also drops the replies, which a stateless one does not accept.
    let is_wide = accept.kind == RuleKind::Stateful || drop.kind != RuleKind::Stateful;
    is_wide && !has_chain && mmb_lang::covers(&accept.matches, &drop.matches)
}
