//! Generated rules, as lines of the language.
//!
//! Their values have the ranges of the generated traffic, so that rules and packets have many values in
//! common: 10.0.0.0/8 to 198.18.0.0/15 or to the routes, 2001:2::/49 to 2001:2:0:8000::/49 with IPv6, and all
//! ports. Lengths of prefixes are those of IPv4; `prefix6` makes longer ones of them for IPv6.

use std::net::{Ipv4Addr, Ipv6Addr};

use mmb_simulate::bench::Prefixes;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, RngCore, SeedableRng};

use super::field_masks::FieldMasks;
use crate::cli::Case;

/// Random values for rules.
pub struct RuleRandom {
    rng: SmallRng,
    /// Addresses are of IPv6.
    ip6: bool,
    destinations: Option<Prefixes>,
}

impl RuleRandom {
    /// Random values from `seed`. Destinations are in the given prefixes, or in those of the traffic.
    pub fn new(seed: u64, ip6: bool, destinations: Option<Prefixes>) -> RuleRandom {
        RuleRandom { rng: SmallRng::seed_from_u64(seed), ip6, destinations }
    }

    /// A number below `n`, which is not 0.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.rng.random_range(0..n)
    }

    /// A number from `low` to `high`, both included.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        self.rng.random_range(low..=high)
    }

    /// A match of the sources in a prefix of this length.
    pub(super) fn source(&mut self, length: u8) -> String {
        if self.ip6 {
            let host = u128::from(self.rng.next_u64() >> 1);
            return format!("ip6-saddr {}", prefix6(NET6 | host, length, 8, 2));
        }
        format!("ip-saddr {}", prefix(0x0a00_0000 | self.rng.next_u32() >> 8, length))
    }

    /// A match of the destinations in a prefix of this length.
    pub(super) fn destination(&mut self, length: u8) -> String {
        if self.ip6 {
            let host = self.rng.next_u64() >> 1;
            let own = NET6 | 1 << 79 | u128::from(host);
            let address = self.destinations.map_or(own, |prefixes| prefixes.address(host));
            return format!("ip6-daddr {}", prefix6(address, length, 15, 3));
        }
        let random = self.rng.next_u64();
        let own = 0xc612_0000 | random as u32 >> 15;
        let address = self.destinations.map_or(own, |prefixes| prefixes.address(random) as u32);
        format!("ip-daddr {}", prefix(address, length))
    }

    /// The name of a field of the IPv4 header, or of its equivalent in IPv6, which has as many bits or more.
    pub(super) fn header_field(&self, field: &'static str) -> &'static str {
        let names = HEADER_FIELDS.iter().find(|(ip4, _)| self.ip6 && *ip4 == field);
        names.map_or(field, |(_, ip6)| ip6)
    }

    /// A match of the transport protocol.
    pub(super) fn protocol(&self, proto: &str) -> String {
        format!("{} {proto}", self.header_field("ip-proto"))
    }

    pub(super) fn pick<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len() as u64) as usize]
    }

    /// A random range `low-high` in `from..=to`.
    fn range(&mut self, from: u64, to: u64) -> String {
        let (a, b) = (self.between(from, to), self.between(from, to));
        format!("{}-{}", a.min(b), a.max(b))
    }
}

/// The network of the IPv6 traffic.
const NET6: u128 = 0x2001_0002 << 96;

/// Fields of the IPv4 header that rules compare, and their equivalents in IPv6.
const HEADER_FIELDS: [(&str, &str); 5] = [
    ("ip-proto", "ip6-next"),
    ("ip-len", "ip6-len"),
    ("ip-id", "ip6-flow-label"),
    ("ip-ttl", "ip6-hop-limit"),
    ("ip-dscp", "ip6-traffic-class"),
];

/// Generates the rules of a case.
pub struct RuleGenerator {
    kind: Kind,
    random: RuleRandom,
}

enum Kind {
    Exact,
    Mixed,
    /// The masks of the rules, in order.
    Masks(Vec<Mask>),
    FieldMasks(FieldMasks),
    Options,
    Ranges,
    Sources,
}

/// Prefix lengths of source and destination, and whether the ports are compared.
#[derive(Clone, Copy)]
struct Mask {
    source: u8,
    destination: u8,
    sport: bool,
    dport: bool,
}

/// Prefix lengths of masks and of mixed rules. Shorter prefixes would match too much of the traffic.
const LENGTHS: std::ops::RangeInclusive<u8> = 16..=32;

