//! Rules made up for a measurement, as lines of the language: they take the way that an operator's rules take.
//!
//! Values are drawn from where the generated traffic's come from (10.0.0.0/8 to 198.18.0.0/15 or to the routes, all ports), so that
//! rules and packets have a lot in common.

use std::net::Ipv4Addr;

use mmb_dataplane::bench::Prefixes;

use crate::cli::Case;

/// SplitMix64 (Steele, Lea, Flood 2014), and where destinations come from.
pub struct Random {
    state: u64,
    routes: Option<Prefixes>,
}

impl Random {
    /// Everything that is random follows from `seed`; destinations are those of `routes`, or of 198.18.0.0/15.
    pub fn new(seed: u64, routes: Option<Prefixes>) -> Random {
        Random { state: seed, routes }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0.
    fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// A number from `low` to `high`.
    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    fn source(&mut self) -> u32 {
        0x0a00_0000 | self.next() as u32 >> 8
    }

    fn destination(&mut self) -> u32 {
        let random = self.next();
        self.routes.map_or(0xc612_0000 | random as u32 >> 15, |routes| routes.address(random) as u32)
    }

    fn pick<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len() as u64) as usize]
    }

    /// `low-high`, anywhere in `from..=to`.
    fn range(&mut self, from: u64, to: u64) -> String {
        let (a, b) = (self.between(from, to), self.between(from, to));
        format!("{}-{}", a.min(b), a.max(b))
    }
}

/// Makes the rules of a case.
pub struct Maker {
    kind: Kind,
    random: Random,
}

enum Kind {
    Exact,
    Mixed,
    /// The masks in the order in which rules take them.
    Masks(Vec<Mask>),
    Options,
    Ranges,
}

/// Prefix lengths of source and destination, and whether the ports are compared.
#[derive(Clone, Copy)]
struct Mask {
    source: u8,
    destination: u8,
    sport: bool,
    dport: bool,
}

/// The prefix lengths of masks and of mixed rules: shorter ones of this traffic's networks would match too much of it.
const LENGTHS: std::ops::RangeInclusive<u8> = 16..=32;

/// Fields of the case `ranges`: name and largest value.
const TCP: [(&str, u64); 8] = [
    ("tcp-sport", 0xffff),
    ("tcp-dport", 0xffff),
    ("tcp-win", 0xffff),
    ("tcp-seq-num", 0xffff_ffff),
    ("ip-len", 0xffff),
    ("ip-id", 0xffff),
    ("ip-ttl", 0xff),
    ("ip-dscp", 0x3f),
];
const UDP: [(&str, u64); 7] = [
    ("udp-sport", 0xffff),
    ("udp-dport", 0xffff),
    ("udp-len", 0xffff),
    ("ip-len", 0xffff),
    ("ip-id", 0xffff),
    ("ip-ttl", 0xff),
    ("ip-dscp", 0x3f),
];

impl Maker {
    /// Rules of `case`; none for the case whose rules are in a file, and for those of sessions.
    pub fn new(case: Case, mut random: Random) -> Option<Maker> {
        let kind = match case {
            Case::Exact => Kind::Exact,
            Case::Mixed => Kind::Mixed,
            Case::Masks => Kind::Masks(shuffled_masks(&mut random)),
            Case::Options => Kind::Options,
            Case::Ranges => Kind::Ranges,
            Case::Classbench
            | Case::Stateful
            | Case::Nat
            | Case::StatefulNat
            | Case::NewSessions
            | Case::NewNat => return None,
        };
        Some(Maker { kind, random })
    }

    /// A rule with this keyword and target for a random flow.
    pub fn exact(random: &mut Random, keyword: &str, target: &str) -> String {
        let mask = Mask { source: 32, destination: 32, sport: true, dport: true };
        masked(random, mask, keyword, target)
    }

    /// Most rules that the case can have.
    pub fn most(&self) -> usize {
        if let Kind::Masks(masks) = &self.kind { masks.len() } else { usize::MAX }
    }

    /// A rule for this position (from 0, below [`Maker::most`]); asked again, another one of its kind.
    pub fn line(&mut self, position: usize) -> String {
        let random = &mut self.random;
        match &self.kind {
            Kind::Exact => Maker::exact(random, "add", "drop"),
            Kind::Mixed => mixed(random),
            Kind::Masks(masks) => masked(random, masks[position % masks.len()], "add", "drop"),
            Kind::Options => option(random),
            Kind::Ranges => ranges(random),
        }
    }
}

