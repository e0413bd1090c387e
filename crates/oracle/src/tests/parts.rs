//! Options, extension headers and payloads: matches, and option edits of whole frames.

use mmb_lang::ErrorPolicy;
use mmb_packet::DropReason;

use super::{bytes, rules, run};
use crate::{Outcome, Settings, Verdict, checksum, evaluate_with, generate, headers};

const ETHERNET: &str = "020000000002 020000000001";
/// Ports 1 and 80, data offset 8: MSS 1400, NOP, NOP, SACK permitted, NOP, window scale 7; "GET /" behind it.
const TCP: &str = "0001 0050 00000000 00000000 8002 0000 0000 0000
    0204 0578  0101 0402  0103 0307  4745 5420 2f";

/// The TCP segment over IPv4 with valid checksums, and 5 bytes behind the packet.
fn tcp4(flags: &str) -> Vec<u8> {
    let ip = "0800 4500 0039 0000".to_owned() + flags + "4006 0000 0a000001 0a000002";
    let mut frame = bytes(&[ETHERNET, &ip, TCP, "aaaaaaaaaa"].concat());
    let headers = headers::read(&frame).unwrap().unwrap();
    checksum::fill(&mut frame, &headers);
    frame
}

/// The TCP segment over IPv6 behind `extensions`, `length` bytes that start with a header of type `next`.
fn tcp6(next: &str, extensions: &str, length: u8) -> Vec<u8> {
    let length = format!("{:04x}", 37 + u16::from(length));
    let fixed = "86dd 6000 0000".to_owned()
        + &length
        + next
        + "40 20010db8 00000000 00000000 00000001
        20010db8 00000000 00000000 00000002";
    let mut frame = bytes(&[ETHERNET, &fixed, extensions, TCP].concat());
    let headers = headers::read(&frame).unwrap().unwrap();
    checksum::fill(&mut frame, &headers);
    frame
}

fn matches(line: &str, frame: &[u8]) -> bool {
    !run(&[&format!("add {line} accept")], frame).matched.is_empty()
}

fn all_match(frame: &[u8], lines: &[&str]) {
    lines.iter().for_each(|line| assert!(matches(line, frame), "{line}"));
}

fn none_match(frame: &[u8], lines: &[&str]) {
    lines.iter().for_each(|line| assert!(!matches(line, frame), "{line}"));
}

/// Checks that options, lengths and checksums of the outcome are those a sender writes.
fn is_sound(outcome: &Outcome) {
    let headers = headers::read(&outcome.bytes).unwrap().unwrap();
    let mut filled = outcome.bytes.clone();
    checksum::fill(&mut filled, &headers);
    assert_eq!(outcome.check_bytes(&filled), Ok(()));
}

#[test]
fn conditions_on_numbers() {
    let frame = tcp4("4000");
    all_match(
        &frame,
        &[
            "tcp-dport 79-81",
            "tcp-dport {1-3,80}",
            "tcp-dport != {1-79,81}",
            "tcp-dport > 79",
            "tcp-dport <= 80",
            "! tcp-dport < 80",
            "ip-saddr {192.0.2.0/24,10.0.0.0-10.0.0.1}",
            "ip-saddr >= 10.0.0.1",
            "! ip6-hop-limit > 0",
            "in {wan,lan}",
            "net-proto {ip,ip6}",
            "! udp-dport 0-65535",
        ],
    );
    none_match(
        &frame,
        &[
            "tcp-dport 81-90",
            "tcp-dport != 80-81",
            "tcp-dport < 80",
            "udp-dport 0-65535",
            "udp-dport != 5-6",
            "ip-saddr {192.0.2.0/24,10.0.0.2-10.0.0.9}",
            "in {wan,dmz}",
        ],
    );
}

