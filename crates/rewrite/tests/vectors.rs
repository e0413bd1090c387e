//! The rewriter and the oracle against frames whose checksums scapy computed from scratch
//! (`vectors/make.py`).

use mmb_lang::{Command, Rule, parse_line};
use mmb_packet::{Meta, PacketBuf, VecPacket, parse};
use mmb_rewrite::{EditLimits, EditProgram, apply_programs};

struct Vector {
    name: &'static str,
    rule: Rule,
    before: Vec<u8>,
    after: Vec<u8>,
}

fn vectors() -> Vec<Vector> {
    let lines = include_str!("vectors/vectors.txt").lines();
    lines.filter(|line| !line.starts_with('#')).map(vector).collect()
}

fn vector(line: &'static str) -> Vector {
    let [name, edits, before, after]: [&str; 4] =
        line.split('|').map(str::trim).collect::<Vec<_>>().try_into().expect("four columns");
    let Ok(Some(Command::Add(rule))) = parse_line(&format!("add all {edits}")) else {
        panic!("{name}: {edits} is no rule's target");
    };
    Vector { name, rule, before: bytes(before), after: bytes(after) }
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).expect("hexadecimal")).collect()
}

fn no_ifaces(_: &str) -> Option<u16> {
    None
}

fn edit(rule: &Rule, packet: &mut VecPacket, meta: &mut Meta) {
    let program = EditProgram::compile(&rule.targets, &no_ifaces).expect("compiles");
    let limits = EditLimits { frame_max: |_| usize::MAX };
    apply_programs([&program].into_iter(), packet, meta, limits).expect("room for options");
}

#[test]
fn rewriter_agrees_with_scapy() {
    for Vector { name, rule, before, after } in vectors() {
        let mut meta = Meta::default();
        parse(&before, before.len(), &mut meta).expect("a sound packet");
        let mut edited = VecPacket::new(&before);
        edit(&rule, &mut edited, &mut meta);
        assert_eq!(edited.head(), after, "{name}: {rule}");
    }
}

/// Rewriter and sender can differ only in how they write a zero ICMP checksum; no vector contains one.
#[test]
fn oracle_agrees_with_scapy() {
    for Vector { name, rule, before, after } in vectors() {
        let outcome = mmb_oracle::evaluate(&[(1, rule)], &no_ifaces, 0, 1, &before);
        assert_eq!(outcome.check_bytes(&after), Ok(()), "{name}");
        assert!(outcome.either_zero.is_empty(), "{name}");
    }
}

/// Only the headers have to be in the head.
#[test]
fn the_payload_is_not_read() {
    for Vector { name, rule, before, after } in vectors() {
        let mut meta = Meta::default();
        parse(&before, before.len(), &mut meta).expect("a sound packet");
        let l4 = usize::from(meta.l4_off);
        let transport_header = match meta.kind.l4() {
            mmb_packet::Kind::TCP => usize::from(before[l4 + 12] >> 4) * 4,
            mmb_packet::Kind::L4_NONE => 0,
            _ => 8,
        };
        let (head, payload) = before.split_at(l4 + transport_header);
        let mut edited = VecPacket::new(head);
        edit(&rule, &mut edited, &mut meta);
        assert_eq!([edited.head(), payload].concat(), after, "{name}");
    }
}
