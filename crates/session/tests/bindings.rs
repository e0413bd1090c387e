//! What rules bind to the sessions that they open: addresses, ports, servers, numbers.

mod common;

use std::collections::HashSet;

use common::*;
use mmb_packet::build::{Extension, Frame, Icmp, Ip4, Ip6, Tcp, Transport, Udp};
use mmb_packet::{DropReason, PacketBuf, VecPacket};
use mmb_session_harness::{Outcome, SessionHarness};

const CLIENT: End = ([10, 0, 0, 1], 40_000);
const OTHER: End = ([10, 0, 0, 2], 40_000);
const SERVER: End = ([192, 0, 2, 7], 80);
const NAT: [u8; 4] = [200, 0, 0, 1];

/// Both examples of the language's description: source NAT with a random port, opened by SYNs or by anything.
#[test]
fn the_papers_examples() {
    for rule in [
        "add-stateful ip-saddr 10.0.0.0/24 ip-proto tcp tcp-syn shuffle tcp-sport mod ip-saddr 200.0.0.1",
        "add-stateful ip-saddr 10.0.0.0/24 ip-proto tcp map ip-saddr 200.0.0.1 shuffle tcp-sport",
    ] {
        let mut net = Net::new(&[rule]);
        let mut ports = HashSet::new();
        for n in 0..50 {
            let client: End = (CLIENT.0, 1000 + n);
            let (outcome, out) = net.one(IN, &tcp(client, SERVER, SYN, 100, 0));
            let shown = source(&out);
            assert_eq!((outcome, shown.0), (Outcome::Out(OUT), NAT));
            assert_eq!(out, tcp(shown, SERVER, SYN, 100, 0).build());
            assert!(shown.1 >= 1024 && ports.insert(shown.1), "{shown:?}");
            net.becomes(OUT, &tcp(SERVER, shown, SYN | ACK, 7, 101), &tcp(SERVER, client, SYN | ACK, 7, 101));
            net.becomes(IN, &tcp(client, SERVER, ACK, 101, 8), &tcp(shown, SERVER, ACK, 101, 8));
            net.becomes(OUT, &tcp(SERVER, shown, ACK, 8, 101), &tcp(SERVER, client, ACK, 8, 101));
        }
    }
}

/// Hosts with the same port to the same place get ports of their own; the first one keeps it, others its
/// parity.
#[test]
fn a_port_that_is_taken_is_replaced() {
    let mut net = Net::new(&["add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 200.0.0.1"]);
    let mut seen = HashSet::new();
    for host in 0..2000u16 {
        let [high, low] = host.to_be_bytes();
        let client: End = ([10, 0, high, low], 40_001);
        let shown = source(&net.one(IN, &udp(client, SERVER)).1);
        assert_eq!((shown.0, shown.1 % 2), (NAT, 1));
        assert!(seen.insert(shown.1));
        net.becomes(OUT, &udp(SERVER, shown), &udp(SERVER, client));
        net.becomes(IN, &udp(client, SERVER), &udp(shown, SERVER));
        if host >= 900 {
            break;
        }
    }
    assert!(seen.contains(&40_001));
    // Another destination: the port is free there.
    net.becomes(IN, &udp(OTHER, (SERVER.0, 81)), &udp((NAT, OTHER.1), (SERVER.0, 81)));
    // Well-known ports stand for well-known ports.
    net.becomes(IN, &udp((CLIENT.0, 123), SERVER), &udp((NAT, 123), SERVER));
    let shown = source(&net.one(IN, &udp((OTHER.0, 123), SERVER)).1);
    assert!(shown.1 < 1024 && shown.1 % 2 == 1 && shown.1 != 123, "{shown:?}");
}

