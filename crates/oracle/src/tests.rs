//! Tests of the oracle on hand-written frames and rules.

mod parts;
mod readings;

use mmb_lang::{Command, FIELDS, Rule, parse_line};
use mmb_packet::{DropReason, Loc};

use crate::headers::{self, Net, Transport};
use crate::{Difference, Verdict, bits, checksum, evaluate, fields, generate};

/// Wikipedia's IPv4 header ("Internet checksum"), followed by a UDP datagram without checksum.
const UDP4: &str = "020000000002 020000000001 0800
    4500 0073 0000 4000 4011 b861 c0a8 0001 c0a8 00c7   0035 0035 005f 0000";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

fn udp4() -> Vec<u8> {
    let mut frame = bytes(UDP4);
    frame.resize(14 + 0x73, 0x5a);
    frame
}

fn rules(lines: &[&str]) -> Vec<(u32, Rule)> {
    let rule = |line: &&str| match parse_line(line) {
        Ok(Some(Command::Add(rule))) => rule,
        other => panic!("{line}: {other:?}"),
    };
    (1..).zip(lines.iter().map(rule)).collect()
}

fn run(lines: &[&str], frame: &[u8]) -> crate::Outcome {
    evaluate(&rules(lines), &generate::port, 0, 1, frame)
}

#[test]
fn accept_precedes_drop_and_drop_precedes_edits() {
    let frame = udp4();
    let verdict = |lines: &[&str]| run(lines, &frame).verdict;
    let dropped = Verdict::Drop(DropReason::Rule);
    assert_eq!(verdict(&["add ip-proto udp drop", "add all mod ip-ttl 1"]), dropped);
    assert_eq!(verdict(&["add ip-proto udp drop", "add udp-dport 53 accept"]), Verdict::Pass);
    assert_eq!(verdict(&["add ip-proto udp drop 50"]), Verdict::MayDrop);
    assert_eq!(verdict(&["add ip-proto udp drop 50", "add all drop"]), dropped);
    assert_eq!(verdict(&["add ip-proto udp drop 50", "add all accept"]), Verdict::Pass);
    assert_eq!(verdict(&["add ip-proto tcp drop"]), Verdict::Pass);
}

#[test]
fn edits_apply_in_rule_order_to_the_received_packet() {
    let lines =
        ["add ip-ttl 64 mod ip-ttl 9 mod udp-dport 5353", "add ip-ttl 64 mod ip-ttl 8", "add ip-ttl 9 drop"];
    let outcome = run(&lines, &udp4());
    assert_eq!((outcome.verdict, &outcome.matched[..]), (Verdict::Pass, &[1, 2][..]));
    assert_eq!(outcome.bytes[22], 8);
    assert_eq!(outcome.bytes[36..38], 5353u16.to_be_bytes());
    assert_eq!(outcome.bytes[40..42], [0, 0], "no checksum stays none");
    // 56 less in the upper half of a word: the checksum is 0x3800 more.
    assert_eq!(outcome.bytes[24..26], 0xf061u16.to_be_bytes());
    let dropped = run(&["add all mod ip-ttl 9", "add all drop"], &udp4());
    assert_eq!((dropped.bytes, dropped.matched), (udp4(), vec![1, 2]));
}

#[test]
fn matches_on_every_kind_of_value() {
    let holds = |matches: &str| run(&[&format!("add {matches} drop")], &udp4()).verdict != Verdict::Pass;
    for matches in [
        "all",
        "in lan",
        "in != wan",
        "out wan",
        "net-proto ip",
        "! net-proto ip6",
        "ip-saddr 192.168.0.0/24",
        "ip-saddr 192.168.0.1",
        "ip-saddr != 192.168.1.0/24",
        "ip-df",
        "! ip-mf",
        "ip-mf 0",
        "ip-non-ect",
        "! tcp-syn",
        "udp-checksum",
        "udp-checksum 0",
        "ip-proto != tcp",
        "! ip6-next udp",
        "ip-saddr 128.0.0.0/1",
        "ip-len 115 ip-ihl 5 ip-id 0 ip-frag-offset 0",
    ] {
        assert!(holds(matches), "{matches}");
    }
    for matches in [
        "in wan",
        "out != wan",
        "net-proto ip6",
        "ip-saddr 192.168.0.0/32",
        "ip-mf",
        "! ip-df",
        "ip-ce",
        "tcp-syn",
        "tcp-syn 0",
        "tcp-dport != 80",
        "ip6-next != udp",
        "! udp-dport",
        "ip-daddr != 192.168.0.199",
        "in nowhere",
        "udp-dport 53 udp-sport 54",
    ] {
        assert!(!holds(matches), "{matches}");
    }
}