#[test]
fn options_match_by_presence_and_value() {
    all_match(
        &tcp4("4000"),
        &[
            "tcp-opt",
            "tcp-opt-mss",
            "tcp-opt-mss < 1460",
            "tcp-opt-mss {1,1400}",
            "tcp-opt-wscale != 8",
            "tcp-opt-sackp",
            "! tcp-opt-timestamp",
            "! tcp-opt-timestamp 5",
            "tcp-opt 2",
            "tcp-opt 3-9",
            "tcp-opt > 3",
            "tcp-opt != 8",
            "tcp-opt != {5-255}",
        ],
    );
    none_match(
        &tcp4("4000"),
        &[
            "tcp-opt-mss 1460",
            "tcp-opt-timestamp != 5",
            "tcp-opt-sack",
            "tcp-opt 5",
            "tcp-opt != 2",
            "tcp-opt != {4,9}",
            "! tcp-opt-mss",
            "tcp-opt-mss != 1400",
        ],
    );
}

/// The last occurrence of the defined length has the value; byte matches use the last occurrence of any
/// length.
#[test]
fn duplicates_and_wrong_lengths() {
    let with = |options: &str| {
        let mut frame = tcp4("4000");
        frame[54..66].copy_from_slice(&bytes(options));
        frame
    };
    let frame = with("0204 0001 0204 0002 0203 0901");
    all_match(&frame, &["tcp-opt-mss 2", "tcp-opt-mss != 1", "tcp-opt 2", "tcp-opt != 3"]);
    none_match(&frame, &["tcp-opt-mss 1", "tcp-opt-mss 9", "tcp-opt-mss 0x901"]);
    let frame = with("0203 0900 0204 0001 0000 0000");
    all_match(&frame, &["tcp-opt-mss", "! tcp-opt-mss 0-65535"]);
    none_match(&frame, &["tcp-opt-mss >= 0", "tcp-opt-mss 1", "tcp-opt-mss != 5"]);
    let frame = with("1e05 0102 0322 02 1e04 0102 01");
    all_match(
        &frame,
        &[
            "tcp-opt-mptcp 0x0102",
            "tcp-opt-mptcp contains 0x02",
            "tcp-opt-mptcp != 0x01",
            "tcp-opt-fast-open",
        ],
    );
    none_match(
        &frame,
        &[
            "tcp-opt-mptcp contains 0x03",
            "tcp-opt-mptcp {0x01,0x010203}",
            "tcp-opt-fast-open != 0x00 tcp-opt-sack",
        ],
    );
}

#[test]
fn payloads() {
    let frame = tcp4("4000");
    all_match(
        &frame,
        &[
            "tcp-payload",
            "tcp-payload \"GET\"",
            "tcp-payload \"GET /\"",
            "tcp-payload contains \"T /\"",
            "tcp-payload {\"POST\",\"G\"}",
            "tcp-payload != \"ET\"",
            "ip-payload 0x00010050",
            "ip-payload contains \"GET /\"",
            "! ip6-payload",
            "! udp-payload \"GET\"",
        ],
    );
    none_match(
        &frame,
        &[
            "tcp-payload \"ET\"",
            "tcp-payload \"GET /\\xaa\"",
            "tcp-payload contains 0xaa",
            "tcp-payload != {\"x\",\"GE\"}",
            "udp-payload != \"x\"",
            "ip-payload contains 0x0aaa",
            "icmp-payload",
        ],
    );
    let mut empty = frame[..66].to_vec();
    empty[17] = 0x34;
    none_match(&empty, &["tcp-payload", "tcp-payload != \"GET\""]);
    all_match(&empty, &["ip-payload", "! tcp-payload"]);
    // A later fragment has no TCP payload, only an IP payload.
    let later = tcp4("0003");
    none_match(&later, &["tcp-payload", "tcp-opt", "tcp-opt-mss"]);
    all_match(&later, &["ip-payload contains \"GET\"", "ip-payload 0x0001"]);
}

#[test]
fn udp_payload_ends_with_udp() {
    let udp = |length: &str| {
        let ip = "0800 4500 0022 0000 4000 4011 0000 0a000001 0a000002 0001 0035".to_owned();
        bytes(&[ETHERNET, &ip, length, "0000 616263646566"].concat())
    };
    all_match(
        &udp("000b"),
        &["udp-payload \"abc\"", "! udp-payload contains \"d\"", "ip-payload contains \"def\""],
    );
    all_match(&udp("ffff"), &["udp-payload \"abcdef\""]);
    none_match(&udp("0008"), &["udp-payload", "udp-payload != \"a\""]);
}

