//! Generated rules for sessions. Every flow has a rule of its own while there are enough rules. One more rule
//! opens the sessions of all other flows, and translates them in the cases of NAT.

use std::net::{Ipv4Addr, Ipv6Addr};

use mmb_packet::{Kind as Headers, Meta, parse};
use mmb_simulate::bench::{Generated, Generator};

use super::cases::{RuleGenerator, RuleRandom};
use crate::cli::Case;

/// Flows per external address. Each needs a port, and half of the ports stay free.
const FLOWS_PER_ADDRESS: u32 = 32_768;
/// Maximum number of addresses of the pool. Their ports exceed the sessions of any table.
const MAX_ADDRESSES: u32 = 4_096;

/// What a case measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Flows have rules of their own.
    pub exact: bool,
    /// Sources are translated.
    pub nat: bool,
    /// Every packet opens a session.
    pub opens: bool,
}

impl Kind {
    /// The kind of a case of sessions; none for other cases.
    pub fn of(case: Case) -> Option<Kind> {
        let (exact, nat, opens) = match case {
            Case::Stateful => (true, false, false),
            Case::Nat => (false, true, false),
            Case::StatefulNat => (true, true, false),
            Case::NewSessions => (true, false, true),
            Case::NewNat => (false, true, true),
            Case::Exact
            | Case::Mixed
            | Case::Masks
            | Case::FieldMasks
            | Case::Options
            | Case::Ranges
            | Case::Sources
            | Case::Set
            | Case::Classbench => {
                return None;
            }
        };
        Some(Kind { exact, nat, opens })
    }
}

/// The configuration: `rules` rules for `traffic`, at least one.
pub fn lines(kind: Kind, rules: usize, traffic: &Generated, seed: u64) -> Vec<String> {
    let rules = rules.max(1);
    let mut lines = Vec::with_capacity(rules + 1);
    let all = if kind.nat {
        lines.push(pool(traffic.flows));
        "add-stateful ip-saddr 10.0.0.0/8 nat bench"
    } else if traffic.ip6 {
        "add-stateful ip6-saddr 2001:2::/32 accept"
    } else {
        "add-stateful ip-saddr 10.0.0.0/8 accept"
    };
    if kind.nat || kind.opens || traffic.flows as usize > rules {
        lines.push(all.to_owned());
    }
    if kind.exact {
        let generator = Generator::new(traffic, 0);
        let own =
            (0..if kind.opens { 0 } else { traffic.flows }).filter_map(|flow| exact(&generator.flow(flow)));
        lines.extend(own.take(rules + usize::from(kind.nat) - lines.len()));
    }
    let mut random = RuleRandom::new(seed, traffic.ip6, traffic.destinations);
    while lines.len() - usize::from(kind.nat) < rules {
        lines.push(RuleGenerator::exact(&mut random, "add-stateful", "accept"));
    }
    lines
}

/// The pool `bench`, with enough addresses for the flows.
pub fn pool(flows: u32) -> String {
    let last = 0xcb00_0000 | (flows / FLOWS_PER_ADDRESS).min(MAX_ADDRESSES - 1);
    format!("nat pool add bench 203.0.0.0-{}", Ipv4Addr::from(last))
}

/// A rule for the flow of a frame.
fn exact(frame: &[u8]) -> Option<String> {
    let mut meta = Meta::default();
    parse(frame, frame.len(), &mut meta).ok()?;
    let port = |at: usize| frame.get(at..at + 2).map(|p| u16::from_be_bytes([p[0], p[1]]));
    let (l3, l4) = (usize::from(meta.l3_off), usize::from(meta.l4_off));
    let proto = if meta.kind.l4() == Headers::TCP { "tcp" } else { "udp" };
    let (sport, dport) = (port(l4)?, port(l4 + 2)?);
    let addresses = if meta.kind.l3() == Headers::IP6 {
        let [source, destination]: [[u8; 16]; 2] = *frame.get(l3 + 8..)?.as_chunks().0.first_chunk()?;
        let (source, destination) = (Ipv6Addr::from(source), Ipv6Addr::from(destination));
        format!("ip6-saddr {source} ip6-daddr {destination}")
    } else {
        let [source, destination]: [[u8; 4]; 2] = *frame.get(l3 + 12..)?.as_chunks().0.first_chunk()?;
        let (source, destination) = (Ipv4Addr::from(source), Ipv4Addr::from(destination));
        format!("ip-saddr {source} ip-daddr {destination} ip-proto {proto}")
    };
    Some(format!("add-stateful {addresses} {proto}-sport {sport} {proto}-dport {dport} accept"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_lines_is_exact_and_all_parse() {
        let traffic = |ip6| Generated { flows: 10, ip6, ..Generated::default() };
        let cases = [Case::Stateful, Case::Nat, Case::StatefulNat, Case::NewSessions, Case::NewNat];
        let cases = cases.map(|case| (case, false)).into_iter();
        for (case, ip6) in cases.chain([(Case::Stateful, true), (Case::NewSessions, true)]) {
            let (kind, traffic) = (Kind::of(case).unwrap(), traffic(ip6));
            for rules in [1, 5, 11, 50] {
                let lines = lines(kind, rules, &traffic, 1);
                assert_eq!(lines.len(), rules + usize::from(kind.nat), "{case:?}");
                for line in &lines {
                    assert!(matches!(mmb_lang::parse_line(line), Ok(Some(_))), "{line}");
                }
            }
        }
    }
}
