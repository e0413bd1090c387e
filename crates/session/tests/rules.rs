//! Stateful rules: what they open, what they do to a session's packets, and how they end.

mod common;

use common::*;
use mmb_flow::{SessionSettings, Timeouts};
use mmb_packet::DropReason;
use mmb_packet::build::{Frame, Ip4, Ip6, Tcp, Udp};
use mmb_session_harness::Outcome;

const CLIENT: End = ([10, 0, 0, 1], 40_000);
const SERVER: End = ([192, 0, 2, 7], 80);

/// A stateful `accept` is a reflexive list: replies pass, nothing else does.
#[test]
fn accept_lets_replies_in() {
    let mut net =
        Net::new(&["add-stateful ip-proto tcp ip-saddr 10.0.0.0/24 accept", "add ip-proto tcp drop"]);
    net.drops(OUT, &tcp(SERVER, CLIENT, SYN | ACK, 500, 101), DropReason::Rule);
    net.connect(CLIENT, SERVER);
    assert_eq!(net.view().state, "established");
    net.passes(OUT, &tcp(SERVER, CLIENT, ACK, 501, 101).payload(b"hello".as_slice()));
    net.drops(OUT, &tcp(SERVER, (CLIENT.0, 40_001), ACK, 501, 101), DropReason::Rule);
    let view = net.view();
    assert_eq!((view.packets, view.rules, view.in_port), ([2, 2], vec![1], [IN, OUT]));
    // The stateless rule matches the session's packets, too, and the one that got nowhere.
    assert_eq!((net.matched(1), net.matched(2)), (4, 6));
    // Each packet of the session would be dropped without the first rule.
    assert_eq!((net.decided(1), net.decided(2)), (4, 2));
}

/// A rule decides about a packet if it drops it, or accepts it although another rule with `drop` matches: of
/// several the first.
#[test]
fn one_rule_decides_about_a_packet() {
    let mut net = Net::new(&[
        "add udp-dport 53 drop",
        "add all drop",
        "add-stateful udp-dport 80 accept",
        "add udp-dport 80 accept",
        "add ip-ttl 9 block",
        "add udp-dport 81 mod ip-ttl 3",
    ]);
    let (with, dns) = (|ttl| Frame::new(Ip4 { ttl, ..Ip4::new(CLIENT.0, SERVER.0) }, Udp::new(9, 80)), 53);
    net.drops(IN, &udp(CLIENT, (SERVER.0, dns)), DropReason::Rule);
    net.drops(IN, &udp(CLIENT, (SERVER.0, 81)), DropReason::Rule);
    for _ in 0..3 {
        net.passes(IN, &with(64));
    }
    net.drops(IN, &with(9), DropReason::Rule);
    let decided: Vec<_> = (1..=6).map(|index| net.decided(index)).collect();
    assert_eq!(decided, [1, 1, 3, 0, 1, 0]);
}

/// `block` beats `accept`, also for packets of sessions that are open, and whatever the scopes of the rules.
#[test]
fn block_beats_accept() {
    let accept = "add-stateful ip-proto tcp ip-saddr 10.0.0.0/24 accept";
    for block in [
        "add ip-saddr 192.0.2.7 block",
        "add ip-saddr 192.0.2.7 tcp-win 0-65535 block",
        "add-stateful ip-saddr 192.0.2.7 block",
    ] {
        let mut net = Net::new(&[accept]);
        net.connect(CLIENT, SERVER);
        let answer = || tcp(SERVER, CLIENT, ACK, 501, 101);
        net.passes(OUT, &answer());
        net.change(&[accept, block]);
        net.drops(OUT, &answer(), DropReason::Rule);
        net.change(&[accept]);
        net.passes(OUT, &answer());
    }
    let mut net = Net::new(&[accept, "add ip-daddr 192.0.2.7 block"]);
    net.drops(IN, &tcp(CLIENT, SERVER, SYN, 100, 0), DropReason::Rule);
    assert!(net.views().is_empty());
}