/// 64,000 hosts with one port to one place over one address; then there is nothing left, and hosts are told.
#[test]
fn sixty_four_thousand_hosts_with_the_same_port() {
    for workers in [1, 2] {
        let lines = ["add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 200.0.0.1"];
        let mut net = Net::with(rules(&lines), workers, 70_000);
        let mut seen = HashSet::new();
        for host in 0..64_000u32 {
            let [_, a, b, c] = host.to_be_bytes();
            let client: End = ([10, a, b, c], 5_000);
            let (outcome, bytes) = net.one(IN, &udp(client, SERVER));
            assert_eq!(outcome, Outcome::Out(OUT), "{host}");
            let shown = source(&bytes);
            assert!(seen.insert(shown.1));
            if host % 1000 == 0 {
                net.becomes(OUT, &udp(SERVER, shown), &udp(SERVER, client));
            }
        }
        let mut answered = 0;
        for host in 64_000..65_000u32 {
            let [_, a, b, c] = host.to_be_bytes();
            let client: End = ([10, a, b, c], 5_000);
            match net.one(IN, &udp(client, SERVER)) {
                (Outcome::Out(OUT), bytes) => assert!(seen.insert(source(&bytes).1)),
                (Outcome::Answered(IN, DropReason::NatExhausted), bytes) => {
                    answered += 1;
                    // The error comes from the address that there is no room behind (RFC 5508 REQ-8).
                    let told = error(3, 13, NAT, client.0, &udp(client, SERVER));
                    assert_eq!(
                        (&bytes[12..15], &bytes[26..38]),
                        (&told.build()[12..15], &told.build()[26..38])
                    );
                }
                (outcome, _) => assert_eq!(outcome, Outcome::Dropped(DropReason::NatExhausted)),
            }
        }
        assert_eq!(seen.len(), 64_512, "all ports are used: 1024 to 65535");
        assert_eq!(answered, 50 * usize::from(workers), "no more errors than each worker's budget allows");
    }
}

/// Ports and addresses out of sets; the destination's are undone, too.
#[test]
fn sets_of_addresses_and_ports() {
    let mut net = Net::new(&[
        "add-stateful ip-saddr 10.0.0.0/8 ip-proto udp map ip-saddr 200.0.0.0/30 map udp-sport 700-703 map udp-dport 53",
    ]);
    let mut shown = HashSet::new();
    for host in 0..200 {
        let client: End = ([10, 0, 0, host], 5);
        let (outcome, bytes) = net.one(IN, &udp(client, SERVER));
        if outcome != Outcome::Out(OUT) {
            continue;
        }
        let from = source(&bytes);
        assert!(from.0[..3] == [200, 0, 0] && from.0[3] < 4 && (700..704).contains(&from.1), "{from:?}");
        assert_eq!(bytes, udp(from, (SERVER.0, 53)).build());
        assert!(shown.insert(from), "{from:?}");
        net.becomes(OUT, &udp((SERVER.0, 53), from), &udp(SERVER, client));
    }
    assert_eq!(shown.len(), 16);
}

/// A connection to one address is spread over servers, each connection staying where it is.
#[test]
fn load_is_balanced() {
    let mut net = Net::new(&["add-stateful ip-daddr 192.0.2.7 tcp-dport 80 lb 10.1.0.1 10.1.0.2 10.1.0.3"]);
    let mut shares = [0; 3];
    for port in 0..600u16 {
        let client: End = ([198, 51, 100, 9], 1024 + port);
        let (_, bytes) = net.one(OUT, &tcp(client, SERVER, SYN, 1, 0));
        let server = destination(&bytes);
        assert_eq!(bytes, tcp(client, server, SYN, 1, 0).build());
        assert_eq!((server.0[..3].to_vec(), server.1), (vec![10, 1, 0], 80));
        shares[usize::from(server.0[3]) - 1] += 1;
        net.becomes(IN, &tcp(server, client, SYN | ACK, 1, 2), &tcp(SERVER, client, SYN | ACK, 1, 2));
        net.becomes(OUT, &tcp(client, SERVER, ACK, 2, 2), &tcp(client, server, ACK, 2, 2));
    }
    assert!(shares.iter().all(|share| (150..250).contains(share)), "{shares:?}");
}