/// Fields of the cases `ranges` and `field-masks`: name and largest value.
pub(super) const TCP: [(&str, u64); 8] = [
    ("tcp-sport", 0xffff),
    ("tcp-dport", 0xffff),
    ("tcp-win", 0xffff),
    ("tcp-seq-num", 0xffff_ffff),
    ("ip-len", 0xffff),
    ("ip-id", 0xffff),
    ("ip-ttl", 0xff),
    ("ip-dscp", 0x3f),
];
pub(super) const UDP: [(&str, u64); 7] = [
    ("udp-sport", 0xffff),
    ("udp-dport", 0xffff),
    ("udp-len", 0xffff),
    ("ip-len", 0xffff),
    ("ip-id", 0xffff),
    ("ip-ttl", 0xff),
    ("ip-dscp", 0x3f),
];

impl RuleGenerator {
    /// The generator of a case; none for cases of sessions, and for the case whose rules are in a file.
    pub fn new(case: Case, mut random: RuleRandom) -> Option<RuleGenerator> {
        let kind = match case {
            Case::Exact => Kind::Exact,
            Case::Mixed => Kind::Mixed,
            Case::Masks => Kind::Masks(shuffled_masks(&mut random)),
            Case::FieldMasks => Kind::FieldMasks(FieldMasks::default()),
            Case::Options => Kind::Options,
            Case::Ranges => Kind::Ranges,
            Case::Sources | Case::Set => Kind::Sources,
            Case::Classbench
            | Case::Stateful
            | Case::Nat
            | Case::StatefulNat
            | Case::NewSessions
            | Case::NewNat => return None,
        };
        Some(RuleGenerator { kind, random })
    }

    /// A rule with this keyword and target for one random flow.
    pub fn exact(random: &mut RuleRandom, keyword: &str, target: &str) -> String {
        let mask = Mask { source: 32, destination: 32, sport: true, dport: true };
        masked(random, mask, keyword, target)
    }

    /// Maximum number of rules of the case.
    pub fn max_rules(&self) -> usize {
        if let Kind::Masks(masks) = &self.kind { masks.len() } else { usize::MAX }
    }

    /// A rule for a position (from 0, below [`RuleGenerator::max_rules`]). Each call returns a new one.
    pub fn line(&mut self, position: usize) -> String {
        let random = &mut self.random;
        match &mut self.kind {
            Kind::Exact => RuleGenerator::exact(random, "add", "drop"),
            Kind::Mixed => mixed(random),
            Kind::Masks(masks) => masked(random, masks[position % masks.len()], "add", "drop"),
            Kind::FieldMasks(masks) => masks.line(random, position),
            Kind::Options => option(random),
            Kind::Ranges => ranges(random),
            Kind::Sources => format!("add {} drop", random.source(32)),
        }
    }
}

/// The lines of the case `set`: one rule with a set of the addresses in the lines of the case `sources`.
pub fn as_set(lines: &[String]) -> Vec<String> {
    let field = lines.first().and_then(|line| line.split(' ').nth(1)).unwrap_or("ip-saddr");
    let addresses = lines.iter().filter_map(|line| line.split(' ').nth(2));
    let elements = addresses.map(|address| format!("set sources add {address}"));
    let rule = format!("add {field} @sources drop");
    ["set add sources address".to_owned()].into_iter().chain(elements).chain([rule]).collect()
}

fn shuffled_masks(random: &mut RuleRandom) -> Vec<Mask> {
    let mut masks = Vec::new();
    for source in LENGTHS {
        for destination in LENGTHS {
            for ports in 0..4 {
                masks.push(Mask { source, destination, sport: ports & 1 != 0, dport: ports & 2 != 0 });
            }
        }
    }
    masks.shuffle(&mut random.rng);
    masks
}

/// The prefix of an address with this length.
fn prefix(address: u32, length: u8) -> String {
    let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
    let network = Ipv4Addr::from(address & mask);
    if length == 32 { network.to_string() } else { format!("{network}/{length}") }
}

/// The prefix of an IPv6 address that stands for one of IPv4 with this length. The addresses of the traffic
/// have their first `same` bits in common with IPv4, and their first 65 with IPv6. Beyond these, there are
/// `bits` for each bit of IPv4.
fn prefix6(address: u128, length: u8, same: u8, bits: u32) -> String {
    if length == 32 {
        return Ipv6Addr::from(address).to_string();
    }
    let length = 65 + bits * u32::from(length.saturating_sub(same));
    format!("{}/{length}", Ipv6Addr::from(address & (u128::MAX << (128 - length))))
}

fn addresses(random: &mut RuleRandom, source: u8, destination: u8) -> String {
    let source = random.source(source);
    format!("{source} {}", random.destination(destination))
}

fn masked(random: &mut RuleRandom, mask: Mask, keyword: &str, target: &str) -> String {
    let proto = random.pick(&["tcp", "udp"]);
    let addresses = addresses(random, mask.source, mask.destination);
    let mut line = format!("{keyword} {addresses} {}", random.protocol(proto));
    for (port, compared) in [("sport", mask.sport), ("dport", mask.dport)] {
        if compared {
            line += &format!(" {proto}-{port} {}", random.below(0x1_0000));
        }
    }
    line + " " + target
}

