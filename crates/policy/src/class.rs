//! How often a rule has to be asked about the packets of one session.

use mmb_lang::{Arg, Cond, FieldId, Match, MatchOn, Rule, Value, ValueItem, ValueKind};

/// What a rule's matches look at, as far as sessions are concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Class {
    /// Only what all packets of one direction of a session have in common (fragments behind the first and ICMP errors
    /// apart): addresses, ports, protocols, interfaces, which headers there are. It matches all of them or none.
    #[default]
    Constant,
    /// A TCP flag among SYN, FIN and RST has to be set: what it matches opens or closes connections.
    Control,
    /// Anything else: it may match one packet of a session and not the next.
    PerPacket,
}

/// The class of a rule that [`mmb_lang::check`] let pass.
pub(crate) fn class(rule: &Rule) -> Class {
    if rule.matches.iter().any(is_control) {
        Class::Control
    } else if rule.matches.iter().all(is_constant) {
        Class::Constant
    } else {
        Class::PerPacket
    }
}

fn is_constant(one: &Match) -> bool {
    use FieldId::*;
    let MatchOn::Field { field, arg } = &one.what else { return true };
    match field {
        In | Out | NetProto | IpVer | Ip6Ver | IpProto => true,
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
    let MatchOn::Field { field, arg } = &one.what else { return false };
    match (field, arg) {
        _ if one.negated => false,
        (FieldId::TcpSyn | FieldId::TcpFin | FieldId::TcpRst, None) => true,
        (FieldId::TcpSyn | FieldId::TcpFin | FieldId::TcpRst, Some(Arg { cond, values, .. })) => {
            matches!(
                (cond, values.single()),
                (Cond::Eq, Some(Value::Int(1))) | (Cond::Ne, Some(Value::Int(0)))
            )
        }
        (FieldId::TcpFlags, Some(Arg { cond: Cond::Eq, values, .. })) => values
            .iter()
            .all(|item| matches!(item, ValueItem::Single(Value::Int(flags)) if flags & FIN_SYN_RST != 0)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmb_lang::{Command, parse_line};

    fn class_of(matches: &str) -> Class {
        let line = format!("add {matches} drop");
        let Ok(Some(Command::Add(rule))) = parse_line(&line) else { panic!("{line}") };
        mmb_lang::check(&rule).unwrap_or_else(|error| panic!("{}", error.render(&line)));
        class(&rule)
    }

    #[test]
    fn what_every_packet_of_a_session_has() {
        for matches in [
            "all",
            "in lan ! out wan",
            "net-proto ip6 tcp-dport {80,443}",
            "ip-proto != udp ! ip-saddr 10.0.0.0/8 ip-daddr 10.0.0.1-10.0.0.9",
            "ip6-saddr 2001:db8::/32 udp-sport > 1023",
            "ip-ttl",
            "! ip6-hop-limit",
            "tcp-win",
            "icmp-type",
            "ip-ver 4",
        ] {
            assert_eq!(class_of(matches), Class::Constant, "{matches}");
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
        ] {
            assert_eq!(class_of(matches), Class::Control, "{matches}");
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
        ] {
            assert_eq!(class_of(matches), Class::PerPacket, "{matches}");
        }
    }
}
