//! NAT by pools and forwards: mappings, filtering, hairpins, ICMP errors, limits.

mod common;

use common::*;
use mmb_packet::DropReason;
use mmb_packet::build::{Frame, Icmp, Ip4, Transport};
use mmb_session_harness::Outcome;

const CLIENT: End = ([10, 0, 0, 1], 40_000);
const OTHER: End = ([10, 0, 0, 2], 40_000);
const SERVER: End = ([192, 0, 2, 7], 80);
const NAT: [u8; 4] = [200, 0, 0, 1];

const POOL: &str = "nat pool add p 200.0.0.1";
const USE: &str = "add-stateful ip-saddr 10.0.0.0/8 nat p";

/// One mapping for all that an inside end talks to; nobody else is let in, or the known, or all.
#[test]
fn pools_map_ends() {
    for (filtering, lets) in [
        ("endpoint-independent", [true, true]),
        ("address-dependent", [true, false]),
        ("address-and-port-dependent", [false, false]),
    ] {
        let mut net = Net::new(&[&format!("{POOL} filtering {filtering}"), USE]);
        let shown: End = (NAT, CLIENT.1);
        net.drops(OUT, &udp(SERVER, shown), DropReason::NatUnmapped);
        net.becomes(IN, &udp(CLIENT, SERVER), &udp(shown, SERVER));
        net.becomes(IN, &udp(CLIENT, ([192, 0, 2, 8], 53)), &udp(shown, ([192, 0, 2, 8], 53)));
        net.becomes(OUT, &udp(SERVER, shown), &udp(SERVER, CLIENT));
        for (from, lets) in [((SERVER.0, 81), lets[0]), (([198, 51, 100, 1], 9), lets[1])] {
            let before = net.views().len();
            if !lets {
                net.drops(OUT, &udp(from, shown), DropReason::NatFiltered);
                continue;
            }
            net.becomes(OUT, &udp(from, shown), &udp(from, CLIENT));
            net.becomes(IN, &udp(CLIENT, from), &udp(shown, from));
            net.becomes(OUT, &udp(from, shown), &udp(from, CLIENT));
            assert_eq!(net.views().len(), before + 1);
        }
        // Another host with the same port has another end.
        let other = source(&net.one(IN, &udp(OTHER, SERVER)).1);
        assert!(other.0 == NAT && other.1 != CLIENT.1);
        // When all is over, so is the mapping.
        net.wait(1_000_000);
        net.drops(OUT, &udp(SERVER, shown), DropReason::NatUnmapped);
        assert_eq!((net.views(), net.harness.workers()[0].nat().mappings()), (vec![], 0));
    }
}

/// A mapping lets nobody in once its rule is gone, though sessions hold it until their next packets.
#[test]
fn mappings_end_with_their_rule() {
    let mut net = Net::new(&[&format!("{POOL} filtering endpoint-independent"), USE]);
    let shown: End = (NAT, CLIENT.1);
    for server in 7..9 {
        let server: End = ([192, 0, 2, server], 80);
        net.becomes(IN, &udp(CLIENT, server), &udp(shown, server));
    }
    net.change(&[&format!("{POOL} filtering endpoint-independent")]);
    for from in [SERVER, ([198, 51, 100, 1], 9), ([192, 0, 2, 8], 80)] {
        net.drops(OUT, &udp(from, shown), DropReason::NatUnmapped);
    }
    assert_eq!((net.views(), net.harness.workers()[0].nat().mappings()), (vec![], 0));
}

/// Filtering goes by whom a host really talks to.
#[test]
fn filtering_uses_translated_destinations() {
    let vip: End = ([192, 0, 2, 100], 80);
    let mut net = Net::new(&[POOL, USE, "add-stateful ip-daddr 192.0.2.100 lb 192.0.2.7"]);
    let shown: End = (NAT, CLIENT.1);
    net.becomes(IN, &udp(CLIENT, vip), &udp(shown, SERVER));
    net.becomes(OUT, &udp(SERVER, shown), &udp(vip, CLIENT));
    net.becomes(OUT, &udp((SERVER.0, 81), shown), &udp((SERVER.0, 81), CLIENT));
    net.drops(OUT, &udp(vip, shown), DropReason::NatFiltered);
    net.wait(1_000_000);
    assert_eq!((net.views(), net.harness.workers()[0].nat().mappings()), (vec![], 0));
}