/// Without per-packet rules the established path is short; with them the outcome is the same.
#[test]
fn per_packet_rules_are_evaluated_for_each_packet() {
    let mut net = Net::new(&[
        "add-stateful ip-proto tcp ip-saddr 10.0.0.0/24 accept",
        "add ip-proto tcp drop",
        "add tcp-win 77 mod ip-ttl 9",
    ]);
    net.connect(CLIENT, SERVER);
    let odd = |ttl| {
        let ip = Ip4 { ttl, ..Ip4::new(SERVER.0, CLIENT.0) };
        Frame::new(ip, Tcp { window: 77, seq: 501, ack: 101, ..Tcp::new(80, CLIENT.1) })
    };
    net.becomes(OUT, &odd(64), &odd(9));
    net.passes(OUT, &tcp(SERVER, CLIENT, ACK, 501, 101));
    assert_eq!((net.matched(1), net.matched(2), net.matched(3)), (5, 5, 1));
}

/// A rule that matches a packet of a session stays with it, in both directions, though it never matches
/// again.
#[test]
fn edits_apply_to_the_whole_session() {
    let mut net = Net::new(&["add-stateful tcp-syn ip-saddr 10.0.0.0/24 mod ip-ttl 7"]);
    let with = |from: End, to: End, ttl, flags| {
        Frame::new(Ip4 { ttl, ..Ip4::new(from.0, to.0) }, Tcp { flags, ..Tcp::new(from.1, to.1) })
    };
    for (port, from, to, flags) in [
        (IN, CLIENT, SERVER, SYN),
        (OUT, SERVER, CLIENT, SYN | ACK),
        (IN, CLIENT, SERVER, ACK),
        (OUT, SERVER, CLIENT, ACK),
    ] {
        net.becomes(port, &with(from, to, 64, flags), &with(from, to, 7, flags));
    }
    net.passes(IN, &with((CLIENT.0, 1), SERVER, 64, ACK));
    assert_eq!(net.matched(1), 4);
}

/// Rules that match later join the session: also such as look at each packet.
#[test]
fn later_matching_rules_join_the_session() {
    let mut net = Net::new(&[
        "add-stateful udp-dport 53 accept",
        "add-stateful ip-dscp 10 mod ip-ttl 9",
        "add-stateful udp-sport 53 ip-saddr 192.0.2.0/24 mod ip-dscp 3",
    ]);
    let server: End = (SERVER.0, 53);
    let with = |from: End, to: End, tos, ttl| {
        Frame::new(Ip4 { tos, ttl, ..Ip4::new(from.0, to.0) }, Udp::new(from.1, to.1))
    };
    net.passes(IN, &with(CLIENT, server, 0, 64));
    net.becomes(OUT, &with(server, CLIENT, 0, 64), &with(server, CLIENT, 12, 64));
    net.becomes(IN, &with(CLIENT, server, 0, 64), &with(CLIENT, server, 12, 64));
    net.becomes(IN, &with(CLIENT, server, 40, 64), &with(CLIENT, server, 12, 9));
    net.becomes(OUT, &with(server, CLIENT, 0, 64), &with(server, CLIENT, 12, 9));
    net.becomes(IN, &with(CLIENT, server, 0, 64), &with(CLIENT, server, 12, 9));
    assert_eq!(net.view().rules, [1, 2, 3]);
}

/// A stateful rule that drops opens nothing; one that joins drops all that follows.
#[test]
fn stateful_drops() {
    let mut net = Net::new(&["add-stateful udp-dport 53 mod ip-ttl 9", "add-stateful ip-dscp 1 drop"]);
    let marked =
        |from: End, to: End, tos| Frame::new(Ip4 { tos, ..Ip4::new(from.0, to.0) }, Udp::new(from.1, to.1));
    net.drops(IN, &marked(CLIENT, SERVER, 4), DropReason::Rule);
    net.drops(IN, &marked(CLIENT, (SERVER.0, 53), 4), DropReason::Rule);
    assert_eq!(net.views(), []);
    let (outcome, _) = net.one(IN, &marked(CLIENT, (SERVER.0, 53), 0));
    assert_eq!(outcome, Outcome::Out(OUT));
    net.drops(IN, &marked(CLIENT, (SERVER.0, 53), 4), DropReason::Rule);
    net.drops(IN, &marked(CLIENT, (SERVER.0, 53), 0), DropReason::Rule);
    net.drops(OUT, &marked((SERVER.0, 53), CLIENT, 0), DropReason::Rule);
}

