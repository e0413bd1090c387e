//! Rules that translate sequence numbers, for sessions whose functions edit the connection.

use mmb_packet::PacketBuf;
use mmb_packet::build::{Frame, Ip4, Tcp};
use mmb_session_harness::{Outcome, ProcessedPacket};

use crate::common::*;
use crate::{CLIENT, SERVER, World};

/// The client begins with 100, which becomes 1,000,000; the server with 500, which becomes 5,000,000.
const MAPS: &str = "map tcp-seq-num 1000000 map tcp-ack-num 5000000";
/// Four bytes more in the first eight of the client, and seven less in those of the server.
const EDITS: [&str; 3] = [
    "nf add there match evil replace harmless forward first 8",
    "nf add back match remove\\x20 remove reverse first 8",
    "chain add web there then back",
];

fn world(rule: &str) -> World {
    World::new(&[
        EDITS[0],
        EDITS[1],
        EDITS[2],
        &format!("add-stateful in port0 tcp-dport 80 {rule} chain web"),
    ])
}

/// Segments as the ends send and receive them.
fn client_sends(flags: u8, seq: u32, ack: u32, bytes: &str) -> Frame {
    tcp(CLIENT, SERVER, flags, 100 + seq, if flags & ACK == 0 { 0 } else { 5_000_000 + ack }).payload(bytes)
}

fn server_gets(from: End, flags: u8, seq: u32, ack: u32, bytes: &str) -> Frame {
    tcp(from, SERVER, flags, 1_000_000 + seq, if flags & ACK == 0 { 0 } else { 500 + ack }).payload(bytes)
}

fn server_sends(to: End, flags: u8, seq: u32, ack: u32, bytes: &str) -> Frame {
    tcp(SERVER, to, flags, 500 + seq, 1_000_000 + ack).payload(bytes)
}

fn client_gets(flags: u8, seq: u32, ack: u32, bytes: &str) -> Frame {
    tcp(SERVER, CLIENT, flags, 5_000_000 + seq, 100 + ack).payload(bytes)
}

/// A selective acknowledgement (RFC 2018).
fn sack((from, to): (End, End), seq: u32, ack: u32, block: (u32, u32)) -> Frame {
    let edges = [block.0.to_be_bytes(), block.1.to_be_bytes()].concat();
    let options = [&[1, 1, 5, 10][..], &edges].concat();
    Frame::new(Ip4::new(from.0, to.0), Tcp { seq, ack, flags: ACK, options, ..Tcp::new(from.1, to.1) })
}

/// The packet, or frame of a function, that ends with these bytes.
#[track_caller]
fn carrying(sent: Vec<ProcessedPacket>, bytes: &str) -> Vec<u8> {
    let is_sent = |one: &&ProcessedPacket| matches!(one.outcome, Outcome::Emitted(_) | Outcome::Out(_));
    let mut sent_on = sent.iter().filter(is_sent);
    let found = sent_on.find(|one| one.packet.head().ends_with(bytes.as_bytes()));
    found.unwrap_or_else(|| panic!("no {bytes:?} in {sent:?}")).packet.head().to_vec()
}

/// Both heads are edited, and acknowledged. `mapped`: the client as the server knows it.
fn edit(world: &mut World, mapped: End) {
    let net = &mut world.net;
    net.becomes(IN, &client_sends(SYN, 0, 0, ""), &server_gets(mapped, SYN, 0, 0, ""));
    net.becomes(OUT, &server_sends(mapped, SYN | ACK, 0, 1, ""), &client_gets(SYN | ACK, 0, 1, ""));
    net.becomes(IN, &client_sends(ACK, 1, 1, ""), &server_gets(mapped, ACK, 1, 1, ""));
    for _ in 0..2 {
        // The second one repeats the first.
        let frame = carrying(net.run(IN, &client_sends(ACK, 1, 1, "evil one")), "harmless one");
        assert_eq!(frame, server_gets(mapped, ACK, 1, 1, "harmless one").build());
    }
    net.becomes(OUT, &server_sends(mapped, ACK, 1, 13, ""), &client_gets(ACK, 1, 9, ""));
    let frame = carrying(net.run(OUT, &server_sends(mapped, ACK, 1, 13, "remove x")), "x");
    assert_eq!(frame, client_gets(ACK, 1, 9, "x").build());
    net.becomes(IN, &client_sends(ACK, 9, 2, ""), &server_gets(mapped, ACK, 13, 9, ""));
}

/// Both ends go on, and acknowledge selectively.
fn go_on(world: &mut World, mapped: End) {
    let net = &mut world.net;
    net.becomes(IN, &client_sends(ACK, 9, 2, "more"), &server_gets(mapped, ACK, 13, 9, "more"));
    net.becomes(OUT, &server_sends(mapped, ACK, 9, 17, "more"), &client_gets(ACK, 2, 13, "more"));
    net.becomes(IN, &client_sends(ACK, 13, 6, ""), &server_gets(mapped, ACK, 17, 13, ""));
    let block = |base: u32, seq| (base + seq, base + seq + 10);
    net.becomes(
        OUT,
        &sack((SERVER, mapped), 513, 1_000_017, block(1_000_000, 27)),
        &sack((SERVER, CLIENT), 5_000_006, 113, block(100, 23)),
    );
    net.becomes(
        IN,
        &sack((CLIENT, SERVER), 113, 5_000_006, block(5_000_000, 16)),
        &sack((mapped, SERVER), 1_000_017, 513, block(500, 23)),
    );
}

