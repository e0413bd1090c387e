//! A table that is full of half-open sessions.

mod common;

use common::*;
use mmb_packet::VecPacket;
use mmb_session_harness::Outcome;

/// Room for so many sessions, of which so many are established, under a flood of so many SYNs.
const SESSIONS: usize = 4_096;
const ESTABLISHED: u16 = 512;
const FLOOD: u32 = 1_000_000;

/// A million half-open connections evict each other and no established one, translated or not. New
/// connections are still opened.
#[test]
fn a_million_syns_leave_established_sessions_alone() {
    let server: End = ([192, 0, 2, 7], 80);
    let lines = [
        "add-stateful ip-saddr 10.1.0.0/16 ip-proto tcp map ip-saddr 200.0.0.1",
        "add-stateful ip-saddr 10.0.0.0/16 ip-proto tcp accept",
        "add-stateful ip-saddr 11.0.0.0/8 ip-proto tcp accept",
        "add ip-proto tcp drop",
        "add-stateful ip-saddr 10.1.0.0/16 accept",
    ];
    let mut net = Net::with(rules(&lines), 1, SESSIONS);
    let plain = |n: u16| -> End { ([10, 0, (n >> 8) as u8, n as u8], 40_000) };
    (0..ESTABLISHED).for_each(|n| net.connect(plain(n), server));
    let inside: End = ([10, 1, 0, 1], 40_000);
    let outside: End = ([200, 0, 0, 1], 40_000);
    net.becomes(IN, &tcp(inside, server, SYN, 100, 0), &tcp(outside, server, SYN, 100, 0));
    net.becomes(OUT, &tcp(server, outside, SYN | ACK, 500, 101), &tcp(server, inside, SYN | ACK, 500, 101));
    net.becomes(IN, &tcp(inside, server, ACK, 101, 501), &tcp(outside, server, ACK, 101, 501));
    let mut frame = tcp(([11, 0, 0, 0], 1), server, SYN, 1, 0).build();
    for n in 0..FLOOD {
        frame[27..30].copy_from_slice(&n.to_be_bytes()[1..]);
        let sent = net.harness.process(IN, VecPacket::new(&frame));
        assert!(matches!(&*sent, [one] if one.outcome == Outcome::Out(OUT)));
    }
    let counters = net.counters();
    let kept = u64::from(ESTABLISHED) + 1;
    assert_eq!((counters.sessions, counters.half_open), (SESSIONS as u64, SESSIONS as u64 - kept));
    assert_eq!(counters.evicted, u64::from(FLOOD) - counters.half_open);
    assert_eq!(counters.refused_full, 0);
    for n in 0..ESTABLISHED {
        net.passes(OUT, &tcp(server, plain(n), ACK, 501, 101));
        net.passes(IN, &tcp(plain(n), server, ACK, 101, 501));
    }
    net.becomes(OUT, &tcp(server, outside, ACK, 501, 101), &tcp(server, inside, ACK, 501, 101));
    net.connect(([10, 0, 200, 1], 40_000), server);
}