/// The answer to a packet, which leaves by the port that the packet came in by.
#[track_caller]
fn answer(net: &mut Net, in_port: u16, frame: &Frame) -> Vec<u8> {
    let (outcome, bytes) = net.one(in_port, frame);
    assert_eq!(outcome, Outcome::Answered(in_port, DropReason::Rule));
    bytes
}

/// A segment to a rejecting rule gets what a closed port answers (RFC 9293, 3.10.7.1): to one with an
/// acknowledgement a reset with that number, to another a reset that acknowledges it.
#[test]
fn rejected_segments_get_resets() {
    let mut net = Net::new(&["add tcp-dport 80 reject"]);
    let syn = answer(&mut net, IN, &tcp(CLIENT, SERVER, SYN, 100, 0).payload(b"abc".as_slice()));
    assert_eq!(syn, reset(SERVER, CLIENT, RST | ACK, 0, 104));
    let data = answer(&mut net, IN, &tcp(CLIENT, SERVER, ACK, 100, 777).payload(b"abc".as_slice()));
    assert_eq!(data, reset(SERVER, CLIENT, RST, 777, 0));
    net.drops(IN, &tcp(CLIENT, SERVER, RST, 100, 0), DropReason::Rule);
    net.passes(IN, &tcp(CLIENT, (SERVER.0, 81), SYN, 100, 0));
    assert_eq!((net.matched(1), net.decided(1)), (3, 3));
    assert!(net.views().is_empty());
}

/// A reset as mmb makes it: a datagram of its own that goes back to where the segment came from.
fn reset(from: End, to: End, flags: u8, seq: u32, ack: u32) -> Vec<u8> {
    let ip = Ip4 { flags: 2, ..Ip4::new(from.0, to.0) };
    let frame = Frame::new(ip, Tcp { flags, seq, ack, window: 0, ..Tcp::new(from.1, to.1) });
    let mut bytes = frame.build();
    let (destination, rest) = bytes.split_at_mut(6);
    destination.swap_with_slice(&mut rest[..6]);
    bytes
}

/// Other packets get ICMP errors, unless RFC 1812, 4.3.2.7 forbids them, and 50 of them at once.
#[test]
fn other_rejected_packets_get_errors_within_the_limit() {
    let mut net = Net::new(&["add ! tcp-dport reject", "add udp-dport 53 accept"]);
    let datagram = udp(CLIENT, SERVER);
    let bytes = answer(&mut net, IN, &datagram);
    // Type 3, code 13, from the destination to the source, with the datagram.
    assert_eq!(
        (&bytes[26..30], &bytes[30..34], &bytes[34..36]),
        (&SERVER.0[..], &CLIENT.0[..], &[3, 13][..])
    );
    assert_eq!(&bytes[42..], &datagram.build()[14..]);
    net.passes(IN, &udp(CLIENT, (SERVER.0, 53)));
    net.drops(IN, &error(3, 3, CLIENT.0, SERVER.0, &udp(SERVER, CLIENT)), DropReason::Rule);
    net.drops(IN, &udp(CLIENT, ([224, 0, 0, 1], 80)), DropReason::Rule);
    net.drops(IN, &udp(([0; 4], 68), SERVER), DropReason::Rule);
    let answered = |net: &mut Net| net.one(IN, &datagram).0 == Outcome::Answered(IN, DropReason::Rule);
    assert_eq!((0..60).filter(|_| answered(&mut net)).count(), 49);
    net.wait(1_000);
    assert!(answered(&mut net));
}

