//! What a rule that parses may still have wrong: it asks for what this engine cannot do yet, writes what cannot be
//! written, or can never match.

mod facts;
mod shape;

use crate::ast::{Action, AddKind, Arg, Match, MatchOn, Rule, Target, Value, ValueItem};
use crate::diag::Diagnostic;
use crate::field::{FieldDef, Support, ValueKind};
use crate::keyword::{cond_runs, target_runs};
use crate::names::{ETHERTYPE_IP4, ETHERTYPE_IP6};
use crate::span::Span;
use facts::Facts;

/// Says whether the engine can run a rule, and whether the rule makes sense: every field and value has the shape that
/// the parser gives it (rules built by hand are held to the same), everything in it is supported, some packet can match
/// it, its targets can apply to such a packet and do not contradict each other.
///
/// # Errors
/// The first thing wrong, with the span of the match or target.
pub fn check(rule: &Rule) -> Result<(), Diagnostic> {
    let error = |message: &str| Err(Diagnostic::new(rule.span.span(), message));
    if rule.matches.is_empty() {
        return error("the rule has no match");
    }
    if rule.targets.is_empty() {
        return error("the rule has no target");
    }
    if rule.kind == AddKind::Stateful {
        return error("stateful rules are not supported by this version of mmb yet");
    }
    for one in &rule.matches {
        check_match(one)?;
    }
    for target in &rule.targets {
        check_target(target)?;
    }
    let facts = Facts::of(&rule.matches)?;
    check_together(&rule.targets)?;
    for target in &rule.targets {
        facts.check_reach(target)?;
    }
    Ok(())
}

/// Help for what is not supported yet.
const SUPPORTED: &str = "fixed header fields can be matched: alone, or with == or != and one value or prefix";

fn not_yet(span: Span, what: &str) -> Diagnostic {
    Diagnostic::new(span, format!("{what} not supported by this version of mmb yet"))
}

/// What only a rule that was built by hand can have wrong.
fn malformed(span: Span, message: &str) -> Diagnostic {
    Diagnostic::new(span, format!("malformed rule: {message}"))
}

fn check_match(one: &Match) -> Result<(), Diagnostic> {
    let span = one.span.span();
    let MatchOn::Field { field, arg } = &one.what else {
        return if one.negated { Err(Diagnostic::new(span, "`! all` matches nothing")) } else { Ok(()) };
    };
    let def = field.def();
    shape::check_arg(def, arg.as_ref()).map_err(|message| malformed(span, &message))?;
    match def.match_ {
        Support::Yes => {}
        Support::NotYet => return Err(not_yet(span, &format!("matching `{field}` is")).with_help(SUPPORTED)),
        Support::No(reason) => {
            return Err(Diagnostic::new(span, format!("`{field}` cannot be matched: {reason}")));
        }
    }
    arg.as_ref().map_or(Ok(()), |arg| check_arg(def, arg))
}

fn check_arg(def: &FieldDef, arg: &Arg) -> Result<(), Diagnostic> {
    let span = arg.span.span();
    let unsupported = |what: &str| Err(not_yet(span, what).with_help(SUPPORTED));
    if !cond_runs(arg.cond) {
        return unsupported(&format!("the condition `{}` is", arg.cond));
    }
    match &*arg.values {
        [ValueItem::Single(value)] => {
            if def.kind == ValueKind::EtherType && !matches!(value, Value::Int(ETHERTYPE_IP4 | ETHERTYPE_IP6))
            {
                let error =
                    Diagnostic::new(span, "rules see IP packets only; everything else passes untouched");
                return Err(error.with_help("`net-proto` is ip or ip6"));
            }
            Ok(())
        }
        [ValueItem::Range(_)] => unsupported("ranges are"),
        _ => unsupported("sets are"),
    }
}

fn check_target(target: &Target) -> Result<(), Diagnostic> {
    let span = target.span.span();
    let word = target.action.word();
    shape::check_action(&target.action).map_err(|message| malformed(span, &message))?;
    if !target_runs(word) {
        let help = "the targets are mod <field> <value>, drop and accept";
        return Err(not_yet(span, &format!("the target `{word}` is")).with_help(help));
    }
    let Action::Mod { field, .. } = target.action else { return Ok(()) };
    match field.def().modify {
        Support::Yes => Ok(()),
        Support::NotYet => Err(not_yet(span, &format!("writing `{field}` is"))),
        Support::No(reason) => Err(Diagnostic::new(span, format!("`{field}` cannot be written: {reason}"))),
    }
}

/// Targets that exclude each other.
fn check_together(targets: &[Target]) -> Result<(), Diagnostic> {
    let (mut drops, mut accepts) = (false, false);
    let mut written = [false; crate::FIELDS.len()];
    for target in targets {
        let again = match &target.action {
            Action::Drop { .. } => std::mem::replace(&mut drops, true),
            Action::Accept => std::mem::replace(&mut accepts, true),
            Action::Mod { field, .. } => std::mem::replace(&mut written[*field as usize], true),
            _ => false,
        };
        let span = target.span.span();
        match (&target.action, again) {
            (Action::Mod { field, .. }, true) => {
                return Err(Diagnostic::new(span, format!("the rule writes `{field}` twice")));
            }
            (action, true) => {
                return Err(Diagnostic::new(span, format!("the rule says `{}` twice", action.word())));
            }
            _ if drops && accepts => {
                let message =
                    "a rule cannot say both `drop` and `accept`: accept means that no rule drops the packet";
                return Err(Diagnostic::new(span, message));
            }
            _ => {}
        }
    }
    Ok(())
}