fn shuffled_masks(random: &mut Random) -> Vec<Mask> {
    let mut masks = Vec::new();
    for source in LENGTHS {
        for destination in LENGTHS {
            for ports in 0..4 {
                masks.push(Mask { source, destination, sport: ports & 1 != 0, dport: ports & 2 != 0 });
            }
        }
    }
    for at in (1..masks.len()).rev() {
        masks.swap(at, random.below(at as u64 + 1) as usize);
    }
    masks
}

/// The prefix of this length around an address.
fn prefix(address: u32, length: u8) -> String {
    let network = Ipv4Addr::from(address & (u32::MAX << (32 - u32::from(length))));
    if length == 32 { network.to_string() } else { format!("{network}/{length}") }
}

fn addresses(random: &mut Random, source: u8, destination: u8) -> String {
    let source = prefix(random.source(), source);
    let destination = prefix(random.destination(), destination);
    format!("ip-saddr {source} ip-daddr {destination}")
}

fn masked(random: &mut Random, mask: Mask, keyword: &str, target: &str) -> String {
    let proto = random.pick(&["tcp", "udp"]);
    let addresses = addresses(random, mask.source, mask.destination);
    let mut line = format!("{keyword} {addresses} ip-proto {proto}");
    for (port, compared) in [("sport", mask.sport), ("dport", mask.dport)] {
        if compared {
            line += &format!(" {proto}-{port} {}", random.below(0x1_0000));
        }
    }
    line + " " + target
}

fn mixed(random: &mut Random) -> String {
    let [source, destination] = [(); 2].map(|()| random.between(16, 32) as u8);
    let proto = random.pick(&["tcp", "udp"]);
    let mut line = format!("add {} ip-proto {proto}", addresses(random, source, destination));
    for port in ["sport", "dport"] {
        match random.below(3) {
            0 => {}
            1 => line += &format!(" {proto}-{port} {}", random.below(0x1_0000)),
            _ => line += &format!(" {proto}-{port} {}", random.range(0, 0xffff)),
        }
    }
    line + " drop"
}

fn option(random: &mut Random) -> String {
    let bytes = |random: &mut Random, n: u64| (0..n).map(|_| format!("{:02x}", random.below(256))).collect();
    let question: String = match random.below(7) {
        0 => format!("tcp-opt-mss {}", random.below(0x1_0000)),
        1 => format!("tcp-opt-wscale {}", random.below(0x100)),
        2 => format!("tcp-opt-timestamp {}", random.next()),
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
    format!("add {question} drop")
}

/// Two to four questions about the size of fields.
fn ranges(random: &mut Random) -> String {
    let mut fields = if random.below(2) == 0 { TCP.to_vec() } else { UDP.to_vec() };
    let mut line = "add".to_owned();
    for _ in 0..random.between(2, 4) {
        let (field, largest) = fields.swap_remove(random.below(fields.len() as u64) as usize);
        // Not at the ends, where a question would hold always or never.
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

    #[test]
    fn every_line_is_a_rule_and_the_seed_decides() {
        for case in [Case::Exact, Case::Mixed, Case::Masks, Case::Options, Case::Ranges] {
            let lines = |seed| {
                let mut maker = Maker::new(case, Random::new(seed, None)).unwrap();
                (0..1_000).map(|at| maker.line(at)).collect::<Vec<_>>()
            };
            let made = lines(1);
            for line in &made {
                let parsed = mmb_lang::parse_line(line);
                assert!(
                    matches!(&parsed, Ok(Some(mmb_lang::Command::Add(rule))) if mmb_lang::check(rule).is_ok()),
                    "{line}: {parsed:?}"
                );
            }
            assert_eq!(made, lines(1));
            assert_ne!(made, lines(2));
        }
    }

    #[test]
    fn masks_are_distinct() {
        let masks = shuffled_masks(&mut Random::new(1, None));
        let all: HashSet<_> = masks.iter().map(|m| (m.source, m.destination, m.sport, m.dport)).collect();
        assert_eq!((all.len(), masks.len()), (1_156, 1_156));
    }
}
