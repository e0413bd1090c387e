//! Warnings about rules that never do what they say, and about rules that are there twice.
//!
//! Theory of operation. `accept` beats `drop`. A `drop` whose packets an `accept` rule matches all drops
//! nothing. Rules are compared in pairs ([`mmb_lang::covers`]). The number of pairs is limited, so that a
//! change of a large policy stays cheap; rules beyond it are not compared.

use std::collections::HashMap;

use mmb_lang::{Action, Rule, Target};
use mmb_policy::{Policy, RuleInfo, RuleView};

/// Most rules of each kind that are compared.
const MOST_RULES: usize = 500;
/// Most rules with whose body that of a new rule is compared.
const MOST_BODIES: usize = 50_000;
/// Most warnings of a kind about one change.
const MOST_WARNINGS: usize = 20;

/// A rule that accepts, or one that drops and does not block.
struct Entry<'a> {
    view: RuleView<'a>,
    rule: Rule,
}

/// Returns a sentence for each `drop` rule that never drops, because of an `accept` rule, and for each rule
/// that another one repeats.
pub fn rule_warnings(policy: &Policy) -> Vec<String> {
    let mut found = ineffective_drops(&entries(policy, accepts), &entries(policy, drops));
    let mut first = HashMap::with_capacity(policy.len());
    let repeated = policy.rules().filter_map(|view| {
        let index = *first.entry(view.body).or_insert(view.index);
        (index != view.index).then(|| repeats(&view, index))
    });
    found.extend(repeated.take(MOST_WARNINGS));
    found
}

/// Returns those sentences of [`rule_warnings`] that are about the rule with this index.
pub fn rule_warnings_about(policy: &Policy, index: u32) -> Vec<String> {
    let Some(entry) = policy.rule(index).and_then(Entry::new) else { return Vec::new() };
    let first = policy.first_with_body_of(&entry.view, MOST_BODIES);
    let repeated = first.map(|first| repeats(&entry.view, first));
    let info = policy.rule_info(entry.view.slot);
    let mut found = if accepts(&info) {
        ineffective_drops(&[entry], &entries(policy, drops))
    } else if drops(&info) {
        ineffective_drops(&entries(policy, accepts), &[entry])
    } else {
        Vec::new()
    };
    found.extend(repeated);
    found
}

fn repeats(rule: &RuleView<'_>, first: u32) -> String {
    let RuleView { index, text, .. } = rule;
    format!("rule {index} (`{text}`) repeats rule {first}; `del {index}` removes it")
}

fn ineffective_drops(accepts: &[Entry<'_>], drops: &[Entry<'_>]) -> Vec<String> {
    let warning = |drop: &Entry<'_>| {
        let accept = &accepts.iter().find(|accept| overrides(&accept.rule, &drop.rule))?.view;
        let drop = &drop.view;
        Some(format!(
            "rule {} (`{}`) never drops: rule {} (`{}`) accepts the same packets; `block` beats `accept`",
            drop.index, drop.text, accept.index, accept.text
        ))
    };
    drops.iter().filter_map(warning).take(MOST_WARNINGS).collect()
}

/// The first rules of a kind.
fn entries(policy: &Policy, is_kind: impl Fn(&RuleInfo) -> bool) -> Vec<Entry<'_>> {
    policy.rules_of(is_kind).take(MOST_RULES).filter_map(Entry::new).collect()
}

impl<'a> Entry<'a> {
    fn new(view: RuleView<'a>) -> Option<Self> {
        Some(Entry { rule: view.rule().ok()?, view })
    }
}

fn accepts(info: &RuleInfo) -> bool {
    info.accepts
}

fn drops(info: &RuleInfo) -> bool {
    info.drops && !info.blocks
}

/// Whether an accepting rule lets all packets of a dropping rule pass.
fn overrides(accept: &Rule, drop: &Rule) -> bool {
    let is_narrow = |target: &Target| matches!(target.action, Action::Chain { .. } | Action::Broker { .. });
    let is_narrow = accept.targets.iter().any(is_narrow);
    // A stateful rule also drops the replies, which a stateless one does not accept.
    let is_wide = accept.is_stateful() || !drop.is_stateful();
    is_wide && !is_narrow && mmb_lang::covers(&accept.matches, &drop.matches)
}
