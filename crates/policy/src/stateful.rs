//! Bindings of stateful rules.
//!
//! The targets of a stateful rule that the reply direction reverses are *bindings*: `map`, `shuffle`, `lb`,
//! `nat`, and `mod` of an address or a port. They, `chain` and `broker` apply when a session opens. All other
//! targets edit packet by packet, as in stateless rules.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use mmb_lang::{Action, Cond, FieldId, Match, MatchExpr, Rule, Target, Value, ValueItem};

use crate::number_set::NumberSet;

/// The session part of a stateful rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatefulRule {
    /// Bindings of sessions that this rule opens, in the order of its targets; one per field.
    pub bindings: Box<[Binding]>,
    /// Service chain of the sessions.
    pub chain: Option<Box<str>>,
    /// The port that leads to the broker of the sessions.
    pub broker: Option<u16>,
    /// Virtual addresses: single destination addresses that the rule matches, and whose sessions get another
    /// destination, a broker or a chain. They may be the machine's own.
    pub virtual_addresses: Box<[IpAddr]>,
}

/// An end of a session, from the point of view of its first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The sender of the first packet.
    Source,
    /// The receiver of the first packet.
    Destination,
}

/// A translation of a session's packets, which the reply direction reverses. Numbers are in host byte
/// order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Binding {
    /// An address.
    Address {
        /// Source or destination.
        side: Side,
        /// IPv4 packets, otherwise IPv6 packets.
        ip4: bool,
        /// The addresses: [`Ipv4Addr::to_bits`], [`Ipv6Addr::to_bits`].
        choice: Choice,
    },
    /// A port.
    Port {
        /// Protocol of the packets: 6 (TCP) or 17 (UDP).
        proto: u8,
        /// Source or destination.
        side: Side,
        /// The ports.
        choice: Choice,
    },
    /// IPv4 identification of the first packet; later ones of the direction change by the same difference.
    IpId(Choice),
    /// The flow label of IPv6 packets.
    FlowLabel(Choice),
    /// Initial sequence number of the side that opens a TCP connection.
    SeqNum(Choice),
    /// Initial sequence number of the answering side, as the opening side sees it.
    AckNum(Choice),
    /// Destination address: one of these, of the packet's address family; no effect if the family has none.
    Balance {
        /// For IPv4 packets.
        ip4: Box<[Ipv4Addr]>,
        /// For IPv6 packets.
        ip6: Box<[Ipv6Addr]>,
    },
    /// Source address and port (ICMP: identifier) of IPv4 packets, from a pool.
    Nat {
        /// The pool's name.
        pool: Box<str>,
    },
}

/// A choice among numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The numbers to choose from.
    pub values: NumberSet,
    /// Random (`shuffle`), or determined by the packet (`map`, `mod`).
    pub random: bool,
}

/// Whether a stateful rule's target is a binding.
pub(crate) fn binds(target: &Target) -> bool {
    match target.action {
        Action::Map { .. } | Action::Shuffle { .. } | Action::Lb { .. } | Action::Nat { .. } => true,
        Action::Mod { field, .. } => is_end(field),
        _ => false,
    }
}

/// Whether a stateful rule's target applies only when a session opens.
pub(crate) fn is_open_target(target: &Target) -> bool {
    binds(target) || matches!(target.action, Action::Chain { .. } | Action::Broker { .. })
}

/// Whether a field is part of the session key.
fn is_end(field: FieldId) -> bool {
    use FieldId::*;
    matches!(field, IpSaddr | IpDaddr | Ip6Saddr | Ip6Daddr | TcpSport | TcpDport | UdpSport | UdpDport)
}

impl StatefulRule {
    /// What a stateful rule that [`mmb_lang::check`] accepted does when a session opens. `broker`: see
    /// [`StatefulRule::broker`].
    pub(crate) fn of(rule: &Rule, broker: Option<u16>) -> StatefulRule {
        let chain = rule.targets.iter().find_map(|target| match &target.action {
            Action::Chain { name } => Some(name.text.clone()),
            _ => None,
        });
        let bindings: Box<[Binding]> = rule.targets.iter().filter_map(binding).collect();
        let gives_away = broker.is_some() || chain.is_some() || bindings.iter().any(Binding::is_destination);
        let virtual_addresses =
            if gives_away { rule.matches.iter().flat_map(named_addresses).collect() } else { Box::default() };
        StatefulRule { bindings, chain, broker, virtual_addresses }
    }

    /// Whether sessions get another destination, or a broker, whatever functions of a chain do.
    pub fn gives_destination(&self) -> bool {
        self.broker.is_some() || self.bindings.iter().any(Binding::is_destination)
    }
}

impl Binding {
    /// Whether it gives sessions another destination address.
    fn is_destination(&self) -> bool {
        matches!(self, Binding::Address { side: Side::Destination, .. } | Binding::Balance { .. })
    }
}

