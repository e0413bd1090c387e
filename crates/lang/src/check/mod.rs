//! Checks of rules that parse: unsupported conditions, fields that cannot be written, rules that never match.

mod bits;
mod domain;
mod facts;
mod kinds;
mod options;
mod sessions;
mod shape;

use crate::ast::{Action, Comparison, Cond, Match, MatchExpr, Rule, Target, Value, ValueItem};
use crate::diag::Diagnostic;
use crate::field::{FieldDef, FieldId, Support, ValueKind};
use crate::keyword;
use crate::names::{ETHERTYPE_IP4, ETHERTYPE_IP6};
use crate::shape::{is_comment, is_rule_name};
use crate::span::Span;
use facts::Facts;
use shape::ShapeError;

/// Checks whether the engine can run a rule and whether the rule makes sense.
///
/// Every field and value has the shape that the parser produces (also in rules built by hand). Everything is
/// supported. Some packet can match. The targets can apply to such a packet and do not contradict each other.
///
/// # Errors
/// The first error, with the span of the match or target.
pub fn check(rule: &Rule) -> Result<(), Diagnostic> {
    let error = |message: &str| Err(Diagnostic::new(rule.span.span(), message));
    if rule.matches.is_empty() {
        return error("the rule has no match");
    }
    if rule.targets.is_empty() {
        return error("the rule has no target");
    }
    let has_name = rule.name().is_none_or(|name| is_rule_name(name) && !keyword::is_reserved(name));
    if !has_name || !rule.comment().is_none_or(is_comment) {
        return error("malformed rule: its name or comment has no such shape");
    }
    for one in &rule.matches {
        check_match(one)?;
    }
    for target in &rule.targets {
        check_target(target)?;
        sessions::check_target(rule.kind, target)?;
    }
    let facts = Facts::of(&rule.matches)?;
    sessions::check_broker(rule)?;
    check_together(&rule.targets)?;
    if rule.is_stateful() {
        sessions::check_together(&rule.targets)?;
    }
    options::check(&rule.targets)?;
    for target in &rule.targets {
        facts.check_reach(target)?;
    }
    Ok(())
}

/// Checks matches for `show connections` and `clear connections`. They must satisfy [`check`], and be
/// conditions on properties that a connection has, not only its packets.
///
/// # Errors
/// The first error, with the span of the match.
pub fn check_filter(matches: &[Match]) -> Result<(), Diagnostic> {
    for one in matches {
        check_match(one)?;
        sessions::check_filter(one)?;
    }
    Facts::of(matches).map(drop)
}

/// Checks matches as [`check`] does for a rule: the engine supports each, and some packet can match all.
///
/// # Errors
/// The first error, with the span of the match.
pub fn check_matches(matches: &[Match]) -> Result<(), Diagnostic> {
    matches.iter().try_for_each(check_match)?;
    Facts::of(matches).map(drop)
}

/// An error that only rules built by hand can have.
fn malformed(span: Span, error: &ShapeError) -> Diagnostic {
    Diagnostic::new(span, format!("malformed rule: {error}"))
}

fn check_match(one: &Match) -> Result<(), Diagnostic> {
    let span = one.span.span();
    let MatchExpr::Field { field, arg } = &one.what else {
        return if one.negated { Err(Diagnostic::new(span, "`! all` matches nothing")) } else { Ok(()) };
    };
    let def = field.def();
    shape::check_arg(def, arg.as_ref()).map_err(|error| malformed(span, &error))?;
    if let Support::No(reason) = def.match_ {
        return Err(Diagnostic::new(span, format!("`{field}` cannot be matched: {reason}")));
    }
    arg.as_ref().map_or(Ok(()), |arg| check_arg(def, arg))
}