/// A reply that nobody asked for is not taken for a query, whatever its identifier looks like.
#[test]
fn replies_need_no_forward() {
    let mut net = Net::new(&[POOL, USE]);
    for id in [8, 13, 15, 17, 99] {
        net.drops(IN, &pong(CLIENT.0, SERVER.0, id), DropReason::NatFailed);
        net.drops(OUT, &ping(SERVER.0, NAT, id), DropReason::NatUnmapped);
    }
    assert_eq!(net.views(), []);
}

#[test]
fn pings_and_traceroute_pass_a_pool() {
    let mut net = Net::new(&[POOL, USE]);
    let [first, id] = [CLIENT, OTHER].map(|host| {
        let shown = net.one(IN, &ping(host.0, SERVER.0, 9)).1;
        let id = u16::from_be_bytes([shown[38], shown[39]]);
        assert_eq!(shown, ping(NAT, SERVER.0, id).build());
        id
    });
    assert_ne!(first, id);
    net.becomes(OUT, &pong(SERVER.0, NAT, first), &pong(SERVER.0, CLIENT.0, 9));
    net.becomes(OUT, &pong(SERVER.0, NAT, id), &pong(SERVER.0, OTHER.0, 9));
    // A router on the way says that time is up, about a ping and about a datagram.
    let router = [198, 51, 100, 1];
    net.becomes(
        OUT,
        &error(11, 0, router, NAT, &ping(NAT, SERVER.0, id)),
        &error(11, 0, router, OTHER.0, &ping(OTHER.0, SERVER.0, 9)),
    );
    net.becomes(IN, &udp(CLIENT, SERVER), &udp((NAT, CLIENT.1), SERVER));
    net.becomes(
        OUT,
        &error(3, 4, router, NAT, &udp((NAT, CLIENT.1), SERVER)),
        &error(3, 4, router, CLIENT.0, &udp(CLIENT, SERVER)),
    );
    // About nothing that was sent: it is not let in, and not out either (RFC 5508 REQ-4, REQ-5).
    net.drops(OUT, &error(3, 4, router, NAT, &udp((NAT, 1), SERVER)), DropReason::IcmpQuote);
    net.drops(IN, &error(3, 3, CLIENT.0, SERVER.0, &udp(SERVER, (CLIENT.0, 1))), DropReason::IcmpQuote);
    // The inside complains about a reply: its address is not shown, and a router's neither.
    net.becomes(OUT, &udp(SERVER, (NAT, CLIENT.1)), &udp(SERVER, CLIENT));
    for complainer in [CLIENT.0, [10, 9, 9, 9]] {
        net.becomes(
            IN,
            &error(3, 3, complainer, SERVER.0, &udp(SERVER, CLIENT)),
            &error(3, 3, NAT, SERVER.0, &udp(SERVER, (NAT, CLIENT.1))),
        );
    }
}

/// A forward needs no rule and no packet from inside.
#[test]
fn forwards_admit_sessions_from_outside() {
    let mut net = Net::new(&["nat forward add tcp 200.0.0.1 8080 to 10.0.0.2 80", POOL, USE]);
    let (client, port_forward, server): (End, End, End) =
        (([198, 51, 100, 9], 5000), (NAT, 8080), ([10, 0, 0, 2], 80));
    net.becomes(OUT, &tcp(client, port_forward, SYN, 1, 0), &tcp(client, server, SYN, 1, 0));
    net.becomes(IN, &tcp(server, client, SYN | ACK, 5, 2), &tcp(port_forward, client, SYN | ACK, 5, 2));
    net.becomes(OUT, &tcp(client, port_forward, ACK, 2, 6), &tcp(client, server, ACK, 2, 6));
    net.drops(OUT, &udp(client, port_forward), DropReason::NatUnmapped);
    net.drops(OUT, &tcp(client, (NAT, 8081), SYN, 1, 0), DropReason::NatUnmapped);
    // It goes on when rules change, and ends when the forward does.
    net.change(&["nat forward add tcp 200.0.0.1 8080 to 10.0.0.2 80", POOL, USE, "add udp-dport 1 drop"]);
    net.becomes(IN, &tcp(server, client, ACK, 6, 2), &tcp(port_forward, client, ACK, 6, 2));
    net.change(&[POOL, USE]);
    net.drops(OUT, &tcp(client, port_forward, ACK, 2, 6), DropReason::NatUnmapped);
}

