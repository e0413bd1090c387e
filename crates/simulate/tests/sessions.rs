//! Replays of captures with rules that need sessions: the graph, its clock, and held fragments.

#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use common::{forwarding, replay};
use mmb_dataplane::Forwarding;
use mmb_flow::{NatConfig, PoolConfig};
use mmb_lang::{Command, Rule, parse_line};
use mmb_packet::build::{self, Icmp, Ip4, Tcp, Transport, Udp};
use mmb_packet::checksum::{fold, sum};
use mmb_simulate::capture::Frame;
use mmb_simulate::replay::ReplayReport;

const INSIDE: [u8; 4] = [10, 0, 0, 5];
const OUTSIDE: [u8; 4] = [198, 51, 100, 9];
const SYN: u8 = 2;
const ACK: u8 = 16;
/// One second of capture time.
const SECOND: u64 = 1_000_000_000;

fn rules(lines: &[&str]) -> Vec<Rule> {
    let rule = |line: &&str| match parse_line(line) {
        Ok(Some(Command::Add(rule))) => rule,
        other => panic!("{line}: {other:?}"),
    };
    lines.iter().map(rule).collect()
}

/// One packet per millisecond.
fn at_once(frames: &[Vec<u8>]) -> Vec<(u64, Vec<u8>)> {
    frames.iter().enumerate().map(|(i, frame)| (SECOND + i as u64 * 1_000_000, frame.clone())).collect()
}

fn tcp(from: ([u8; 4], u16), to: ([u8; 4], u16), flags: u8) -> Vec<u8> {
    let (seq, ack) = if flags & SYN == 0 { (101, 201) } else { (100, 201) };
    let ack = if flags & ACK == 0 { 0 } else { ack };
    build::Frame::new(Ip4::new(from.0, to.0), Tcp { flags, seq, ack, ..Tcp::new(from.1, to.1) }).build()
}

fn udp(from: ([u8; 4], u16), to: ([u8; 4], u16)) -> Vec<u8> {
    build::Frame::new(Ip4::new(from.0, to.0), Udp::new(from.1, to.1)).payload(*b"payload").build()
}

fn reasons(report: &ReplayReport) -> Vec<(&str, u64)> {
    report.drops.iter().map(|(reason, n)| (*reason, *n)).collect()
}

fn data(frames: &[Frame]) -> Vec<Vec<u8>> {
    frames.iter().map(|frame| frame.data.clone()).collect()
}

/// Verifies both checksums of an unfragmented frame without tags.
fn assert_checksums(frame: &[u8]) {
    assert_eq!(fold(sum(&frame[14..34], 0)), 0xffff, "IPv4");
    let (l4, proto) = (&frame[34..], frame[23]);
    let pseudo = if proto == 1 { 0 } else { sum(&frame[26..34], u32::from(proto) + l4.len() as u32) };
    assert_eq!(fold(sum(l4, pseudo)), 0xffff, "transport");
}

#[test]
fn a_stateful_accept_lets_replies_in_and_nothing_else() {
    let policy = forwarding(&rules(&[
        "add-stateful ip-proto tcp ip-saddr 10.0.0.0/24 accept",
        "add ip-proto tcp drop",
    ]));
    let (client, server, other) = ((INSIDE, 40_000), (OUTSIDE, 80), (OUTSIDE, 81));
    let pass = [
        tcp(client, server, SYN),
        tcp(server, client, SYN | ACK),
        tcp(client, server, ACK),
        tcp(server, client, ACK),
    ];
    let mut frames = pass.to_vec();
    frames.insert(0, tcp(server, client, ACK));
    frames.push(tcp(other, client, ACK));
    let (report, out) = replay(policy, &at_once(&frames));
    assert_eq!(data(&out), pass);
    assert_eq!(reasons(&report), [("rule", 2)]);
    let counts: Vec<_> = report.rules.iter().map(|(slot, count)| (*slot, count.packets)).collect();
    // Packets that one rule accepts still count for the rule that drops.
    assert_eq!(counts, [(0, 4), (1, 6)]);
}

#[test]
fn a_source_is_mapped_and_replies_are_mapped_back() {
    let line = "add-stateful ip-saddr 10.0.0.0/24 ip-proto tcp map ip-saddr 200.0.0.1 map tcp-sport 7000";
    let (client, server, mapped) = ((INSIDE, 40_000), (OUTSIDE, 80), ([200, 0, 0, 1], 7_000));
    let frames = [
        tcp(client, server, SYN),
        tcp(server, mapped, SYN | ACK),
        tcp(client, server, ACK),
        tcp(server, mapped, ACK),
    ];
    let (report, out) = replay(forwarding(&rules(&[line])), &at_once(&frames));
    let expected = [
        tcp(mapped, server, SYN),
        tcp(server, client, SYN | ACK),
        tcp(mapped, server, ACK),
        tcp(server, client, ACK),
    ];
    assert_eq!(data(&out), expected);
    assert_eq!((report.dropped, report.rules[0].1.packets), (0, 4));
}

