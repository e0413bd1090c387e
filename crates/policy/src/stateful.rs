//! What a stateful rule gives to the sessions that it opens.
//!
//! Of a stateful rule's targets, those that are undone on the way back are *bindings*: `map`, `shuffle`, `lb`, `nat`, and
//! `mod` of an address or a port. They say what a session gets when it is opened, and so does `chain`; everything else is
//! edited packet by packet, as in stateless rules.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use mmb_lang::{Action, FieldId, Rule, Target};

use crate::number_set::NumberSet;

/// What is particular to a stateful rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatefulRule {
    /// What sessions get that this rule opens, in the order of its targets. A field comes once.
    pub bindings: Box<[Binding]>,
    /// The service chain that they go through.
    pub chain: Option<Box<str>>,
}

/// An end of a session, as its first packet says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Where the first packet comes from.
    Source,
    /// Where it goes.
    Destination,
}

/// Something that sessions are given, to be undone on the way back. Numbers are as on the wire read as big-endian
/// numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Binding {
    /// An address.
    Address {
        /// Which one.
        side: Side,
        /// Of IPv4 packets, else of IPv6 packets.
        ip4: bool,
        /// The addresses: [`Ipv4Addr::to_bits`], [`Ipv6Addr::to_bits`].
        choice: Choice,
    },
    /// A port.
    Port {
        /// Of packets of this protocol: 6, TCP, or 17, UDP.
        proto: u8,
        /// Which one.
        side: Side,
        /// The ports.
        choice: Choice,
    },
    /// The first packet's IPv4 identification; those of the same direction move by as much.
    IpId(Choice),
    /// The flow label of IPv6 packets.
    FlowLabel(Choice),
    /// The first sequence number of the side that opens a TCP connection.
    SeqNum(Choice),
    /// The first sequence number of the side that answers, as the side that opens sees it.
    AckNum(Choice),
    /// The destination address: one of these, of the packet's family. Where that has none, nothing happens.
    Balance {
        /// For IPv4 packets.
        ip4: Box<[Ipv4Addr]>,
        /// For IPv6 packets.
        ip6: Box<[Ipv6Addr]>,
    },
    /// Source address and port (ICMP: identifier) of IPv4 packets, out of a pool.
    Nat {
        /// The pool's name.
        pool: Box<str>,
    },
}

/// One of these values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// What is chosen from.
    pub values: NumberSet,
    /// At random (`shuffle`); else so that it follows from the packet (`map`, `mod`).
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

/// Whether a stateful rule's target says something about a session when it is opened, and nothing about its packets.
pub(crate) fn is_given(target: &Target) -> bool {
    binds(target) || matches!(target.action, Action::Chain { .. })
}

/// Whether a field is part of what a session is known by.
fn is_end(field: FieldId) -> bool {
    use FieldId::*;
    matches!(field, IpSaddr | IpDaddr | Ip6Saddr | Ip6Daddr | TcpSport | TcpDport | UdpSport | UdpDport)
}

impl StatefulRule {
    /// The bindings of a stateful rule that [`mmb_lang::check`] let pass.
    pub(crate) fn of(rule: &Rule) -> StatefulRule {
        let chain = rule.targets.iter().find_map(|target| match &target.action {
            Action::Chain { name } => Some(name.text.clone()),
            _ => None,
        });
        StatefulRule { bindings: rule.targets.iter().filter_map(binding).collect(), chain }
    }
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
