//! The names that rules refer to.

use mmb_lang::{Action, Cond, FieldId, Match, MatchExpr, Rule, Value, ValueItem, Word};
use mmb_policy::RuleView;

/// Whether a rule refers to an interface. The text is searched first, since parsing it is slow.
pub(super) fn uses_interface(view: &RuleView<'_>, interface: &str) -> bool {
    view.text.contains(interface)
        && view.rule().is_ok_and(|rule| interfaces(&rule).any(|name| **name == *interface))
}

/// The interfaces of a rule.
pub(super) fn interfaces(rule: &Rule) -> impl Iterator<Item = &Word> {
    let written = rule.targets.iter().filter_map(|target| match &target.action {
        Action::Mod { value, .. } => Some(value),
        _ => None,
    });
    matched_interfaces(&rule.matches).chain(interfaces_in(written))
}

/// The interfaces of matches.
pub(super) fn matched_interfaces(matches: &[Match]) -> impl Iterator<Item = &Word> {
    let items = matches.iter().filter_map(|m| match &m.what {
        MatchExpr::Field { arg: Some(arg), .. } => Some(arg.values.iter()),
        _ => None,
    });
    interfaces_in(items.flatten().flat_map(|item| match item {
        ValueItem::Single(value) => std::slice::from_ref(value),
        ValueItem::Range(ends) => ends.as_slice(),
    }))
}

fn interfaces_in<'a>(values: impl Iterator<Item = &'a Value>) -> impl Iterator<Item = &'a Word> {
    values.filter_map(|value| match value {
        Value::Iface(word) => Some(word),
        _ => None,
    })
}

/// The NAT pools of a rule.
pub(super) fn pools(rule: &Rule) -> impl Iterator<Item = &Word> {
    rule.targets.iter().filter_map(|target| match &target.action {
        Action::Nat { pool } => Some(pool),
        _ => None,
    })
}

/// The brokers of a rule.
pub(super) fn brokers(rule: &Rule) -> impl Iterator<Item = &Word> {
    rule.targets.iter().filter_map(|target| match &target.action {
        Action::Broker { name } => Some(name),
        _ => None,
    })
}

/// The interfaces of which one is the input of each packet that a rule matches.
pub(super) fn inputs(rule: &Rule) -> impl Iterator<Item = &Word> {
    let is_input = |one: &&Match| {
        let MatchExpr::Field { field: FieldId::In, arg: Some(arg) } = &one.what else { return false };
        !one.negated && arg.cond == Cond::Eq
    };
    rule.matches.iter().filter(is_input).flat_map(|one| matched_interfaces(std::slice::from_ref(one)))
}

/// The chains of a rule.
pub(super) fn chains(rule: &Rule) -> impl Iterator<Item = &Word> {
    rule.targets.iter().filter_map(|target| match &target.action {
        Action::Chain { name } => Some(name),
        _ => None,
    })
}