#[test]
fn redirects() {
    assert_eq!(run(&["add all mod out dmz", "add all mod out lab"], &udp4()).out_port, 3);
    assert_eq!(run(&["add all mod out nowhere"], &udp4()).out_port, 1);
    assert_eq!(run(&["add ip-ttl 1 mod out lab"], &udp4()).out_port, 1);
}

/// A truncated frame is not IP or too short; bytes behind the packet have no effect.
#[test]
fn truncation() {
    let frame = udp4();
    for cut in 0..frame.len() {
        let verdict = run(&["add all accept"], &frame[..cut]).verdict;
        assert_eq!(
            verdict,
            if cut < 14 { Verdict::Pass } else { Verdict::Drop(DropReason::Ip4Truncated) },
            "{cut}"
        );
    }
    let padded = [frame, vec![1; 9]].concat();
    assert_eq!(headers::read(&padded).unwrap().unwrap().end, 14 + 0x73);
}

#[test]
fn frames_other_than_ip_are_forwarded() {
    for hex in
        ["", "020000000002 020000000001 0806 0001", "020000000002 020000000001 8100 0001 8100 0001 8100 0001"]
    {
        let frame = bytes(hex);
        let outcome = run(&["add all drop"], &frame);
        assert_eq!((outcome.verdict, outcome.matched, outcome.bytes), (Verdict::Pass, vec![], frame));
    }
}

#[test]
fn extension_headers_are_walked() {
    let fixed = "020000000002 020000000001 86dd 6000 0000 0038 00 40
        20010db8 00000000 00000000 00000001  20010db8 00000000 00000000 00000002";
    let hop = "2b 00 0104 0000 0000";
    let routing = "11 02 00 01 0000 0000 fe800000 00000000 00000000 00000009";
    let udp = "0035 0035 0018 0000 0000 0000 0000 0000 0000 0000 0000 0000";
    let frame = bytes(&[fixed, hop, routing, udp].concat());
    let found = headers::read(&frame).unwrap().unwrap();
    assert_eq!(
        (found.net, found.transport, found.transport_at),
        (Net::Ip6, Transport::Udp, 14 + 40 + 8 + 24)
    );
    assert!(found.routed && !found.fragment);
    assert_eq!(found.final_destination.map(|address| address[15]), Some(9));
    // A chain of headers that extends beyond the packet.
    let mut broken = frame.clone();
    broken[14 + 40 + 8 + 1] = 200;
    assert_eq!(run(&["add all accept"], &broken).verdict, Verdict::Drop(DropReason::L4Truncated));
}

/// No rule can accept a packet whose transport header it cannot read.
#[test]
fn headers_cut_short_are_dropped() {
    let tcp = |fragment: &str, length: &str| {
        let ip = "020000000002 020000000001 0800 4500".to_owned() + length + "0000" + fragment;
        let rest = "4006 0000 0a000001 0a000002 0001 0050 00000000 00000000 5002 0000 0000 0000";
        bytes(&(ip + rest))
    };
    let verdict = |frame: &[u8]| run(&["add all accept"], frame).verdict;
    let dropped = |reason| Verdict::Drop(reason);
    assert_eq!(verdict(&tcp("0000", "0028")), Verdict::Pass);
    assert_eq!(verdict(&tcp("2000", "0028")), Verdict::Pass, "a first fragment");
    assert_eq!(verdict(&tcp("2000", "0024")), dropped(DropReason::TinyFragment), "16 of 20 bytes");
    assert_eq!(verdict(&tcp("0000", "0024")), dropped(DropReason::L4Truncated));
    for (offset, expected) in [
        ("0001", dropped(DropReason::TinyFragment)),
        ("2002", dropped(DropReason::TinyFragment)),
        ("0003", Verdict::Pass),
    ] {
        assert_eq!(verdict(&tcp(offset, "0028")), expected, "{offset}");
    }
    let mut short = tcp("0000", "0028");
    short[46] = 0x40;
    assert_eq!(verdict(&short), dropped(DropReason::L4Malformed), "data offset 4");
    let tags = "020000000002 020000000001".to_owned() + &"81000000".repeat(5) + "0800";
    assert_eq!(verdict(&bytes(&tags)), dropped(DropReason::VlanDepth));
}