/// Inside hosts reach each other by their external ends.
#[test]
fn hairpins() {
    for workers in 1..4 {
        let lines = [
            &format!("{POOL} filtering endpoint-independent"),
            USE,
            "nat forward add udp 200.0.0.1 53 to 10.0.0.9 5353",
        ];
        let mut net = Net::with(rules(&lines), workers, 100);
        let mac = |n| [2, 9, 9, 9, 9, n];
        let router = mac(0xff);
        let at = |n, frame: Frame| frame.macs(mac(n), router);
        net.one(IN, &at(2, udp(OTHER, SERVER)));
        let first = source(&net.one(IN, &at(1, udp(CLIENT, SERVER))).1);
        let shown = |net: &Net, of: End| {
            let views = net.views();
            let view = views
                .iter()
                .find(|v| v.original.source[..4] == of.0 && v.original.destination[..4] == SERVER.0);
            let reply = view.expect("there is a session").reply;
            (NAT, u16::from_be_bytes(reply.destination_port))
        };
        let (one, two) = (shown(&net, CLIENT), shown(&net, OTHER));
        assert_eq!(first, one);
        for _ in 0..3 {
            let (outcome, bytes) = net.one(IN, &at(1, udp(CLIENT, two)));
            assert_eq!(outcome, Outcome::Out(IN));
            assert_eq!(bytes, udp(one, OTHER).macs(router, mac(2)).build());
            let (outcome, bytes) = net.one(IN, &at(2, udp(OTHER, one)));
            assert_eq!(outcome, Outcome::Out(IN));
            assert_eq!(bytes, udp(two, CLIENT).macs(router, mac(1)).build());
        }
        // An error about it finds its way back.
        let (outcome, bytes) =
            net.one(IN, &at(2, error(3, 3, OTHER.0, one.0, &udp(one, OTHER).macs(router, mac(2)))));
        assert_eq!(outcome, Outcome::Out(IN));
        assert_eq!(bytes, error(3, 3, two.0, CLIENT.0, &udp(CLIENT, two)).macs(router, mac(1)).build());
        // To a forward, whose host has not been seen: the frame goes on along the wire.
        let port_forward: End = (NAT, 53);
        let (outcome, bytes) = net.one(IN, &at(1, udp(CLIENT, port_forward)));
        let server: End = ([10, 0, 0, 9], 5353);
        assert_eq!((outcome, bytes), (Outcome::Out(OUT), at(1, udp(one, server)).build()));
        net.one(IN, &at(9, udp(server, one)));
        let (outcome, bytes) = net.one(IN, &at(1, udp(CLIENT, port_forward)));
        assert_eq!((outcome, bytes), (Outcome::Out(IN), udp(one, server).macs(router, mac(9)).build()));
    }
}

/// A host that a rule translates, not a pool, reaches a forward's host, and is reached by it.
#[test]
fn hairpins_by_a_rule() {
    for workers in 1..4 {
        for n in 0..8 {
            let lines = [
                "nat forward add udp 200.0.0.1 53 to 10.0.0.9 5353",
                "add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 200.0.0.8",
            ];
            let mut net = Net::with(rules(&lines), workers, 100);
            let (client, shown): (End, End) = (([10, 0, 0, n], 4000), ([200, 0, 0, 8], 4000));
            let (port_forward, server): (End, End) = ((NAT, 53), ([10, 0, 0, 9], 5353));
            for _ in 0..3 {
                // Nobody has told where the hosts are but the forward's host by its replies: frames stay on
                // the wire.
                let (outcome, bytes) = net.one(IN, &udp(client, port_forward));
                assert!(matches!(outcome, Outcome::Out(_)), "{outcome:?}");
                assert_eq!(bytes[14..], udp(shown, server).build()[14..]);
                let (outcome, bytes) = net.one(IN, &udp(server, shown));
                assert!(matches!(outcome, Outcome::Out(_)), "{outcome:?}");
                assert_eq!(bytes[14..], udp(port_forward, client).build()[14..]);
            }
        }
    }
}

/// Errors from inside about sessions that came in by a forward, before and after the first reply, with any
/// worker.
#[test]
fn errors_from_behind_a_forward() {
    for workers in 1..5 {
        for n in 0..8 {
            let lines = ["nat forward add udp 200.0.0.1 8080 to 10.0.0.2 80"];
            let mut net = Net::with(rules(&lines), workers, 100);
            let (client, port_forward, server): (End, End, End) =
                (([198, 51, 100, n], 5000), (NAT, 8080), ([10, 0, 0, 2], 80));
            let complains = |net: &mut Net| {
                let (about, shown) = (udp(client, server), udp(client, port_forward));
                net.becomes(
                    IN,
                    &error(3, 3, server.0, client.0, &about),
                    &error(3, 3, NAT, client.0, &shown),
                );
            };
            net.becomes(OUT, &udp(client, port_forward), &udp(client, server));
            complains(&mut net);
            net.becomes(IN, &udp(server, client), &udp(port_forward, client));
            complains(&mut net);
        }
    }
}