/// A rule that rejects also answers packets of sessions that other rules have opened. Of a rule that drops
/// and one that rejects the first decides, and `accept` and `block` beat both.
#[test]
fn rules_that_reject_decide_as_rules_that_drop() {
    let open = "add-stateful udp-dport 80 mod ip-ttl 64";
    for reject in
        ["add udp-sport 80 reject", "add udp-sport 80 ip-ttl 64 reject", "add-stateful udp-sport 80 reject"]
    {
        let mut net = Net::new(&[open]);
        net.passes(IN, &udp(CLIENT, SERVER));
        net.passes(OUT, &udp(SERVER, CLIENT));
        net.change(&[open, reject]);
        for _ in 0..3 {
            answer(&mut net, OUT, &udp(SERVER, CLIENT));
        }
        assert_eq!(net.decided(2), 3, "{reject}");
        net.change(&[open]);
        net.passes(OUT, &udp(SERVER, CLIENT));
    }
    let mut net =
        Net::new(&["add ip-ttl 9 drop", "add all reject", "add ip-ttl 9 drop", "add ip-dscp 1 accept"]);
    let with = |ttl, tos| Frame::new(Ip4 { ttl, tos, ..Ip4::new(CLIENT.0, SERVER.0) }, Udp::new(9, 80));
    net.drops(IN, &with(9, 0), DropReason::Rule);
    answer(&mut net, IN, &with(8, 0));
    net.passes(IN, &with(9, 4));
    net.change(&["add all reject", "add ip-ttl 9 block", "add ip-ttl 8 drop"]);
    net.drops(IN, &with(9, 0), DropReason::Rule);
    answer(&mut net, IN, &with(8, 0));
}

/// A policy that still has the rule leaves the session alone; one that has it not ends it.
#[test]
fn changed_rules_apply_from_the_next_packet() {
    let accept = "add-stateful ip-proto tcp ip-saddr 10.0.0.0/24 accept";
    let drop = "add ip-proto tcp drop";
    let mut net = Net::new(&[accept, drop]);
    net.connect(CLIENT, SERVER);
    net.change(&["add udp-dport 9 drop", accept, "add-stateful ip-proto udp accept", drop]);
    net.passes(OUT, &tcp(SERVER, CLIENT, ACK, 501, 101));
    net.passes(IN, &tcp(CLIENT, SERVER, ACK, 101, 501));
    assert_eq!(net.view().rules, [2]);
    assert_eq!(net.counters().created, 1);
    net.change(&[drop]);
    net.drops(OUT, &tcp(SERVER, CLIENT, ACK, 501, 101), DropReason::Rule);
    assert_eq!((net.views(), net.counters().ended), (vec![], 1));
    // The same text again is another rule.
    net.change(&[accept, drop]);
    net.drops(OUT, &tcp(SERVER, CLIENT, ACK, 501, 101), DropReason::Rule);
    net.passes(IN, &tcp(CLIENT, SERVER, ACK, 101, 501));
    assert_eq!(net.view().state, "picked-up");
}

/// A session whose rule makes way for another that allows it goes on, whichever end sends next. If its first
/// packet is no longer allowed, it stops.
#[test]
fn sessions_are_judged_anew_by_their_first_packet() {
    let drop = "add all drop";
    let olds = ["add-stateful tcp-dport 80 accept", "add-stateful ip-saddr 10.0.0.0/24 tcp-syn accept"];
    let news = [
        "add-stateful tcp-dport {80,443} accept",
        "add-stateful ip-proto tcp tcp-syn accept",
        "add-stateful in port0 accept",
        "add-stateful out port1 tcp-dport 80 accept",
    ];
    let data = |port| match port {
        OUT => tcp(SERVER, CLIENT, ACK, 501, 101),
        _ => tcp(CLIENT, SERVER, ACK, 101, 501),
    };
    for (old, new) in olds.iter().flat_map(|old| news.iter().map(move |new| (*old, *new))) {
        for ports in [[OUT, IN], [IN, OUT]] {
            let mut net = Net::new(&[old, drop]);
            net.connect(CLIENT, SERVER);
            net.change(&[new, drop]);
            ports.iter().chain(&ports).for_each(|&port| net.passes(port, &data(port)));
            assert_eq!(
                (net.view().state, net.view().rules, net.counters().created),
                ("established", vec![1], 1)
            );
        }
    }
    for no_longer in [
        &["add-stateful tcp-dport 443 accept", drop][..],
        &["add-stateful ip-saddr 10.9.0.0/16 accept", drop],
        &["add-stateful tcp-dport {80,443} accept", "add ip-daddr 192.0.2.7 block", drop],
        &["add-stateful tcp-dport {80,443} nat p", "nat pool add p 200.0.0.1", "add in port1 drop"],
    ] {
        let mut net = Net::new(&[olds[0], drop]);
        net.connect(CLIENT, SERVER);
        net.change(no_longer);
        net.drops(OUT, &data(OUT), DropReason::Rule);
        assert!(net.views().is_empty(), "{no_longer:?}");
    }
}