/// The server of an IPv6 connection depends on the seed: without it, no client can choose its server.
#[test]
fn the_seed_selects_the_server_of_an_ip6_connection() {
    let servers = |seed| -> Vec<u8> {
        let rules = rules(&["add-stateful ip6-daddr 2001:db8::7 lb 2001:db8:1::1 2001:db8:1::2"]);
        let mut harness = SessionHarness::new(1, 1000, seed, rules).expect("memory");
        let [client, vip]: [[u8; 16]; 2] = ["2001:db8:2::1", "2001:db8::7"]
            .map(|text| text.parse::<std::net::Ipv6Addr>().expect("an address").octets());
        let mut server = |port| {
            let frame = Frame::new(Ip6::new(client, vip), Udp::new(port, 53)).build();
            let sent = harness.process(OUT, VecPacket::new(&frame));
            assert_eq!((sent.len(), sent[0].outcome), (1, Outcome::Out(IN)));
            sent[0].packet.head()[14 + 39]
        };
        (1000..1064).map(&mut server).collect()
    };
    let (first, second) = (servers(1), servers(2));
    assert_eq!(first, servers(1), "a fixed seed makes the same choices");
    let different = first.iter().zip(&second).filter(|(a, b)| a != b).count();
    assert!((16..48).contains(&different), "{different} of 64");
}

#[test]
fn ip6_is_translated() {
    let mut net = Net::new(&[
        "add-stateful ip6-saddr fd01::/16 map ip6-saddr 2001:db8::1 map ip6-daddr 2001:db8::2 map udp-dport 5353",
    ]);
    let [inside, vip, nat, server]: [[u8; 16]; 4] = ["fd01::5", "fd02::2", "2001:db8::1", "2001:db8::2"]
        .map(|text| text.parse::<std::net::Ipv6Addr>().expect("an address").octets());
    let frame = |from: [u8; 16], to: [u8; 16], transport: Transport| {
        let ip = Ip6::new(from, to).with([Extension::Plain { number: 0, body: vec![1, 4] }]);
        Frame::new(ip, transport).payload(b"xyz".as_slice())
    };
    let udp = |from, to, ports: [u16; 2]| frame(from, to, Udp::new(ports[0], ports[1]).into());
    for _ in 0..2 {
        net.becomes(IN, &udp(inside, vip, [7, 53]), &udp(nat, server, [7, 5353]));
        net.becomes(OUT, &udp(server, nat, [5353, 7]), &udp(vip, inside, [53, 7]));
    }
    let ping = |kind, from, to| frame(from, to, Icmp { rest: [0, 9, 0, 1], ..Icmp::new(kind) }.into());
    net.becomes(IN, &ping(128, inside, vip), &ping(128, nat, server));
    net.becomes(OUT, &ping(129, server, nat), &ping(129, vip, inside));
}

