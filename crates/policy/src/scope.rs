//! How long a rule's match result holds within a session.

use mmb_lang::{Comparison, Cond, FieldId, Match, MatchExpr, Rule, Value, ValueItem, ValueKind};

use crate::stateful::is_open_target;

/// How long a rule's match result holds within a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RuleScope {
    /// For all packets of one direction: the rule matches only on addresses, ports, protocols, the input
    /// interface and the presence of headers. Later fragments and ICMP errors are exceptions. Rules whose
    /// targets are all bindings or chains are in this scope, too, because they only apply when a session
    /// opens.
    #[default]
    Session,
    /// For segments that open or close TCP connections: the rule requires one of SYN, FIN and RST.
    TcpControl,
    /// For one packet. Matches on the output interface are in this scope, because routes change while
    /// sessions live.
    Packet,
}

/// The scope of a rule that [`mmb_lang::check`] accepted.
pub(crate) fn scope(rule: &Rule) -> RuleScope {
    if rule.matches.iter().any(is_control) {
        RuleScope::TcpControl
    } else if rule.matches.iter().all(|one| is_constant(one) || is_out(one) && has_only_open_targets(rule)) {
        RuleScope::Session
    } else {
        RuleScope::Packet
    }
}

/// Whether a rule matches on the output interface.
pub(crate) fn reads_out(rule: &Rule) -> bool {
    rule.matches.iter().any(is_out)
}

pub(crate) fn is_out(one: &Match) -> bool {
    matches!(one.what, MatchExpr::Field { field: FieldId::Out, .. })
}

/// Whether all targets of a rule apply only when a session opens.
fn has_only_open_targets(rule: &Rule) -> bool {
    rule.is_stateful() && rule.targets.iter().all(is_open_target)
}

pub(crate) fn is_constant(one: &Match) -> bool {
    use FieldId::*;
    let MatchExpr::Field { field, arg } = &one.what else { return true };
    match field {
        In | NetProto | IpVer | Ip6Ver | IpProto => true,
        IpSaddr | IpDaddr | Ip6Saddr | Ip6Daddr | TcpSport | TcpDport | UdpSport | UdpDport => true,
        _ => {
            let def = field.def();
            let about_bits = matches!(def.kind, ValueKind::Flag | ValueKind::Shorthand(_));
            arg.is_none() && def.in_header() && !about_bits
        }
    }
}

/// Whether a match requires SYN, FIN or RST.
fn is_control(one: &Match) -> bool {
    const FIN_SYN_RST: u64 = 0b111;
    let MatchExpr::Field { field, arg } = &one.what else { return false };
    match (field, arg) {
        _ if one.negated => false,
        (FieldId::TcpSyn | FieldId::TcpFin | FieldId::TcpRst, None) => true,
        (FieldId::TcpSyn | FieldId::TcpFin | FieldId::TcpRst, Some(Comparison { cond, values, .. })) => {
            matches!(
                (cond, values.single()),
                (Cond::Eq, Some(Value::Int(1))) | (Cond::Ne, Some(Value::Int(0)))
            )
        }
        (FieldId::TcpFlags, Some(Comparison { cond: Cond::Eq, values, .. })) => values
            .iter()
            .all(|item| matches!(item, ValueItem::Single(Value::Int(flags)) if flags & FIN_SYN_RST != 0)),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