#[test]
fn extension_headers() {
    let hop_routing = "2b00010400000000 06020001 00000000 fe800000000000000000000000000009";
    let frame = tcp6("00", hop_routing, 32);
    all_match(
        &frame,
        &["ip6-eh", "ip6-eh-hopbyhop", "ip6-eh-routing", "! ip6-eh-fragment", "tcp-opt-mss 1400"],
    );
    all_match(&frame, &["ip6-payload 0x2b00", "ip6-payload contains \"GET\"", "tcp-payload \"GET\""]);
    none_match(&frame, &["ip6-eh-destopt", "! ip6-eh", "ip6-eh-esp"]);
    none_match(&tcp6("06", "", 0), &["ip6-eh", "ip6-eh-hopbyhop"]);
    // Destination options, mobility, HIP, shim6, authentication.
    let chain = "8700000000000000 8b00000000000000 8c00000000000000 3300000000000000 06020000 00000000 0000000000000000";
    let frame = tcp6("3c", chain, 48);
    all_match(
        &frame,
        &["ip6-eh-destopt", "ip6-eh-mobility", "ip6-eh-hip", "ip6-eh-shim6", "ip6-eh-ah", "tcp-opt 2"],
    );
    none_match(&frame, &["ip6-eh-hopbyhop", "ip6-eh-routing", "ip6-eh-fragment", "ip6-eh-esp"]);
    // ESP is present with 8 bytes; nothing behind it is read.
    let esp = tcp6("3c", "3200000000000000", 8);
    all_match(&esp, &["ip6-eh-esp", "ip6-eh-destopt", "! tcp-dport"]);
    let mut cut = esp.clone();
    cut[19] = 8 + 7;
    all_match(&cut, &["! ip6-eh-esp", "ip6-eh-destopt"]);
    // The walk ends behind the fragment header of a later fragment.
    let later = tcp6("2c", "3c00 0400 00000000", 8);
    all_match(&later, &["ip6-eh-fragment", "! ip6-eh-destopt"]);
    let first = tcp6("2c", "3200 0001 00000000", 8);
    all_match(&first, &["ip6-eh-fragment", "ip6-eh-esp"]);
}

#[test]
fn options_are_edited_and_lengths_follow() {
    let frame = tcp4("4000");
    let outcome = run(&["add tcp-syn strip tcp-opt-sackp"], &frame);
    assert_eq!(outcome.bytes.len(), frame.len() - 4);
    assert_eq!(outcome.bytes[16..18], [0, 0x35], "IP length");
    assert_eq!(outcome.bytes[46], 0x70, "data offset");
    assert_eq!(outcome.bytes[54..], [&frame[54..58], &[1, 3, 3, 7], &frame[66..]].concat());
    is_sound(&outcome);
    let outcome = run(&["add all add tcp-opt-timestamp 1 mod ip-ttl 1", "add all mod tcp-dport 81"], &frame);
    assert_eq!((outcome.bytes.len(), outcome.bytes[17], outcome.bytes[46]), (frame.len() + 12, 0x45, 0xb0));
    assert_eq!((outcome.bytes[22], outcome.bytes[37]), (1, 81));
    is_sound(&outcome);
    let frame = tcp6("00", "0600010400000000", 8);
    let outcome = run(&["add tcp-opt-mss > 1200 mod tcp-opt-mss 1200"], &frame);
    assert_eq!(outcome.bytes.len(), frame.len());
    is_sound(&outcome);
    let outcome = run(&["add all strip all"], &frame);
    assert_eq!((outcome.bytes.len(), outcome.bytes[19]), (frame.len() - 12, 37 + 8 - 12));
    is_sound(&outcome);
}

/// An invalid checksum keeps its error.
#[test]
fn invalid_checksums_keep_their_error() {
    let frame = tcp4("4000");
    let right = run(&["add all strip all"], &frame).bytes;
    let mut wrong = frame.clone();
    wrong[51] ^= 1;
    let kept = run(&["add all strip all"], &wrong).bytes;
    let sum = |frame: &[u8], at: usize| u32::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
    let difference = |a: u32, b: u32| (a + 0xffff - b) % 0xffff;
    assert_eq!(difference(sum(&kept, 50), sum(&right, 50)), difference(sum(&wrong, 50), sum(&frame, 50)));
}