fn mixed(random: &mut RuleRandom) -> String {
    let [source, destination] = [(); 2].map(|()| random.between(16, 32) as u8);
    let proto = random.pick(&["tcp", "udp"]);
    let addresses = addresses(random, source, destination);
    let mut line = format!("add {addresses} {}", random.protocol(proto));
    for port in ["sport", "dport"] {
        match random.below(3) {
            0 => {}
            1 => line += &format!(" {proto}-{port} {}", random.below(0x1_0000)),
            _ => line += &format!(" {proto}-{port} {}", random.range(0, 0xffff)),
        }
    }
    line + " drop"
}

fn option(random: &mut RuleRandom) -> String {
    let bytes =
        |random: &mut RuleRandom, n: u64| (0..n).map(|_| format!("{:02x}", random.below(256))).collect();
    let term: String = match random.below(7) {
        0 => format!("tcp-opt-mss {}", random.below(0x1_0000)),
        1 => format!("tcp-opt-wscale {}", random.below(0x100)),
        2 => format!("tcp-opt-timestamp {}", random.rng.next_u64()),
        3 => {
            let sack: String = bytes(random, 8);
            format!("tcp-opt-sack 0x{sack}")
        }
        4 => {
            let cookie: String = bytes(random, 8);
            format!("tcp-opt-fast-open 0x{cookie}")
        }
        5 => {
            let subtype: String = bytes(random, 10);
            format!("tcp-opt-mptcp 0x{subtype}")
        }
        _ => format!("tcp-opt {}", random.between(2, 255)),
    };
    format!("add {term} drop")
}

/// A rule with two to four comparisons of fields.
fn ranges(random: &mut RuleRandom) -> String {
    let mut fields = if random.below(2) == 0 { TCP.to_vec() } else { UDP.to_vec() };
    let mut line = "add".to_owned();
    for _ in 0..random.between(2, 4) {
        let (field, largest) = fields.swap_remove(random.below(fields.len() as u64) as usize);
        let field = random.header_field(field);
        // Not the extreme values, for which a comparison always or never holds.
        let value = random.between(2, largest - 2);
        line += &match random.below(6) {
            0 => format!(" {field} < {value}"),
            1 => format!(" {field} <= {value}"),
            2 => format!(" {field} > {value}"),
            3 => format!(" {field} >= {value}"),
            4 => format!(" {field} != {value}"),
            _ => format!(" {field} {}", random.range(1, largest - 1)),
        };
    }
    line + " drop"
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const CASES: [Case; 7] =
        [Case::Exact, Case::Mixed, Case::Masks, Case::FieldMasks, Case::Options, Case::Ranges, Case::Sources];

    fn lines(case: Case, seed: u64, ip6: bool) -> Vec<String> {
        let mut maker = RuleGenerator::new(case, RuleRandom::new(seed, ip6, None)).unwrap();
        (0..1_000).map(|at| maker.line(at)).collect()
    }

    #[test]
    fn every_line_is_a_rule_and_depends_on_the_seed() {
        for (case, ip6) in CASES.into_iter().flat_map(|case| [(case, false), (case, true)]) {
            let made = lines(case, 1, ip6);
            for line in &made {
                let parsed = mmb_lang::parse_line(line);
                assert!(
                    matches!(&parsed, Ok(Some(mmb_lang::Command::Add(rule))) if mmb_lang::check(rule).is_ok()),
                    "{line}: {parsed:?}"
                );
            }
            assert_eq!(made, lines(case, 1, ip6));
            assert_ne!(made, lines(case, 2, ip6));
        }
    }

    #[test]
    fn rules_about_ip_are_about_the_right_version() {
        for case in CASES.into_iter().filter(|&case| case != Case::Options) {
            assert!(lines(case, 1, false).iter().all(|line| !line.contains(" ip6-")), "{case:?}");
            assert!(lines(case, 1, true).iter().all(|line| !line.contains(" ip-")), "{case:?}");
        }
        let set = as_set(&lines(Case::Sources, 1, true));
        assert_eq!((set.len(), &*set[0]), (1_002, "set add sources address"));
        assert_eq!(set[1_001], "add ip6-saddr @sources drop");
    }

    #[test]
    fn masks_are_distinct() {
        let masks = shuffled_masks(&mut RuleRandom::new(1, false, None));
        let all: HashSet<_> = masks.iter().map(|m| (m.source, m.destination, m.sport, m.dport)).collect();
        assert_eq!((all.len(), masks.len()), (1_156, 1_156));
    }
}