/// Deleting one of two rules takes its part away, and no more.
#[test]
fn a_deleted_rule_loses_its_effect() {
    let accept = "add-stateful ip-proto udp accept";
    let mut net = Net::new(&[accept, "add-stateful udp-dport 53 mod ip-ttl 9", "add all drop"]);
    let with = |ttl| Frame::new(Ip4 { ttl, ..Ip4::new(CLIENT.0, SERVER.0) }, Udp::new(CLIENT.1, 53));
    net.becomes(IN, &with(64), &with(9));
    net.becomes(IN, &with(64), &with(9));
    net.change(&[accept, "add all drop"]);
    net.passes(IN, &with(64));
    net.passes(IN, &with(64));
    assert_eq!(net.counters().created, 1);
}

/// Percentages are drawn for each packet.
#[test]
fn random_matches_have_their_share() {
    let mut net = Net::new(&["add-stateful ip-proto udp mod ip-ttl 64", "add udp-dport 80 drop 25"]);
    let dropped =
        (0..4000).filter(|_| net.one(IN, &udp(CLIENT, SERVER)).0 == Outcome::Dropped(DropReason::Rule));
    let dropped = dropped.count();
    assert!((900..1100).contains(&dropped), "{dropped}");
    assert_eq!(net.matched(2), 4000);
}

/// A direction's packets may come in by another port: rules about ports are asked again.
#[test]
fn the_input_port_counts() {
    let mut net = Net::new(&["add-stateful ip-proto udp mod ip-ttl 64", "add in port2 drop"]);
    net.passes(IN, &udp(CLIENT, SERVER));
    net.drops(2, &udp(CLIENT, SERVER), DropReason::Rule);
    net.passes(IN, &udp(CLIENT, SERVER));
    assert_eq!(net.counters().created, 1);
}

/// Timeouts are those of the state, from the last packet of either direction on.
#[test]
fn sessions_expire() {
    let timeouts = Timeouts {
        udp_unreplied: 10_000,
        udp_replied: 30_000,
        tcp_established: 100_000,
        ..Timeouts::default()
    };
    let rules = rules_with(
        &["add-stateful all accept"],
        SessionSettings { timeouts, ..SessionSettings::default() },
        None,
    );
    let mut net = Net::with(rules, 1, 100);
    net.passes(IN, &udp(CLIENT, SERVER));
    net.wait(9_000);
    net.passes(IN, &udp(CLIENT, SERVER));
    net.wait(9_900);
    assert_eq!(net.view().expires, 100);
    net.wait(200);
    assert_eq!((net.views().len(), net.counters().expired), (0, 1));
    net.passes(IN, &udp(CLIENT, SERVER));
    net.passes(OUT, &udp(SERVER, CLIENT));
    net.connect((CLIENT.0, 7), SERVER);
    net.wait(29_900);
    assert_eq!(net.views().len(), 2);
    net.wait(200);
    assert_eq!(net.view().state, "established");
    net.wait(70_100);
    let counters = net.counters();
    assert_eq!((counters.sessions, counters.half_open, counters.decisions, counters.expired), (0, 0, 0, 3));
}

/// When the table is full, a half-open session makes room; those that were answered never do.
#[test]
fn half_open_sessions_make_room() {
    let mut net = Net::with(rules(&["add-stateful all accept"]), 1, 8);
    for port in 0..4 {
        net.connect((CLIENT.0, port), SERVER);
    }
    for port in 100..1000 {
        net.passes(IN, &tcp((CLIENT.0, port), SERVER, SYN, 1, 0));
    }
    let counters = net.counters();
    assert_eq!((counters.sessions, counters.half_open, counters.evicted), (8, 4, 900 - 4));
    for port in 0..4 {
        net.passes(OUT, &tcp(SERVER, (CLIENT.0, port), ACK, 501, 101));
    }
    assert_eq!(net.views().iter().filter(|view| view.state == "established").count(), 4);
    for port in 4..8 {
        net.connect((CLIENT.0, port), SERVER);
    }
    net.drops(IN, &tcp((CLIENT.0, 2000), SERVER, SYN, 1, 0), DropReason::SessionFull);
    assert_eq!(net.counters().refused_full, 1);
}