/// Sequence numbers of both sides are others than they seem, in SACK blocks, too.
#[test]
fn sequence_numbers_are_replaced() {
    let mut net = Net::new(&[
        "add-stateful tcp-dport 80 map tcp-seq-num 1000000 map tcp-ack-num 5000000 map ip-saddr 200.0.0.1",
    ]);
    let shown: End = (NAT, CLIENT.1);
    let sack = |frame: [u32; 2]| {
        let mut options = vec![1, 1, 5, 10];
        frame.iter().for_each(|edge| options.extend(edge.to_be_bytes()));
        options
    };
    let with = |from: End, to: End, flags, seq, ack, options: &[u8]| {
        let tcp = Tcp { flags, seq, ack, options: options.to_vec(), ..Tcp::new(from.1, to.1) };
        Frame::new(Ip4::new(from.0, to.0), tcp)
    };
    net.becomes(IN, &tcp(CLIENT, SERVER, SYN, 77, 0), &tcp(shown, SERVER, SYN, 1_000_000, 0));
    // A retransmission before the answer.
    net.becomes(IN, &tcp(CLIENT, SERVER, SYN, 77, 0), &tcp(shown, SERVER, SYN, 1_000_000, 0));
    net.becomes(
        OUT,
        &tcp(SERVER, shown, SYN | ACK, 900, 1_000_001),
        &tcp(SERVER, CLIENT, SYN | ACK, 5_000_000, 78),
    );
    net.becomes(IN, &tcp(CLIENT, SERVER, ACK, 78, 5_000_001), &tcp(shown, SERVER, ACK, 1_000_001, 901));
    assert_eq!(net.view().state, "established");
    for n in 0..3 {
        net.becomes(
            IN,
            &with(CLIENT, SERVER, ACK, 78 + n, 5_000_001, &sack([5_000_010, 5_000_020])),
            &with(shown, SERVER, ACK, 1_000_001 + n, 901, &sack([910, 920])),
        );
        net.becomes(
            OUT,
            &with(SERVER, shown, ACK, 901 + n, 1_000_001, &sack([1_000_011, 1_000_021])),
            &with(SERVER, CLIENT, ACK, 5_000_001 + n, 78, &sack([88, 98])),
        );
    }
    // One that was picked up in the middle keeps its numbers.
    let late: End = (CLIENT.0, 9);
    net.becomes(IN, &tcp(late, SERVER, ACK, 5, 6), &tcp((NAT, 9), SERVER, ACK, 5, 6));
    net.becomes(OUT, &tcp(SERVER, (NAT, 9), ACK, 6, 5), &tcp(SERVER, late, ACK, 6, 5));
}

#[test]
fn identifications_and_flow_labels_are_replaced() {
    let mut net = Net::new(&[
        "add-stateful udp-dport 1 map ip-id 4711",
        "add-stateful udp-dport 2 shuffle ip-id",
        "add-stateful udp-dport 3 map ip6-flow-label 0x12345",
    ]);
    let with = |id, to: u16| Frame::new(Ip4 { id, ..Ip4::new(CLIENT.0, SERVER.0) }, Udp::new(5, to));
    net.becomes(IN, &with(1, 1), &with(4711, 1));
    net.becomes(IN, &with(900, 1), &with(4711, 1));
    let first = net.one(IN, &with(10, 2)).1;
    let first = u16::from_be_bytes([first[18], first[19]]);
    net.becomes(IN, &with(13, 2), &with(first.wrapping_add(3), 2));
    let (a, b) = ([0xfd; 16], [0xfe; 16]);
    let six = |flow_label, from: [u8; 16], to: [u8; 16], ports: [u16; 2]| {
        Frame::new(Ip6 { flow_label, ..Ip6::new(from, to) }, Udp::new(ports[0], ports[1]))
    };
    net.becomes(IN, &six(7, a, b, [5, 3]), &six(0x12345, a, b, [5, 3]));
    net.becomes(OUT, &six(0x12345, b, a, [3, 5]), &six(7, b, a, [3, 5]));
    net.becomes(OUT, &six(9, b, a, [3, 5]), &six(9, b, a, [3, 5]));
}

/// What an untranslated session's replies would look like may be another session's: its port gives way.
#[test]
fn replies_are_one_sessions_only() {
    let mut net = Net::new(&[
        "add-stateful ip-daddr 192.0.2.100 lb 192.0.2.7",
        "add-stateful ip-daddr 192.0.2.7 accept",
    ]);
    let vip: End = ([192, 0, 2, 100], SERVER.1);
    net.becomes(IN, &udp(CLIENT, vip), &udp(CLIENT, SERVER));
    let shown = source(&net.one(IN, &udp(CLIENT, SERVER)).1);
    assert!(shown.0 == CLIENT.0 && shown.1 != CLIENT.1 && shown.1 % 2 == CLIENT.1 % 2, "{shown:?}");
    net.becomes(OUT, &udp(SERVER, CLIENT), &udp(vip, CLIENT));
    net.becomes(OUT, &udp(SERVER, shown), &udp(SERVER, CLIENT));
}
