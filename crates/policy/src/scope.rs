//! How often a rule has to be asked about the packets of one session.

use mmb_lang::{Comparison, Cond, FieldId, Match, MatchExpr, Rule, RuleKind, Value, ValueItem, ValueKind};

use crate::stateful::is_given;

/// What a rule's matches look at, as far as sessions are concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RuleScope {
    /// Only what all packets of one direction of a session have in common (fragments behind the first and ICMP errors
    /// apart): addresses, ports, protocols, the interface that they come in by, which headers there are. It matches all
    /// of them or none. Or it has nothing to say to a session that is open: all its targets are bindings or chains.
    #[default]
    Session,
    /// A TCP flag among SYN, FIN and RST has to be set: what it matches opens or closes connections.
    TcpControl,
    /// Anything else: it may match one packet of a session and not the next. The interface that packets leave by is of
    /// this kind, for routes change while sessions live.
    Packet,
}

/// The class of a rule that [`mmb_lang::check`] let pass.
pub(crate) fn scope(rule: &Rule) -> RuleScope {
    if rule.matches.iter().any(is_control) {
        RuleScope::TcpControl
    } else if rule.matches.iter().all(|one| is_constant(one) || is_out(one) && only_gives(rule)) {
        RuleScope::Session
    } else {
        RuleScope::Packet
    }
}

/// Whether a rule asks by which interface a packet leaves.
pub(crate) fn reads_out(rule: &Rule) -> bool {
    rule.matches.iter().any(is_out)
}

pub(crate) fn is_out(one: &Match) -> bool {
    matches!(one.what, MatchExpr::Field { field: FieldId::Out, .. })
}

/// Whether all that a rule does is to say what sessions get when they are opened.
fn only_gives(rule: &Rule) -> bool {
    rule.kind == RuleKind::Stateful && rule.targets.iter().all(is_given)
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

/// Whether only packets with SYN, FIN or RST can match.
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
mod tests {
    use super::*;
    use mmb_lang::{Command, parse_line};

    fn scope_of(matches: &str) -> RuleScope {
        scope_of_rule(&format!("add {matches} drop"))
    }

    fn scope_of_rule(line: &str) -> RuleScope {
        let Ok(Some(Command::Add(rule))) = parse_line(line) else { panic!("{line}") };
        mmb_lang::check(&rule).unwrap_or_else(|error| panic!("{}", error.render(line)));
        scope(&rule)
    }

    #[test]
    fn what_every_packet_of_a_session_has() {
        for matches in [
            "all",
            "in lan ! in wan",
            "net-proto ip6 tcp-dport {80,443}",
            "ip-proto != udp ! ip-saddr 10.0.0.0/8 ip-daddr 10.0.0.1-10.0.0.9",
            "ip6-saddr 2001:db8::/32 udp-sport > 1023",
            "ip-ttl",
            "! ip6-hop-limit",
            "tcp-win",
            "icmp-type",
            "ip-ver 4",
        ] {
            assert_eq!(scope_of(matches), RuleScope::Session, "{matches}");
        }
    }

    #[test]
    fn what_opens_and_closes() {
        for matches in [
            "tcp-syn",
            "tcp-syn 1 tcp-dport 80",
            "tcp-rst != 0 tcp-seq-num 7",
            "tcp-fin tcp-opt-mss",
            "tcp-flags 2",
            "tcp-flags {2,18,20}",
            "tcp-syn out wan",
        ] {
            assert_eq!(scope_of(matches), RuleScope::TcpControl, "{matches}");
        }
    }

    /// What a session gets when it is opened stays as it is, whatever way its packets go later.
    #[test]
    fn what_only_opens_need_not_be_asked_again() {
        for (line, class) in [
            ("add-stateful out wan nat office", RuleScope::Session),
            ("add-stateful ! out lan shuffle tcp-sport mod ip-saddr 192.0.2.1", RuleScope::Session),
            ("add-stateful out wan tcp-syn nat office", RuleScope::TcpControl),
            ("add-stateful out wan ip-ttl 1 nat office", RuleScope::Packet),
            ("add-stateful out wan nat office accept", RuleScope::Packet),
            ("add-stateful out wan nat office mod ip-ttl 9", RuleScope::Packet),
            ("add-stateful out wan accept", RuleScope::Packet),
            ("add out wan mod ip-saddr 192.0.2.1", RuleScope::Packet),
        ] {
            assert_eq!(scope_of_rule(line), class, "{line}");
        }
    }

    #[test]
    fn what_differs_from_packet_to_packet() {
        for matches in [
            "! tcp-syn",
            "tcp-syn 0",
            "tcp-ack",
            "tcp-flags 16",
            "tcp-flags {2,16}",
            "tcp-flags != 16",
            "! tcp-flags 16",
            "tcp-flags 2-18",
            "ip-ttl 1 ip-saddr 10.0.0.1",
            "ip-ce",
            "ip-df",
            "tcp-opt-mss",
            "! tcp-opt-mss",
            "ip6-eh",
            "ip6-next tcp",
            "tcp-payload",
            "icmp-type 8",
            "ip-id 7",
            "in lan out wan",
            "! out {lan,wan} tcp-dport 80",
            "out != lan ip-ttl 1",
        ] {
            assert_eq!(scope_of(matches), RuleScope::Packet, "{matches}");
        }
    }
}