/// A new connection from the same port takes the closed one's place.
#[test]
fn a_source_port_is_reused() {
    let mut net = Net::new(&["add-stateful ip-proto tcp ip-saddr 10.0.0.0/24 accept"]);
    net.connect(CLIENT, SERVER);
    net.passes(IN, &tcp(CLIENT, SERVER, FIN | ACK, 101, 501));
    net.passes(OUT, &tcp(SERVER, CLIENT, FIN | ACK, 501, 102));
    net.passes(IN, &tcp(CLIENT, SERVER, ACK, 102, 502));
    assert_eq!(net.view().state, "closed");
    net.passes(IN, &tcp(CLIENT, SERVER, SYN, 90_000, 0));
    assert_eq!((net.view().state, net.counters().replaced), ("syn-sent", 1));
}

/// With pick-up off only a SYN opens a session.
#[test]
fn pick_up_can_be_off() {
    let settings = SessionSettings { tcp_pickup: false, ..SessionSettings::default() };
    let mut net = Net::with(rules_with(&["add-stateful all accept"], settings, None), 1, 8);
    net.drops(IN, &tcp(CLIENT, SERVER, ACK, 1, 1), DropReason::SessionMiddle);
    net.connect(CLIENT, SERVER);
    assert_eq!(net.counters().refused_middle, 1);
}

#[test]
fn ip6_and_other_protocols_have_sessions() {
    let mut net = Net::new(&["add-stateful in port0 accept", "add all drop"]);
    let (client, server) = ([0xfd, 1, 0, 0, 0, 0, 0, 1], [0xfd, 2, 0, 0, 0, 0, 0, 2]);
    let there = Frame::new(Ip6::new(client, server), Udp::new(7, 53));
    let back = Frame::new(Ip6::new(server, client), Udp::new(53, 7));
    let gre = |from: [u8; 4], to: [u8; 4]| {
        Frame::new(Ip4::new(from, to), mmb_packet::build::Transport::Raw(47)).payload(b"tunnel".as_slice())
    };
    net.drops(OUT, &back, DropReason::Rule);
    net.passes(IN, &there);
    net.passes(OUT, &back);
    net.drops(OUT, &gre(SERVER.0, CLIENT.0), DropReason::Rule);
    net.passes(IN, &gre(CLIENT.0, SERVER.0));
    net.passes(OUT, &gre(SERVER.0, CLIENT.0));
    // A's ping to B has nothing to do with B's ping to A.
    net.passes(IN, &ping(CLIENT.0, SERVER.0, 5));
    net.passes(OUT, &pong(SERVER.0, CLIENT.0, 5));
    net.drops(OUT, &ping(SERVER.0, CLIENT.0, 5), DropReason::Rule);
    assert_eq!(net.views().len(), 3);
}

/// ICMP errors about a session's packets belong to the session.
#[test]
fn errors_belong_to_the_session() {
    let mut net = Net::new(&["add-stateful ip-saddr 10.0.0.0/24 accept", "add all drop"]);
    let sent = udp(CLIENT, SERVER);
    let complaint = error(11, 0, [198, 51, 100, 1], CLIENT.0, &sent);
    net.drops(OUT, &complaint, DropReason::Rule);
    net.passes(IN, &sent);
    net.passes(OUT, &complaint);
    net.drops(
        OUT,
        &error(11, 0, [198, 51, 100, 1], CLIENT.0, &udp(CLIENT, (SERVER.0, 81))),
        DropReason::Rule,
    );
    assert_eq!(net.counters().icmp_errors, 1);
}

#[test]
fn sessions_are_cleared_by_hand() {
    let mut net = Net::new(&["add-stateful all accept"]);
    for port in 0..20 {
        net.passes(IN, &udp((CLIENT.0, port), SERVER));
    }
    let views = net.views();
    let (workers, rules) = net.harness.workers_mut();
    assert!(
        workers[0].clear(views[3].id, views[3].uid, rules)
            && !workers[0].clear(views[3].id, views[3].uid, rules)
    );
    assert!(!workers[0].clear(views[4].id, views[4].uid + 1, rules), "another one's");
    assert!(workers[0].clear_batch(10, rules) && !workers[0].clear_batch(10, rules));
    let counters = net.counters();
    assert_eq!((counters.sessions, counters.cleared, counters.ended, counters.decisions), (0, 1, 19, 0));
}