#[test]
fn a_session_ends_in_capture_time() {
    let policy = || forwarding(&rules(&["add-stateful ip-saddr 10.0.0.0/24 accept", "add all drop"]));
    let (client, server) = ((INSIDE, 5_000), (OUTSIDE, 53));
    // RFC 4787 REQ-5: a UDP mapping lives at least two minutes; after the first reply it is five here.
    let frames = |gap: u64| {
        let times = [0, 1, 1 + gap].map(|second| second * SECOND);
        let frames = [udp(client, server), udp(server, client), udp(server, client)];
        times.into_iter().zip(frames).collect::<Vec<_>>()
    };
    let (report, out) = replay(policy(), &frames(299));
    assert_eq!((out.len(), report.dropped), (3, 0));
    let (report, out) = replay(policy(), &frames(301));
    assert_eq!((out.len(), reasons(&report)), (2, vec![("rule", 1)]));
}

/// Splits the IPv4 datagram of a frame into fragments of at most `size` bytes of payload, a multiple of 8.
fn fragments(frame: &[u8], id: u16, size: usize) -> Vec<Vec<u8>> {
    let (header, payload) = (&frame[..34], &frame[34..]);
    let chunks = payload.chunks(size).enumerate();
    let last = payload.len().div_ceil(size) - 1;
    let fragment = |(i, chunk): (usize, &[u8])| {
        let mut fragment = [header, chunk].concat();
        fragment[16..18].copy_from_slice(&(20 + chunk.len() as u16).to_be_bytes());
        fragment[18..20].copy_from_slice(&id.to_be_bytes());
        let more = if i == last { 0 } else { 0x2000 };
        fragment[20..22].copy_from_slice(&(more | (i * size / 8) as u16).to_be_bytes());
        fragment[24..26].fill(0);
        let checksum = !fold(sum(&fragment[14..34], 0));
        fragment[24..26].copy_from_slice(&checksum.to_be_bytes());
        fragment
    };
    chunks.map(fragment).collect()
}

fn long(from: ([u8; 4], u16), to: ([u8; 4], u16)) -> Vec<u8> {
    let payload: Vec<u8> = (0..3_000).map(|i| (i % 251) as u8).collect();
    build::Frame::new(Ip4::new(from.0, to.0), Udp::new(from.1, to.1)).payload(payload).build()
}

#[test]
fn fragments_wait_for_the_first_one_and_follow_it() {
    let line = "add-stateful ip-saddr 10.0.0.0/24 map ip-saddr 200.0.0.1 map udp-sport 7000";
    let (client, server, mapped) = ((INSIDE, 5_000), (OUTSIDE, 53), ([200, 0, 0, 1], 7_000));
    let parts = fragments(&long(client, server), 77, 1_480);
    let expected = fragments(&long(mapped, server), 77, 1_480);
    assert_eq!(parts.len(), 3);
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        // Fragments of a datagram without a session, which are not held, come first.
        let foreign = fragments(&long(server, client), 77, 1_480);
        let mut frames = vec![foreign[0].clone(), foreign[1].clone()];
        frames.extend(order.map(|at| parts[at].clone()));
        let (report, out) = replay(forwarding(&rules(&[line])), &at_once(&frames));
        assert_eq!(report.dropped, 0, "{order:?}");
        let first = order.iter().position(|at| *at == 0).unwrap();
        // Fragments that arrived before the first one leave behind it, in the order of arrival.
        let mut went: Vec<usize> = vec![0];
        went.extend(&order[..first]);
        went.extend(&order[first + 1..]);
        assert_eq!(data(&out[..2]), foreign[..2]);
        assert_eq!(
            data(&out[2..]),
            went.iter().map(|at| expected[*at].clone()).collect::<Vec<_>>(),
            "{order:?}"
        );
        assert!(out.is_sorted_by_key(|frame| frame.time_ns), "{order:?}");
    }
}

#[test]
fn fragments_that_time_out_are_dropped() {
    let line = "add-stateful ip-saddr 10.0.0.0/24 map ip-saddr 200.0.0.1";
    let parts = fragments(&long((INSIDE, 5_000), (OUTSIDE, 53)), 77, 1_480);
    // At the end of the capture …
    let (report, out) = replay(forwarding(&rules(&[line])), &at_once(&parts[1..]));
    assert_eq!((out.len(), reasons(&report)), (0, vec![("fragment-lost", 2)]));
    // … and if the first fragment comes too late.
    let late = [(0, parts[1].clone()), (3 * SECOND, parts[0].clone())];
    let (report, out) = replay(forwarding(&rules(&[line])), &late);
    assert_eq!((out.len(), reasons(&report)), (1, vec![("fragment-lost", 1)]));
}