/// The checksums for which an implementation can choose the representation of zero.
#[test]
fn equal_representations_of_zero_are_accepted() {
    // The TTL makes the header checksum zero, starting from an invalid one.
    let mut frame = udp4();
    frame[24..26].copy_from_slice(&(0xffff - 0x3800u16).to_be_bytes());
    let outcome = run(&["add all mod ip-ttl 8"], &frame);
    assert_eq!(outcome.either_zero, [24]);
    let mut bytes = outcome.bytes.clone();
    bytes[24..26].fill(0);
    assert_eq!(outcome.check_bytes(&bytes), Ok(()));
    bytes[24..26].copy_from_slice(&[0, 1]);
    assert_eq!(outcome.check_bytes(&bytes), Err(Difference::Byte { at: 24, actual: 0, expected: 0xff }));
    bytes.pop();
    assert_eq!(outcome.check_bytes(&bytes), Err(Difference::Length { actual: 128, expected: 129 }));
    // Starting from a valid one, there is one correct value.
    assert_eq!(run(&["add all mod ip-ttl 8"], &udp4()).either_zero, []);
}

/// Scapy computes the same checksums, including IPv6 routing headers with segments left.
#[test]
fn checksums_agree_with_scapy() {
    let vectors = include_str!("../../rewrite/tests/vectors/vectors.txt").lines();
    let mut seen = 0;
    for line in vectors.filter(|line| !line.starts_with('#')) {
        for hex in line.split('|').skip(2) {
            let frame = bytes(hex);
            let Some(headers) = headers::read(&frame).unwrap() else { continue };
            let mut filled = frame.clone();
            checksum::fill(&mut filled, &headers);
            let transport = checksum::offsets(&headers).last().copied();
            if headers.fragment
                || transport.is_some_and(|at| frame[at..at + 2] == [0, 0] && at == headers.transport_at + 6)
            {
                continue;
            }
            assert_eq!(filled, frame, "{line}");
            seen += 1;
        }
    }
    assert!(seen > 300, "{seen}");
}

/// Compares two independent tables from the same RFCs.
#[test]
fn field_tables_agree() {
    for def in &FIELDS {
        let Some(loc) = def.loc else { continue };
        let bit = match loc {
            Loc::InPort | Loc::OutPort | Loc::Ethertype => continue,
            Loc::TcpOption(_) | Loc::TcpOptionAny | Loc::Ip6Ext(_) => continue,
            Loc::Ip4(bit)
            | Loc::Ip6(bit)
            | Loc::Tcp(bit)
            | Loc::Udp(bit)
            | Loc::Icmp(bit)
            | Loc::Icmp6(bit) => bit,
        };
        let place = fields::place(def.name).unwrap_or_else(|| panic!("{} has no place", def.name));
        assert_eq!((place.first_bit, place.width), (bit.into(), def.width_bits.into()), "{}", def.name);
    }
}

#[test]
fn bits_are_numbered_from_the_left() {
    let mut header = [0x45, 0x00, 0x12, 0x34];
    assert_eq!(
        [bits::get(&header, 0, 4), bits::get(&header, 4, 4), bits::get(&header, 12, 16)],
        [4, 5, 0x123]
    );
    bits::set(&mut header, 12, 9, 0x1ff);
    assert_eq!(header, [0x45, 0x0f, 0xfa, 0x34]);
    bits::set(&mut header, 12, 9, 0x3_0000_0001);
    assert_eq!(header, [0x45, 0x00, 0x0a, 0x34]);
}
