//! Rules on the values of fields in the rule language, and traffic that matches none of them. This
//! corresponds to `mmb bench --case ranges`, also with `--ip6`.

use mmb_classify::{Pattern, TruePredicates};
use mmb_lang::Command;
use mmb_packet::{Kind, Window};

use crate::rules::Random;

/// Fields with their largest values: of TCP, of UDP, of IPv4, of IPv6.
const FIELDS: [[(&str, u64); 4]; 4] = [
    [("tcp-sport", 0xffff), ("tcp-dport", 0xffff), ("tcp-win", 0xffff), ("tcp-seq-num", 0xffff_ffff)],
    [("udp-sport", 0xffff), ("udp-dport", 0xffff), ("udp-len", 0xffff), ("udp-len", 0xffff)],
    [("ip-len", 0xffff), ("ip-id", 0xffff), ("ip-ttl", 0xff), ("ip-dscp", 0x3f)],
    [("ip6-len", 0xffff), ("ip6-flow-label", 0xffff), ("ip6-hop-limit", 0xff), ("ip6-traffic-class", 0x3f)],
];

/// Number of packets that each rule is checked against.
const ASKED: usize = 2000;

/// Rules with two to four matches that no packet satisfies, about IPv4 or IPv6.
pub fn rules(n: usize, ip6: bool, packets: &[Window], random: &mut Random) -> Vec<Pattern> {
    let mut rules = Vec::new();
    while rules.len() < n {
        let rule = pattern(&line(ip6, random));
        let matches =
            |packet: &Window| rule.entries().iter().any(|entry| entry.holds(packet, TruePredicates::NONE));
        if !packets.iter().take(ASKED).any(matches) {
            rules.push(rule);
        }
    }
    rules
}

fn line(ip6: bool, random: &mut Random) -> String {
    let mut fields = [FIELDS[random.below(2) as usize], FIELDS[2 + usize::from(ip6)]].concat();
    fields.dedup();
    let mut line = "add".to_owned();
    for _ in 0..2 + random.below(3) {
        let (field, largest) = fields.swap_remove(random.below(fields.len() as u64) as usize);
        let mut value = || 2 + random.below(largest - 3);
        let (a, b) = (value(), value());
        line += &match random.below(6) {
            0 => format!(" {field} < {a}"),
            1 => format!(" {field} <= {a}"),
            2 => format!(" {field} > {a}"),
            3 => format!(" {field} >= {a}"),
            4 => format!(" {field} != {a}"),
            _ => format!(" {field} {}-{}", a.min(b), a.max(b)),
        };
    }
    line + " drop"
}

/// The pattern of a rule.
pub fn pattern(line: &str) -> Pattern {
    let Ok(Some(Command::Add(rule))) = mmb_lang::parse_line(line) else { panic!("{line}: not a rule") };
    Pattern::compile(&rule, &|_| None).expect("can match")
}

/// Short packets of both protocols that differ only in addresses and ports.
pub fn packets(n: usize, ip6: bool, random: &mut Random) -> Vec<Window> {
    let mut packet = || {
        let mut window = Window::default();
        let tcp = random.below(2) == 0;
        let bytes = window.bytes_mut();
        bytes[8..12].copy_from_slice(&(random.next() as u32).to_ne_bytes());
        let (next, l4) = if tcp { (6, Kind::TCP) } else { (17, Kind::UDP) };
        if ip6 {
            for half in bytes[16..48].chunks_exact_mut(8) {
                half.copy_from_slice(&random.next().to_ne_bytes());
            }
            let len = if tcp { 32 } else { 8 };
            bytes[64..80].copy_from_slice(&[0x60, 0, 0, 0, 0, len, next, 64, 0, 0, 0, 0, 0x86, 0xdd, 0, 1]);
        } else {
            bytes[..8].copy_from_slice(&random.next().to_ne_bytes());
            let len = if tcp { 52 } else { 50 };
            bytes[64..80].copy_from_slice(&[0x45, 0, 0, len, 0, 0, 0x40, 0, 64, next, 0, 0, 8, 0, 0, 1]);
        }
        bytes[12..14].copy_from_slice(&[l4 | if ip6 { Kind::IP6 } else { Kind::IP4 }, next]);
        if tcp {
            bytes[48..60].copy_from_slice(&[0x53, 0x1e, 0x91, 0x7a, 9, 8, 7, 6, 0x80, 0x10, 0xff, 0xff]);
        } else {
            bytes[48..50].copy_from_slice(&[0, 30]);
        }
        window
    };
    (0..n).map(|_| packet()).collect()
}