fn check_arg(def: &FieldDef, arg: &Comparison) -> Result<(), Diagnostic> {
    let error = |message: &str, help: &str| Err(Diagnostic::new(arg.span.span(), message).with_help(help));
    let ip = |item: &ValueItem| matches!(item, ValueItem::Single(Value::Int(ETHERTYPE_IP4 | ETHERTYPE_IP6)));
    if def.kind == ValueKind::EtherType && !arg.values.iter().all(ip) {
        return error(
            "rules see IP packets only; everything else passes untouched",
            "`net-proto` is ip or ip6",
        );
    }
    if def.id == FieldId::TcpOpt && asks_for_padding(arg) {
        return error("kinds 0 and 1 are padding, not options", "an option's kind is 2 to 255");
    }
    Ok(())
}

/// Whether a condition on kinds of options, or a member of its set, covers padding only.
fn asks_for_padding(arg: &Comparison) -> bool {
    arg.values.iter().any(|item| match (item, arg.cond) {
        (ValueItem::Single(Value::Int(most)), Cond::Le) => *most < 2,
        (ValueItem::Single(Value::Int(bound)), Cond::Lt) => *bound <= 2,
        (ValueItem::Single(Value::Int(kind)), Cond::Eq | Cond::Ne) => *kind < 2,
        (ValueItem::Range(ends), _) => matches!(ends[1], Value::Int(high) if high < 2),
        _ => false,
    })
}

fn check_target(target: &Target) -> Result<(), Diagnostic> {
    let span = target.span.span();
    if let Action::Map { field, .. } | Action::Shuffle { field, .. } = target.action
        && let Support::No(reason) = field.def().translate
    {
        let message = format!("`{field}` cannot be translated for sessions: {reason}");
        let help = "fields that can: addresses, ports, ip-id, ip6-flow-label, tcp-seq-num and tcp-ack-num";
        return Err(Diagnostic::new(span, message).with_help(help));
    }
    shape::check_action(&target.action).map_err(|error| malformed(span, &error))?;
    let Action::Mod { field, .. } = target.action else { return Ok(()) };
    match field.def().modify {
        Support::Yes => Ok(()),
        Support::No(reason) => Err(Diagnostic::new(span, format!("`{field}` cannot be written: {reason}"))),
    }
}

/// Checks for targets that exclude each other.
fn check_together(targets: &[Target]) -> Result<(), Diagnostic> {
    let (mut drops, mut accepts, mut blocks, mut rejects) = (false, false, false, false);
    let (mut logs, mut written) = (false, [false; crate::FIELDS.len()]);
    for target in targets {
        let again = match &target.action {
            Action::Drop { .. } => std::mem::replace(&mut drops, true),
            Action::Accept => std::mem::replace(&mut accepts, true),
            Action::Block => std::mem::replace(&mut blocks, true),
            Action::Reject => std::mem::replace(&mut rejects, true),
            Action::Log { .. } => std::mem::replace(&mut logs, true),
            Action::Mod { field, .. } if field.def().is_option() => false,
            Action::Mod { field, .. } | Action::Map { field, .. } | Action::Shuffle { field, .. } => {
                std::mem::replace(&mut written[*field as usize], true)
            }
            _ => false,
        };
        let span = target.span.span();
        match (&target.action, again) {
            (Action::Mod { field, .. } | Action::Map { field, .. } | Action::Shuffle { field, .. }, true) => {
                return Err(Diagnostic::new(span, format!("the rule writes `{field}` twice")));
            }
            (action, true) => {
                return Err(Diagnostic::new(span, format!("the rule has `{}` twice", action.word())));
            }
            _ if drops && accepts => {
                let message = "a rule cannot say both `drop` and `accept`: accept means that no `drop` drops the packet";
                return Err(Diagnostic::new(span, message));
            }
            _ if rejects && (drops || accepts || blocks) => {
                let other = if drops {
                    "drop"
                } else if accepts {
                    "accept"
                } else {
                    "block"
                };
                let message = format!(
                    "a rule cannot say both `reject` and `{other}`: reject drops the packet and tells its sender"
                );
                return Err(Diagnostic::new(span, message));
            }
            _ if blocks && (drops || accepts) => {
                let other = if drops { "drop" } else { "accept" };
                let message = format!(
                    "a rule cannot say both `block` and `{other}`: block drops the packet in any case"
                );
                return Err(Diagnostic::new(span, message));
            }
            _ => {}
        }
    }
    Ok(())
}
