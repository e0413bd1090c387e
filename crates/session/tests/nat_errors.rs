//! ICMP errors and the life of the sessions that they are about.

mod common;

use common::*;
use mmb_packet::DropReason;
use mmb_packet::build::{Frame, Icmp, Ip6, Tcp, Udp};
use mmb_session_harness::Outcome;

const CLIENT: End = ([10, 0, 0, 1], 40_000);
const SERVER: End = ([192, 0, 2, 7], 53);
const NAT: [u8; 4] = [200, 0, 0, 1];

/// RFC 5508 REQ-6, RFC 4787 REQ-12, RFC 7857 section 7.1: errors from either side, about queries and
/// datagrams, neither end a session nor put its end off.
#[test]
fn errors_do_not_keep_sessions_alive() {
    let mut net = Net::new(&["nat pool add p 200.0.0.1", "add-stateful ip-saddr 10.0.0.0/8 nat p"]);
    let shown: End = (NAT, CLIENT.1);
    net.becomes(IN, &udp(CLIENT, SERVER), &udp(shown, SERVER));
    net.becomes(OUT, &udp(SERVER, shown), &udp(SERVER, CLIENT));
    net.becomes(IN, &ping(CLIENT.0, SERVER.0, 77), &ping(NAT, SERVER.0, 77));
    let router = [198, 51, 100, 1];
    let about_datagram = error(11, 0, router, NAT, &udp(shown, SERVER));
    let about_query = error(11, 0, router, NAT, &ping(NAT, SERVER.0, 77));
    let from_inside = error(3, 3, CLIENT.0, SERVER.0, &udp(SERVER, CLIENT));
    for _ in 0..2 {
        net.wait(29_000);
        net.becomes(OUT, &about_datagram, &error(11, 0, router, CLIENT.0, &udp(CLIENT, SERVER)));
        net.becomes(OUT, &about_query, &error(11, 0, router, CLIENT.0, &ping(CLIENT.0, SERVER.0, 77)));
        net.becomes(IN, &from_inside, &error(3, 3, NAT, SERVER.0, &udp(SERVER, shown)));
        assert_eq!(net.views().len(), 2, "errors end nothing");
    }
    // A query's session goes a minute after the query, whatever was said about it two seconds before.
    net.wait(2_200);
    assert_eq!(net.views().len(), 1);
    net.drops(OUT, &about_query, DropReason::IcmpQuote);
    net.wait(239_000);
    net.becomes(IN, &from_inside, &error(3, 3, NAT, SERVER.0, &udp(SERVER, shown)));
    net.becomes(OUT, &about_datagram, &error(11, 0, router, CLIENT.0, &udp(CLIENT, SERVER)));
    net.wait(1_000);
    assert_eq!(net.views(), vec![], "five minutes after the last packet");
    net.drops(OUT, &about_datagram, DropReason::IcmpQuote);
}