/// The single addresses that a match on the destination names.
fn named_addresses(one: &Match) -> impl Iterator<Item = IpAddr> + '_ {
    let values = match &one.what {
        MatchExpr::Field { field: FieldId::IpDaddr | FieldId::Ip6Daddr, arg: Some(arg) }
            if arg.cond == Cond::Eq && !one.negated =>
        {
            Some(arg.values.iter())
        }
        _ => None,
    };
    values.into_iter().flatten().filter_map(|item| match item {
        ValueItem::Single(Value::Prefix { addr: addr @ IpAddr::V4(_), len: 32 }) => Some(*addr),
        ValueItem::Single(Value::Prefix { addr: addr @ IpAddr::V6(_), len: 128 }) => Some(*addr),
        _ => None,
    })
}

fn binding(target: &Target) -> Option<Binding> {
    match &target.action {
        Action::Mod { field, value } if is_end(*field) => {
            bound(*field, Choice { values: NumberSet::of(*field, &value.clone().into())?, random: false })
        }
        Action::Map { field, values } => {
            bound(*field, Choice { values: NumberSet::of(*field, values)?, random: false })
        }
        Action::Shuffle { field, values } => {
            let values = match values {
                Some(values) => NumberSet::of(*field, values)?,
                None => NumberSet::all(*field),
            };
            bound(*field, Choice { values, random: true })
        }
        Action::Lb { addresses } => {
            let ip4 = addresses.iter().filter_map(|address| match address {
                IpAddr::V4(address) => Some(*address),
                IpAddr::V6(_) => None,
            });
            let ip6 = addresses.iter().filter_map(|address| match address {
                IpAddr::V6(address) => Some(*address),
                IpAddr::V4(_) => None,
            });
            Some(Binding::Balance { ip4: ip4.collect(), ip6: ip6.collect() })
        }
        Action::Nat { pool } => Some(Binding::Nat { pool: pool.text.clone() }),
        _ => None,
    }
}

fn bound(field: FieldId, choice: Choice) -> Option<Binding> {
    use FieldId::*;
    let side = match field {
        IpSaddr | Ip6Saddr | TcpSport | UdpSport => Side::Source,
        _ => Side::Destination,
    };
    Some(match field {
        IpSaddr | IpDaddr => Binding::Address { side, ip4: true, choice },
        Ip6Saddr | Ip6Daddr => Binding::Address { side, ip4: false, choice },
        TcpSport | TcpDport => Binding::Port { proto: 6, side, choice },
        UdpSport | UdpDport => Binding::Port { proto: 17, side, choice },
        IpId => Binding::IpId(choice),
        Ip6FlowLabel => Binding::FlowLabel(choice),
        TcpSeqNum => Binding::SeqNum(choice),
        TcpAckNum => Binding::AckNum(choice),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use mmb_lang::Command;

    use super::*;

    fn virtual_addresses(line: &str) -> Vec<String> {
        let Ok(Some(Command::Add(rule))) = mmb_lang::parse_line(line) else { panic!("{line}") };
        StatefulRule::of(&rule, None).virtual_addresses.iter().map(IpAddr::to_string).collect()
    }

    /// Single addresses are named; subnets, ranges and what is excluded are not.
    #[test]
    fn rules_name_virtual_addresses() {
        for (line, expected) in [
            ("add-stateful ip-daddr 192.0.2.1 tcp-dport 80 lb 10.0.0.1", &["192.0.2.1"][..]),
            ("add-stateful ip-daddr {192.0.2.1,192.0.2.3} lb 10.0.0.1", &["192.0.2.1", "192.0.2.3"]),
            ("add-stateful ip6-daddr 2001:db8::1 map ip6-daddr 2001:db8::2", &["2001:db8::1"]),
            ("add-stateful ip-daddr 192.0.2.1 chain web", &["192.0.2.1"]),
            ("add-stateful ip-daddr 192.0.2.0/24 lb 10.0.0.1", &[]),
            ("add-stateful ip-daddr 192.0.2.1-192.0.2.9 lb 10.0.0.1", &[]),
            ("add-stateful ip-daddr != 192.0.2.1 lb 10.0.0.1", &[]),
            ("add-stateful ! ip-daddr 192.0.2.1 lb 10.0.0.1", &[]),
            ("add-stateful ip-saddr 192.0.2.1 lb 10.0.0.1", &[]),
            ("add-stateful ip-daddr 192.0.2.1 accept", &[]),
            ("add-stateful ip-daddr 192.0.2.1 map ip-saddr 192.0.2.9", &[]),
            ("add-stateful ip-daddr 192.0.2.1 nat home", &[]),
        ] {
            assert_eq!(virtual_addresses(line), expected, "{line}");
        }
    }
}