#[test]
fn edits_and_numbers_of_rules_together() {
    for (nat, mapped) in [("", CLIENT), ("map ip-saddr 203.0.113.9", ([203, 0, 113, 9], CLIENT.1))] {
        let mut world = world(&format!("{nat} {MAPS}"));
        edit(&mut world, mapped);
        for _ in 0..2 {
            go_on(&mut world, mapped);
            // The functions leave: what is left is added to what the rule adds.
            world.net.wait(1);
        }
        let described = world.net.view().functions;
        assert!(described.iter().any(|(name, _)| name == "(edits)"), "{described:?}");
        let net = &mut world.net;
        let fin = FIN | ACK;
        net.becomes(IN, &client_sends(fin, 13, 6, ""), &server_gets(mapped, fin, 17, 13, ""));
        net.becomes(OUT, &server_sends(mapped, fin, 13, 18, ""), &client_gets(fin, 6, 14, ""));
        net.becomes(IN, &client_sends(ACK, 14, 7, ""), &server_gets(mapped, ACK, 18, 14, ""));
        assert_eq!(net.view().state, "closed");
    }
}

/// RFC 5961: a reset counts if it has the number that is expected.
#[test]
fn resets_count_in_the_numbers_of_both() {
    for is_settled in [false, true] {
        for (seq, is_server, state) in [
            (113, false, "reset"),
            (114, false, "established"),
            (513, true, "reset"),
            (506, true, "established"),
        ] {
            let mut world = world(MAPS);
            edit(&mut world, CLIENT);
            go_on(&mut world, CLIENT);
            if is_settled {
                world.net.wait(1);
                go_on(&mut world, CLIENT);
            }
            match is_server {
                true => world.net.run(OUT, &tcp(SERVER, CLIENT, RST, seq, 0)),
                false => world.net.run(IN, &tcp(CLIENT, SERVER, RST, seq, 0)),
            };
            assert_eq!(world.net.view().state, state, "{seq} {is_settled}");
        }
    }
}

/// RFC 5927, 4.1: an error quotes what its receiver has sent, in its own numbers.
#[test]
fn errors_quote_the_numbers_of_their_receiver() {
    let router = [198, 51, 100, 1];
    for is_settled in [false, true] {
        let mut world = world(MAPS);
        edit(&mut world, CLIENT);
        go_on(&mut world, CLIENT);
        if is_settled {
            world.net.wait(1);
            go_on(&mut world, CLIENT);
        }
        // Of the quotation, senders check addresses, ports and the sequence number.
        let about = |to: End, frame: &Frame| error(3, 1, router, to.0, frame).build();
        let checked = |frame: Vec<u8>| (frame[26..34].to_vec(), frame[54..70].to_vec());
        let net = &mut world.net;
        let (left, sent) = (server_gets(CLIENT, ACK, 17, 13, "more"), client_sends(ACK, 13, 6, "more"));
        net.run(IN, &sent);
        let (outcome, frame) = net.one(OUT, &error(3, 1, router, CLIENT.0, &left));
        assert_eq!((outcome, checked(frame)), (Outcome::Out(IN), checked(about(CLIENT, &sent))));
        let (left, sent) = (client_gets(ACK, 6, 13, "more"), server_sends(CLIENT, ACK, 13, 17, "more"));
        net.run(OUT, &sent);
        let (outcome, frame) = net.one(IN, &error(3, 1, router, SERVER.0, &left));
        assert_eq!((outcome, checked(frame)), (Outcome::Out(OUT), checked(about(SERVER, &sent))));
        let forged = error(3, 1, router, CLIENT.0, &server_gets(CLIENT, ACK, 1 << 30, 13, "more"));
        net.drops(OUT, &forged, mmb_packet::DropReason::IcmpForged);
    }
}

/// What functions send themselves has the addresses and numbers that its receiver knows.
#[test]
fn frames_of_functions_are_translated() {
    let mapped = ([203, 0, 113, 9], CLIENT.1);
    let rule = format!("add-stateful in port0 tcp-dport 80 map ip-saddr 203.0.113.9 {MAPS} chain web");
    for port in [IN, OUT] {
        let mut world = World::new(&["nf add w match evil reset", "chain add web w", &rule]);
        let net = &mut world.net;
        net.run(IN, &client_sends(SYN, 0, 0, ""));
        net.run(OUT, &server_sends(mapped, SYN | ACK, 0, 1, ""));
        net.run(IN, &client_sends(ACK, 1, 1, ""));
        let sent = match port {
            IN => net.run(IN, &client_sends(ACK, 1, 1, "evil")),
            _ => net.run(OUT, &server_sends(mapped, ACK, 1, 1, "evil")),
        };
        let mut resets = Vec::new();
        for one in &sent {
            let Outcome::Emitted(port) = one.outcome else { continue };
            let head = one.packet.head();
            let number = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
            resets.push((port, number(26), number(30), number(38)));
        }
        resets.sort_unstable();
        let address = |end: End| u32::from_be_bytes(end.0);
        // To the client, and to the server.
        let expected = [(IN, SERVER, CLIENT, 5_000_001), (OUT, mapped, SERVER, 1_000_001)];
        let expected = expected.map(|(port, from, to, seq)| (port, address(from), address(to), seq));
        assert_eq!(resets, expected, "{port}");
    }
}