#[test]
fn edits_that_do_not_fit_are_not_made() {
    let frame = tcp4("4000");
    let big = "add all add tcp-opt 254 0x00000000000000000000000000000000000000000000000000000000 mod ip-ttl 1 mod out dmz";
    let limits = |on_error, frame_max: usize, line: &str, frame: &[u8]| {
        let frame_max = &|port: u16| if port == 1 { frame_max } else { 70 };
        evaluate_with(
            &Settings { on_error, frame_max, ..Settings::default() },
            &rules(&[line]),
            &generate::port,
            0,
            1,
            frame,
        )
    };
    let is_refused = |outcome: &Outcome, why| {
        assert_eq!((outcome.refused, outcome.out_port, &outcome.bytes), (Some(why), 1, &frame));
    };
    let outcome = limits(ErrorPolicy::Forward, 1514, big, &frame);
    is_refused(&outcome, DropReason::OptionSpace);
    assert_eq!((outcome.verdict, &outcome.matched[..]), (Verdict::Pass, &[1][..]));
    let outcome = limits(ErrorPolicy::Drop, 1514, big, &frame);
    is_refused(&outcome, DropReason::OptionSpace);
    assert_eq!(outcome.verdict, Verdict::Drop(DropReason::OptionSpace));
    let sometimes = limits(ErrorPolicy::Drop, 1514, &format!("{big} drop 1"), &frame);
    is_refused(&sometimes, DropReason::OptionSpace);
    assert_eq!(sometimes.verdict, Verdict::MayDrop);
    let dropped = limits(ErrorPolicy::Forward, 1514, &format!("{big} drop"), &frame);
    assert_eq!((dropped.verdict, dropped.refused), (Verdict::Drop(DropReason::Rule), None));
    // 76 bytes, and 4 more for the option.
    let add = "add all add tcp-opt 254";
    assert_eq!(limits(ErrorPolicy::Forward, 80, add, &frame).refused, None);
    is_refused(&limits(ErrorPolicy::Forward, 79, add, &frame), DropReason::OptionMtu);
    is_refused(
        &limits(ErrorPolicy::Forward, 80, &format!("{add} mod out dmz"), &frame),
        DropReason::OptionMtu,
    );
    // A frame beyond the limit can shrink.
    assert_eq!(limits(ErrorPolicy::Forward, 60, "add all strip tcp-opt-mss", &frame).refused, None);
}

#[test]
fn fragments_keep_their_length() {
    let frame = tcp4("2000");
    let refused = |line: &str| run(&[line], &frame).refused;
    assert_eq!(refused("add all strip tcp-opt-mss"), Some(DropReason::OptionFragment));
    assert_eq!(refused("add all add tcp-opt-timestamp 1"), Some(DropReason::OptionFragment));
    assert_eq!(refused("add all mod tcp-opt-mss 5"), None);
    // Two bytes and two of padding are removed, two and two of padding are added: the length stays the
    // same.
    assert_eq!(refused("add all strip tcp-opt-sackp add tcp-opt 254"), None);
    // A whole packet with a fragment header (RFC 6946) is not a fragment.
    let atomic = tcp6("2c", "0600 0000 00000000", 8);
    assert_eq!(run(&["add all strip all"], &atomic).refused, None);
    let first = tcp6("2c", "0600 0001 00000000", 8);
    assert_eq!(run(&["add all strip all"], &first).refused, Some(DropReason::OptionFragment));
}

/// The maximum of IP's length field is 65,535.
#[test]
fn the_longest_packet_cannot_grow() {
    let mut frame = tcp4("4000");
    frame.truncate(14 + 0x39);
    frame.resize(14 + 0xfffd, 0);
    frame[16..18].copy_from_slice(&[0xff, 0xfd]);
    let outcome = run(&["add all add tcp-opt 254"], &frame);
    assert_eq!((outcome.refused, outcome.bytes == frame), (Some(DropReason::OptionSpace), true));
    frame.truncate(14 + 0xfffb);
    frame[16..18].copy_from_slice(&[0xff, 0xfb]);
    let outcome = run(&["add all add tcp-opt 254"], &frame);
    assert_eq!((outcome.refused, &outcome.bytes[16..18]), (None, &[0xff, 0xff][..]));
}