/// RFC 5927, section 4.1: a stranger knows addresses and ports, but not the sequence numbers. Path MTU
/// discovery works on.
#[test]
fn errors_about_what_was_not_sent_are_dropped() {
    let rules = ["nat pool add p 200.0.0.1", "add-stateful ip-saddr 10.0.0.0/8 nat p"];
    let (web, shown): (End, End) = (([192, 0, 2, 7], 80), (NAT, CLIENT.1));
    let segment = |from, to, seq, ack| tcp(from, to, ACK, seq, ack);
    for shuffle in [false, true] {
        let mut lines = rules.to_vec();
        lines.extend(shuffle.then_some("add-stateful ip-saddr 10.0.0.0/8 shuffle tcp-seq-num"));
        let mut net = Net::new(&lines);
        let (_, syn) = net.one(IN, &tcp(CLIENT, web, SYN, 1_000, 0));
        let delta = u32::from_be_bytes(syn[38..42].try_into().expect("four bytes")).wrapping_sub(1_000);
        assert_eq!(delta != 0, shuffle);
        net.one(OUT, &tcp(web, shown, SYN | ACK, 5_000, delta.wrapping_add(1_001)));
        net.one(IN, &segment(CLIENT, web, 1_001, 5_001));
        net.one(OUT, &segment(web, shown, 5_001, delta.wrapping_add(2_001)));
        let router = [198, 51, 100, 1];
        let too_big = |seq: u32| {
            let out = segment(shown, web, seq.wrapping_add(delta), 5_001);
            (error(3, 4, router, NAT, &out), error(3, 4, router, CLIENT.0, &segment(CLIENT, web, seq, 5_001)))
        };
        for seq in [2_001, 3_000, 2_001 + 65_535] {
            let (seen, expected) = too_big(seq);
            net.becomes(OUT, &seen, &expected);
        }
        for seq in [1_999, 2_001 + 65_536, 1 << 30, 1 << 31, u32::MAX] {
            net.drops(OUT, &too_big(seq).0, DropReason::IcmpForged);
        }
        // From inside, about what the server has sent.
        let back = |seq, ack: u32| segment(web, CLIENT, seq, ack);
        let unreachable = |seq| error(3, 1, [10, 9, 9, 9], web.0, &back(seq, 2_001));
        assert_eq!(net.one(IN, &unreachable(5_001)).0, Outcome::Out(OUT));
        net.drops(IN, &unreachable(900_000_000), DropReason::IcmpForged);
        // A redirect, with the right numbers.
        let redirect = error(5, 1, router, NAT, &segment(shown, web, delta.wrapping_add(2_001), 5_001));
        net.drops(OUT, &redirect, DropReason::IcmpRedirect);
    }
}

/// Without NAT, over IPv6.
#[test]
fn errors_about_ip6_packets_that_were_not_sent_are_dropped() {
    let ends = [([1; 16], 40_000), ([2; 16], 80)];
    let segment = |[from, to]: [([u8; 16], u16); 2], flags, seq, ack| {
        Frame::new(Ip6::new(from.0, to.0), Tcp { flags, seq, ack, ..Tcp::new(from.1, to.1) }).payload([7; 8])
    };
    let back = [ends[1], ends[0]];
    let mut net = Net::new(&["add-stateful tcp-dport 80 accept", "add-stateful udp-dport 53 accept"]);
    net.passes(IN, &segment(ends, SYN, 1_000, 0));
    net.passes(OUT, &segment(back, SYN | ACK, 5_000, 1_009));
    net.passes(IN, &segment(ends, ACK, 1_009, 5_009));
    net.passes(OUT, &segment(back, ACK, 5_009, 2_001));
    let error_about = |quoted: &[u8]| {
        let quoted = quoted[14..].to_vec();
        Frame::new(Ip6::new([3; 16], ends[0].0), Icmp { rest: [0, 0, 5, 0], ..Icmp::new(2) }).payload(quoted)
    };
    for seq in [2_001, 2_001 + 65_535] {
        net.passes(OUT, &error_about(&segment(ends, ACK, seq, 5_009).build()));
    }
    for seq in [1_999, 2_001 + 65_536, 1 << 31] {
        net.drops(OUT, &error_about(&segment(ends, ACK, seq, 5_009).build()), DropReason::IcmpForged);
    }
    // A datagram whose length is not that of its packet.
    let ip = Ip6::new(ends[0].0, ends[1].0);
    let datagram = Frame::new(ip, Udp::new(40_000, 53)).payload([7; 8]);
    net.passes(IN, &datagram);
    net.passes(OUT, &error_about(&datagram.build()));
    for length in [0u16, 15, 17, 2_000] {
        let mut quoted = datagram.build();
        quoted[58..60].copy_from_slice(&length.to_be_bytes());
        net.drops(OUT, &error_about(&quoted), DropReason::IcmpForged);
    }
}
