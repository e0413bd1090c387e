//! Checks of stateful rules, and of matches on connections.

use super::check_matches;
use crate::ast::{Action, Match, MatchExpr, Rule, RuleKind, Target};
use crate::diag::{Diagnostic, quote};
use crate::field::{FieldId, ValueKind};
use crate::keyword::is_stateful;

/// Checks that targets for sessions are in rules that open sessions.
pub(super) fn check_target(kind: RuleKind, target: &Target) -> Result<(), Diagnostic> {
    let word = target.action.word();
    let is_broker = matches!(target.action, Action::Broker { .. });
    if kind == RuleKind::Stateful || !is_stateful(word) || is_broker && kind == RuleKind::Add {
        return Ok(());
    }
    let what = match target.action {
        Action::Chain { .. } => "assigns sessions to a service chain",
        Action::Broker { .. } => "assigns sessions to a broker",
        _ => "translates sessions",
    };
    let message = format!("`{word}` {what}, and `{kind}` opens none");
    Err(Diagnostic::new(target.span.span(), message).with_help("`add-stateful` opens sessions"))
}

/// Checks that packets of TCP can match a rule with a broker, and that it has no chain.
pub(super) fn check_broker(rule: &Rule) -> Result<(), Diagnostic> {
    let Some(broker) = rule.targets.iter().find(|target| matches!(target.action, Action::Broker { .. }))
    else {
        return Ok(());
    };
    if rule.targets.iter().any(|target| matches!(target.action, Action::Chain { .. })) {
        let message = "a rule cannot say both `chain` and `broker`: a session passes one of them";
        return Err(Diagnostic::new(broker.span.span(), message)
            .with_help("the broker has a chain of its own: `chain add` puts more functions into it"));
    }
    let mut matches = rule.matches.clone();
    matches.push(Match::tcp());
    check_matches(&matches).map_err(|_| {
        let message =
            format!("{} gets TCP connections, and this rule matches none", quote(&broker.to_string()));
        Diagnostic::new(broker.span.span(), message)
            .with_help("for example: add in left tcp-dport 80 broker NAME")
    })
}

/// Checks for targets of a stateful rule that set the same property of a session, or that never apply.
/// Repeated fields are checked elsewhere.
pub(super) fn check_together(targets: &[Target]) -> Result<(), Diagnostic> {
    let (mut nat, mut balances, mut chain, mut broker) = (false, false, false, false);
    for target in targets {
        let again = match target.action {
            Action::Nat { .. } => std::mem::replace(&mut nat, true),
            Action::Lb { .. } => std::mem::replace(&mut balances, true),
            Action::Chain { .. } => std::mem::replace(&mut chain, true),
            Action::Broker { .. } => std::mem::replace(&mut broker, true),
            _ => false,
        };
        if again {
            let message = format!("the rule has `{}` twice", target.action.word());
            let error = Diagnostic::new(target.span.span(), message);
            return Err(match target.action {
                Action::Chain { .. } => error.with_help("one chain can do both: chain add <name> a | b"),
                _ => error,
            });
        }
    }
    // At most the number of fields, plus two.
    let givers: Vec<&Target> = targets.iter().filter(|target| is_giver(&target.action)).collect();
    for (at, one) in givers.iter().enumerate() {
        if let Some(before) = givers[..at].iter().find(|before| clash(&before.action, &one.action)) {
            let (before, now) = (quote(&before.to_string()), quote(&one.to_string()));
            let message = format!("{before} and {now} set the same property of a session");
            return Err(Diagnostic::new(one.span.span(), message));
        }
    }
    let drop = targets
        .iter()
        .find(|target| matches!(target.action, Action::Drop { .. } | Action::Block | Action::Reject));
    match givers.first().zip(drop) {
        Some((giver, drop)) => {
            let (giver_text, word) = (quote(&giver.to_string()), drop.action.word());
            let message = format!("{giver_text} never applies: a rule with `{word}` opens no session");
            Err(Diagnostic::new(giver.span.span(), message).with_help("make two rules of it"))
        }
        None => Ok(()),
    }
}

/// Whether the target of a stateful rule sets a property of new sessions.
fn is_giver(action: &Action) -> bool {
    use FieldId::*;
    match action {
        Action::Mod { field, .. } => matches!(
            field,
            IpSaddr | IpDaddr | Ip6Saddr | Ip6Daddr | TcpSport | TcpDport | UdpSport | UdpDport
        ),
        action => is_stateful(action.word()),
    }
}

/// Whether two targets set the same property of a session by different keywords.
fn clash(a: &Action, b: &Action) -> bool {
    use FieldId::*;
    let one_way = |whole: &Action, part: &Action| {
        let (Action::Mod { field, .. } | Action::Map { field, .. } | Action::Shuffle { field, .. }) = part
        else {
            return false;
        };
        match (whole, field) {
            (Action::Nat { .. }, IpSaddr | TcpSport | UdpSport) => true,
            (Action::Lb { addresses }, IpDaddr) => addresses.iter().any(|one| one.is_ipv4()),
            (Action::Lb { addresses }, Ip6Daddr) => addresses.iter().any(|one| one.is_ipv6()),
            _ => false,
        }
    };
    one_way(a, b) || one_way(b, a)
}

/// Checks that a match is a condition on a property of connections.
pub(super) fn check_filter(one: &Match) -> Result<(), Diagnostic> {
    use FieldId::*;
    let MatchExpr::Field { field, arg } = &one.what else { return Ok(()) };
    let def = field.def();
    let has = match field {
        In | Out | NetProto | IpProto | Ip6Next => true,
        IpSaddr | IpDaddr | Ip6Saddr | Ip6Daddr | TcpSport | TcpDport | UdpSport | UdpDport => true,
        _ => {
            let about_bits = matches!(def.kind, ValueKind::Flag | ValueKind::Shorthand(_));
            arg.is_none() && def.in_header() && !about_bits
        }
    };
    if has {
        return Ok(());
    }
    let message = format!("a connection has no `{field}`: it differs between the packets of a connection");
    let help = "connections have interfaces (in, out), net-proto, ip-proto, ip6-next, addresses and ports";
    Err(Diagnostic::new(one.span.span(), message).with_help(help))
}
