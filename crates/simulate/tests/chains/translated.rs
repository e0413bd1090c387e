//! Chains that translate, with built-in functions.

use mmb_dataplane::PortId;
use mmb_packet::build::{Frame, Ip4, Tcp, Udp};
use mmb_packet::checksum::{fold, pseudo4, sum};

use super::functions::ID;
use super::world::*;

const NAT: [&str; 5] = [
    "nat pool add wan 203.0.113.1-203.0.113.1 ports 6000-6999 filtering endpoint-independent",
    "nf add n number",
    "nf add hide nat wan",
    "chain add c n | hide",
    "add-stateful ip-saddr 10.0.0.0/24 chain c",
];
const MAPPED: [u8; 4] = [203, 0, 113, 1];
const NEIGHBOUR: [u8; 4] = [10, 0, 0, 6];

type End = ([u8; 4], u16);

/// Source, destination and identification of a frame with valid checksums.
fn read(frame: &[u8]) -> (End, End, u16) {
    let address = |at: usize| <[u8; 4]>::try_from(&frame[at..at + 4]).unwrap();
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let length = word(16) - 20;
    assert_eq!(fold(sum(&frame[14..34], 0)), 0xffff, "IPv4");
    let pseudo = pseudo4(address(26), address(30), frame[23], length);
    assert_eq!(fold(sum(&frame[34..34 + usize::from(length)], pseudo)), 0xffff, "transport");
    ((address(26), word(34)), (address(30), word(36)), word(ID.start))
}

fn udp(from: End, to: End, mac: [u8; 6]) -> Vec<u8> {
    let net = Ip4 { id: 0, ..Ip4::new(from.0, to.0) };
    Frame::new(net, Udp::new(from.1, to.1)).macs(NEIGHBOR_MAC, mac).payload(*b"x").build()
}

#[track_caller]
fn one(out: &[(PortId, Vec<u8>)]) -> (PortId, (End, End, u16)) {
    let [(port, frame)] = out else { panic!("{} frames", out.len()) };
    (*port, read(frame))
}

#[test]
fn a_pool_in_a_chain_translates_there_and_back() {
    for routed in [false, true] {
        let mut world = world(if routed { self::routed(&NAT) } else { forwarding(&NAT, None) });
        let (client, server) = ((INSIDE, 5_000), (OUTSIDE, 53));
        for round in 0..3 {
            let (port, (from, to, id)) = one(&world.send(LEFT, &udp(client, server, LEFT_MAC)));
            assert_eq!((port, from.0, to, id), (RIGHT, MAPPED, server, 1 + 2 * round));
            assert!((6_000..7_000).contains(&from.1));
            let (port, answer) = one(&world.send(RIGHT, &udp(server, from, RIGHT_MAC)));
            assert_eq!((port, answer), (LEFT, (server, client, 2 + 2 * round)));
        }
        assert_eq!(world.drops(), []);
    }
}

#[test]
fn a_host_inside_reaches_another_one_by_its_mapping() {
    for workers in [1, 2] {
        let mut world = world_of(workers, routed(&NAT));
        let (client, server, neighbour) = ((INSIDE, 5_000), (OUTSIDE, 53), (NEIGHBOUR, 7_000));
        let (_, (mapped, ..)) = one(&world.send(LEFT, &udp(client, server, LEFT_MAC)));
        for _ in 0..3 {
            // Both are translated, and both have passed their sessions' chains.
            let (port, (from, to, _)) = one(&world.send(LEFT, &udp(neighbour, mapped, LEFT_MAC)));
            assert_eq!((port, from.0, to), (LEFT, MAPPED, client));
            let back = udp(client, from, LEFT_MAC);
            let (port, (from, to, _)) = one(&world.send(LEFT, &back));
            assert_eq!((port, from, to), (LEFT, mapped, neighbour));
        }
        assert_eq!(world.drops(), [], "{workers} workers");
    }
}

#[test]
fn synproxy_completes_both_handshakes() {
    let lines = ["nf add shield synproxy", "chain add c shield", "add-stateful tcp-dport 80 chain c"];
    let mut world = world(forwarding(&lines, None));
    let tcp = |from: End, to: End, flags, seq, ack| {
        let tcp = Tcp { flags, seq, ack, window: 1_000, ..Tcp::new(from.1, to.1) };
        Frame::new(Ip4::new(from.0, to.0), tcp).macs(NEIGHBOR_MAC, LEFT_MAC).build()
    };
    let numbers = |frame: &[u8]| {
        let word = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
        (word(38), word(42), frame[47])
    };
    let (client, server) = ((INSIDE, 5_000), (OUTSIDE, 80));
    let (syn, ack) = (2, 16);
    let out = world.send(LEFT, &tcp(client, server, syn, 100, 0));
    let (port, (from, to, _)) = one(&out);
    let (cookie, acked, flags) = numbers(&out[0].1);
    assert_eq!((port, from, to, acked, flags), (LEFT, server, client, 101, syn | ack));
    assert_eq!(out[0].1[..12], [NEIGHBOR_MAC, LEFT_MAC].concat());
    assert_eq!((world.drops(), world.lab.sessions()), (vec![("syn-cookie", 1)], vec![0]));

    let out = world.send(LEFT, &tcp(client, server, ack, 101, cookie.wrapping_add(1)));
    assert_eq!((one(&out).0, numbers(&out[0].1)), (RIGHT, (100, 0, syn)));
    // The server's answer becomes an acknowledgment for the server and a window update for the client.
    let out = world.send(RIGHT, &tcp(server, client, syn | ack, 9_000, 101));
    let to_server = out.iter().find(|(port, _)| *port == RIGHT).unwrap();
    assert_eq!(numbers(&to_server.1), (101, 9_001, ack));
    assert!(out.iter().all(|(_, frame)| read(frame).2 == 0));
    // Sequence numbers are translated from here on.
    let out = world.send(LEFT, &tcp(client, server, ack | 8, 101, cookie.wrapping_add(1)));
    assert_eq!((one(&out).0, numbers(&out[0].1)), (RIGHT, (101, 9_001, ack | 8)));
    let out = world.send(RIGHT, &tcp(server, client, ack, 9_001, 101));
    assert_eq!((one(&out).0, numbers(&out[0].1)), (LEFT, (cookie.wrapping_add(1), 101, ack)));
}