/// `line`, with a pool `wan` of two addresses.
fn with_pool(line: &str, ports: (u16, u16)) -> Forwarding {
    let pool = PoolConfig::new("wan", [203, 0, 113, 1].into(), [203, 0, 113, 2].into()).unwrap();
    let pool = pool.with_ports(ports.0, ports.1).unwrap();
    Forwarding {
        nat: Arc::new(NatConfig::new(vec![pool], Vec::new()).unwrap()),
        ..forwarding(&rules(&[line]))
    }
}

#[test]
fn a_pool_answers_when_it_has_no_port_left() {
    let line = "add-stateful ip-saddr 10.0.0.0/24 nat wan";
    let from = |port| udp((INSIDE, port), (OUTSIDE, 53));
    let (report, out) = replay(with_pool(line, (5_000, 5_000)), &at_once(&[from(5_000), from(5_001)]));
    // RFC 5508 REQ-8: an ICMP error to the inside, "communication administratively prohibited".
    assert_eq!((out.len(), reasons(&report)), (2, vec![("nat-exhausted", 1)]));
    let translated = &out[0].data;
    assert_eq!((&translated[30..34], &translated[36..38]), (&OUTSIDE[..], &53u16.to_be_bytes()[..]));
    assert_eq!(&translated[26..29], &[203, 0, 113]);
    assert_checksums(translated);
    let answer = &out[1].data;
    assert_eq!((answer[23], &answer[30..34], answer[34], answer[35]), (1, &INSIDE[..], 3, 13));
    assert_checksums(answer);
    // A packet from outside without a mapping causes no ICMP error.
    let stray = udp((OUTSIDE, 9), ([203, 0, 113, 1], 5_000));
    let (report, out) = replay(with_pool(line, (5_000, 5_000)), &at_once(&[stray]));
    assert_eq!((out.len(), reasons(&report)), (0, vec![("nat-unmapped", 1)]));
}

#[test]
fn echoes_and_errors_come_back_through_a_pool() {
    let line = "add-stateful ip-saddr 10.0.0.0/24 nat wan";
    let echo = |kind, from: [u8; 4], to: [u8; 4], id: [u8; 2]| {
        let icmp = Icmp { rest: [id[0], id[1], 0, 1], ..Icmp::new(kind) };
        build::Frame::new(Ip4::new(from, to), Transport::Icmp(icmp)).payload(*b"ping").build()
    };
    let request = echo(8, INSIDE, OUTSIDE, [1, 2]);
    let (_, out) = replay(with_pool(line, (1_024, 65_535)), &at_once(std::slice::from_ref(&request)));
    let out = &out[0].data;
    let (mapped, id) = ([out[26], out[27], out[28], out[29]], [out[38], out[39]]);
    assert_eq!(*out, echo(8, mapped, OUTSIDE, id));
    // The same session again: the seed of a replay is always the same.
    let reply = echo(0, OUTSIDE, mapped, id);
    let router = [192, 0, 2, 1];
    let error = |to: [u8; 4], quote: &[u8]| {
        build::Frame::new(Ip4::new(router, to), Transport::Icmp(Icmp::new(11))).payload(&quote[14..]).build()
    };
    let frames = [request.clone(), reply, error(mapped, out)];
    let (report, out) = replay(with_pool(line, (1_024, 65_535)), &at_once(&frames));
    assert_eq!(report.dropped, 0);
    assert_eq!(out[1].data, echo(0, OUTSIDE, INSIDE, [1, 2]));
    assert_eq!(out[2].data, error(INSIDE, &request));
}

#[test]
fn packets_of_several_buffers_belong_to_sessions() {
    let lines = [
        "add-stateful ip-saddr 10.0.0.0/24 map ip-saddr 200.0.0.1",
        "add-stateful ip-saddr 10.0.0.0/24 udp-payload contains \"needle\" mod ip-ttl 9",
        "add udp-payload contains \"other\" drop",
    ];
    let datagram = |from: [u8; 4], ttl, end: &[u8]| {
        let payload: Vec<u8> = (0..5_000).map(|i| i as u8 % 97).chain(end.iter().copied()).collect();
        build::Frame::new(Ip4 { ttl, ..Ip4::new(from, OUTSIDE) }, Udp::new(9, 53)).payload(payload).build()
    };
    let frames = [&b"plain"[..], b"needle", b"plain", b"other"].map(|end| datagram(INSIDE, 64, end));
    let (report, out) = replay(forwarding(&rules(&lines)), &at_once(&frames));
    let mapped = [200, 0, 0, 1];
    // A stateful rule applies from the first matching packet on.
    let expected =
        [datagram(mapped, 64, b"plain"), datagram(mapped, 9, b"needle"), datagram(mapped, 9, b"plain")];
    assert_eq!(data(&out), expected);
    assert_eq!(reasons(&report), [("rule", 1)]);
}