/// Who has too many, or comes too late, is told so.
#[test]
fn limits_and_exhaustion_are_answered() {
    let mut net = Net::new(&["nat pool add p 200.0.0.1 ports 2000-2003 limit 3", USE]);
    for port in 0..3 {
        assert_eq!(net.one(IN, &udp((CLIENT.0, port), SERVER)).0, Outcome::Out(OUT));
    }
    let (outcome, bytes) = net.one(IN, &udp((CLIENT.0, 3), SERVER));
    assert_eq!(outcome, Outcome::Answered(IN, DropReason::NatLimit));
    let expected =
        error(3, 13, NAT, CLIENT.0, &udp((CLIENT.0, 3), SERVER)).macs([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]);
    assert_eq!((&bytes[..12], &bytes[26..]), (&expected.build()[..12], &expected.build()[26..]));
    assert_eq!(net.one(IN, &udp(OTHER, SERVER)).0, Outcome::Out(OUT));
    let (outcome, _) = net.one(IN, &udp(([10, 0, 0, 3], 1), SERVER));
    assert_eq!(outcome, Outcome::Answered(IN, DropReason::NatExhausted));
    let counters = net.counters();
    assert_eq!((counters.refused_limit, counters.refused_exhausted, counters.answered), (1, 1, 2));
}

/// A rule that translates takes its sessions along when it goes; so does a pool.
#[test]
fn a_deleted_translation_ends_its_sessions() {
    let both = [POOL, USE, "add-stateful ip-proto udp accept"];
    let mut net = Net::new(&both);
    net.becomes(IN, &udp(CLIENT, SERVER), &udp((NAT, CLIENT.1), SERVER));
    net.change(&[POOL, both[2]]);
    net.passes(IN, &udp(CLIENT, SERVER));
    assert_eq!((net.counters().created, net.counters().ended), (2, 1));
    net.wait(1_000_000);
    net.change(&both);
    net.becomes(IN, &udp(CLIENT, SERVER), &udp((NAT, CLIENT.1), SERVER));
    net.change(&["nat pool add p 200.0.0.9", USE, both[2]]);
    net.becomes(IN, &udp(CLIENT, SERVER), &udp(([200, 0, 0, 9], CLIENT.1), SERVER));
    assert_eq!(net.counters().ended, 2);
}

/// RFC 8335: extended echo has an identifier like echo.
#[test]
fn extended_echo_passes_a_pool() {
    let mut net = Net::new(&[POOL, USE]);
    let query = |kind, from, to, id: u16| {
        let [high, low] = id.to_be_bytes();
        let icmp = Icmp { rest: [high, low, 1, 1], ..Icmp::new(kind) };
        Frame::new(Ip4::new(from, to), icmp).payload([7; 12])
    };
    let mut identifiers = Vec::new();
    // Two hosts with the same identifier get different ones.
    for host in [CLIENT.0, OTHER.0] {
        let sent = net.one(IN, &query(42, host, SERVER.0, 9)).1;
        let id = u16::from_be_bytes([sent[38], sent[39]]);
        assert_eq!(sent, query(42, NAT, SERVER.0, id).build());
        net.becomes(OUT, &query(43, SERVER.0, NAT, id), &query(43, SERVER.0, host, 9));
        identifiers.push(id);
    }
    assert_ne!(identifiers[0], identifiers[1]);
}

/// Protocols without ports: replies could not be told apart, so each server talks to one host by an address.
#[test]
fn portless_protocols_have_one_host_for_each_server() {
    for proto in [47, 50, 132] {
        let packet = |from, to| Frame::new(Ip4::new(from, to), Transport::Raw(proto)).payload([9; 24]);
        let mut net = Net::new(&[POOL, USE]);
        net.becomes(IN, &packet(CLIENT.0, SERVER.0), &packet(NAT, SERVER.0));
        let (outcome, _) = net.one(IN, &packet(OTHER.0, SERVER.0));
        assert_eq!(outcome, Outcome::Answered(IN, DropReason::NatExhausted));
        let elsewhere = [192, 0, 2, 8];
        net.becomes(IN, &packet(OTHER.0, elsewhere), &packet(NAT, elsewhere));
        net.becomes(OUT, &packet(SERVER.0, NAT), &packet(SERVER.0, CLIENT.0));
        net.becomes(OUT, &packet(elsewhere, NAT), &packet(elsewhere, OTHER.0));
    }
}
