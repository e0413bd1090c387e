//! What prevents offloading the flows of a rule.

use mmb_lang::{Action, FieldId, Match, MatchExpr, Rule};

use crate::scope::{is_constant, is_out};

/// The part of a rule that distinguishes packets of one flow, or changes more than addresses and ports.
pub(crate) fn rule_obstacle(rule: &Rule) -> Option<String> {
    let varies = |one: &&Match| !is_constant(one) && !is_out(one);
    // A rule that opens sessions logs their first packets only, which are never offloaded.
    let opens = rule.is_stateful() && !rule.targets.iter().any(|target| is_drop(&target.action));
    let is_log = |action: &Action| matches!(action, Action::Log { .. });
    let more = |action: &&Action| !(is_plain(action) || opens && is_log(action));
    let matched = rule.matches.iter().find(varies).map(field_name);
    matched.or_else(|| rule.targets.iter().map(|target| &target.action).find(more).map(target_name))
}

fn is_drop(action: &Action) -> bool {
    matches!(action, Action::Drop { .. } | Action::Block | Action::Reject)
}

/// Whether a target treats all packets of a flow alike and only rewrites addresses, ports or the output.
fn is_plain(action: &Action) -> bool {
    match action {
        Action::Accept | Action::Block | Action::Nat { .. } | Action::Lb { .. } => true,
        // Only sessions have chains and brokers, and those that do are not offloaded.
        Action::Chain { .. } | Action::Broker { .. } => true,
        Action::Drop { ten_thousandths } => *ten_thousandths >= 10_000,
        Action::Mod { field, .. } => *field == FieldId::Out || is_end(*field),
        Action::Map { field, .. } | Action::Shuffle { field, .. } => is_end(*field),
        Action::Add { .. } | Action::Strip { .. } | Action::StripAll => false,
        // The kernel does not answer.
        Action::Reject => false,
        // The kernel does not log.
        Action::Log { .. } => false,
    }
}

/// Whether a field is an address or a port.
fn is_end(field: FieldId) -> bool {
    use FieldId::*;
    matches!(field, IpSaddr | IpDaddr | Ip6Saddr | Ip6Daddr | TcpSport | TcpDport | UdpSport | UdpDport)
}

fn field_name(one: &Match) -> String {
    match &one.what {
        MatchExpr::All => "all".to_owned(),
        MatchExpr::Field { field, .. } => field.def().name.to_owned(),
    }
}

fn target_name(action: &Action) -> String {
    match action {
        Action::Mod { field, .. } => format!("mod {}", field.def().name),
        Action::Map { field, .. } => format!("map {}", field.def().name),
        Action::Shuffle { field, .. } => format!("shuffle {}", field.def().name),
        other => other.to_string(),
    }
}
