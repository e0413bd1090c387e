//! QUIC: what a server would get.

use mmb_nf::{ChainVerdict, Harness};
use mmb_packet::build::{Frame, Ip4, Udp};
use mmb_tls::quic::Version;
use mmb_tls::quic::testing::{crypto_frame, initial_packet};

use super::hello;
use crate::shared::connection::dropped;

/// The first datagrams of clients that ask for `example.com` (RFC 9001, A.2; RFC 9369, A.2), and of aioquic,
/// which asks for `quic.example.com`.
const RECORDED: [&[u8]; 3] = [
    include_bytes!("../../../../tls/src/quic/rfc9001.bin"),
    include_bytes!("../../../../tls/src/quic/rfc9369.bin"),
    include_bytes!("../../../../tls/src/quic/aioquic.bin"),
];
const ID: &[u8] = &[7; 8];
/// The connection id that the server has chosen.
const SERVER_ID: &[u8] = &[9; 5];
const V1: Version = Version::V1;

struct Talk(Harness);

impl Talk {
    fn of(arguments: &str) -> Talk {
        let lines = format!("nf add f sni {arguments}\nchain add c f");
        Talk(Harness::new(crate::registry(), &lines).unwrap())
    }

    fn send(&mut self, is_reply: bool, payload: &[u8]) -> ChainVerdict {
        let (ends, ports) = ([[10, 0, 0, 1], [10, 0, 0, 2]], [4000, 443]);
        let [from, to] = if is_reply { [1, 0] } else { [0, 1] };
        let frame = Frame::new(Ip4::new(ends[from], ends[to]), Udp::new(ports[from], ports[to]));
        let frame = frame.payload(payload).build();
        let sent = self.0.send("c", std::slice::from_ref(&frame)).remove(0);
        assert_eq!((sent.frame, sent.emitted), (frame, vec![]));
        sent.verdict
    }

    fn passes(&mut self, payload: &[u8]) -> bool {
        self.send(false, payload) == ChainVerdict::Pass
    }

    fn report(&self, name: &str) -> u64 {
        let report = self.0.program().instance("f").unwrap().report();
        report.iter().find(|(one, _)| one == name).map_or(0, |(_, count)| count.parse().unwrap())
    }
}

/// The message for a name of 11 bytes, without records.
fn message(name: &str) -> Vec<u8> {
    hello(name)[5..].to_vec()
}

/// A datagram with a part of a message.
fn part(id: &[u8], number: u32, message: &[u8], range: std::ops::Range<usize>) -> Vec<u8> {
    let frames = [crypto_frame(range.start as u16, &message[range]), vec![0; 40]].concat();
    initial_packet((V1, id), id, number, &frames)
}

fn whole(id: &[u8], name: &str) -> Vec<u8> {
    let message = message(name);
    part(id, 0, &message, 0..message.len())
}

/// A packet of the server behind its answer to a ClientHello.
fn handshake() -> Vec<u8> {
    [&[0xe0, 0, 0, 0, 1, 0, 5][..], SERVER_ID, &[3, 1, 2, 3]].concat()
}

#[test]
fn recorded_clients() {
    for (n, datagram) in RECORDED.into_iter().enumerate() {
        let name = if n == 2 { "quic.example.com" } else { "example.com" };
        let mut allowed = Talk::of(&format!("allow {name}"));
        assert!(allowed.passes(datagram) && allowed.passes(&[0x40; 30]));
        assert_eq!(allowed.send(true, &handshake()), ChainVerdict::Pass);
        assert_eq!([allowed.report("allowed"), allowed.report("denied")], [1, 0]);
        let mut denied = Talk::of(&format!("deny {name}"));
        let verdict = denied.send(false, datagram);
        assert!(
            matches!(verdict, ChainVerdict::Refuse(reason) if reason.name() == "sni-denied"),
            "{verdict:?}"
        );
        assert_eq!([denied.report("allowed"), denied.report("denied")], [0, 1]);
    }
}

/// The parts of a message come in any order, in one datagram or in several.
#[test]
fn the_datagram_that_completes_a_message_is_decided() {
    let message = message("example.com");
    let (a, b) = (part(ID, 0, &message, 0..200), part(ID, 1, &message, 200..message.len()));
    for (first, second) in [(&a, &b), (&b, &a)] {
        for (arguments, is_allowed) in [("deny example.com", false), ("allow example.com", true)] {
            let mut talk = Talk::of(arguments);
            assert!(talk.passes(first) && talk.passes(first));
            assert_eq!(talk.passes(second), is_allowed);
            let mut coalesced = Talk::of(arguments);
            assert_eq!(coalesced.passes(&[&first[..], second].concat()), is_allowed);
        }
    }
}

/// RFC 9000, 7.2: the client goes on with the connection id of the server, and the same keys.
#[test]
fn later_packets_have_the_keys_of_the_first() {
    let message = message("example.com");
    let frames = crypto_frame(200, &message[200..]);
    for version in [V1, Version::V2] {
        // RFC 9368: the version may change within the connection.
        let rest = initial_packet((version, ID), SERVER_ID, 300, &frames);
        for (arguments, is_allowed) in [("deny example.com", false), ("allow example.com", true)] {
            let mut talk = Talk::of(arguments);
            assert!(talk.passes(&part(ID, 0, &message, 0..200)));
            assert_eq!(talk.passes(&rest), is_allowed);
        }
    }
    // Without the first packet nobody has the keys.
    let mut talk = Talk::of("deny other.name");
    dropped(talk.send(false, &initial_packet((V1, ID), SERVER_ID, 1, &frames)), "sni-invalid");
    assert_eq!(talk.report("QUIC datagrams with unknown keys"), 1);
}

/// RFC 9000, 8.1 and 6: behind Retry or Version Negotiation, the client begins anew.
#[test]
fn a_client_begins_anew_when_the_server_asks_for_it() {
    let retry = [&[0xf0, 0, 0, 0, 1, 0, 5][..], SERVER_ID, &[1; 30]].concat();
    let negotiation = [&[0x80, 0, 0, 0, 0, 0, 5][..], SERVER_ID, &[0, 0, 0, 1]].concat();
    let message = message("example.com");
    for answer in [retry, negotiation] {
        let mut talk = Talk::of("deny example.com");
        assert!(talk.passes(&part(ID, 0, &message, 0..100)));
        // Another connection would make the first one forgotten.
        dropped(talk.send(false, &whole(SERVER_ID, "example.org")), "sni-invalid");
        assert_eq!(talk.send(true, &answer), ChainVerdict::Pass);
        assert!(talk.passes(&part(SERVER_ID, 1, &message, 0..100)));
        assert!(!talk.passes(&part(SERVER_ID, 2, &message, 100..message.len())));
    }
}

/// A name that is allowed does not cover other connections of the same ports.
#[test]
fn each_connection_is_decided() {
    let mut talk = Talk::of("deny example.com");
    assert!(talk.passes(&whole(ID, "example.org")));
    assert_eq!(talk.send(true, &handshake()), ChainVerdict::Pass);
    assert!(talk.passes(&whole(&[8; 8], "example.net")));
    // Nobody answers, and the client gives up.
    dropped(talk.send(false, &whole(&[9; 8], "example.org")), "sni-invalid");
    talk.0.wait(30_000);
    assert!(!talk.passes(&whole(&[9; 8], "example.com")));
    assert_eq!([talk.report("allowed"), talk.report("denied")], [2, 1]);
}

/// Bytes that were lost behind mmb come again as they were, or not at all.
#[test]
fn repeated_bytes_are_the_same() {
    let (good, bad) = (message("example.org"), message("example.com"));
    for is_whole in [true, false] {
        let mut talk = Talk::of("deny example.com");
        let end = if is_whole { good.len() } else { 200 };
        assert!(talk.passes(&part(ID, 0, &good, 0..end)));
        dropped(talk.send(false, &part(ID, 1, &bad, 0..bad.len())), "sni-invalid");
        assert!(talk.passes(&part(ID, 2, &good, 0..good.len())));
        assert_eq!(talk.send(true, &handshake()), ChainVerdict::Pass);
        // The client has not got the answer.
        dropped(talk.send(false, &part(ID, 3, &bad, 0..bad.len())), "sni-invalid");
        assert!(talk.passes(&part(ID, 4, &good, 0..good.len())));
        assert_eq!([talk.report("allowed"), talk.report("denied")], [1, 0]);
    }
}

/// RFC 9001, 4.7: the second ClientHello follows the first one, with the connection id of the server.
#[test]
fn the_second_hello_is_decided() {
    let first = message("example.org");
    for (name, is_allowed) in [("example.net", true), ("example.com", false)] {
        let both = [&first[..], &message(name)].concat();
        let second = |number: u32, range: std::ops::Range<usize>| {
            let frames = [crypto_frame(range.start as u16, &both[range]), vec![0; 40]].concat();
            initial_packet((V1, ID), SERVER_ID, number, &frames)
        };
        let (at, end) = (first.len(), both.len());
        let mut talk = Talk::of("deny example.com");
        assert!(talk.passes(&part(ID, 0, &both, 0..at)));
        assert_eq!(talk.passes(&second(1, at..end)), is_allowed);
        let mut in_parts = Talk::of("deny example.com");
        assert!(in_parts.passes(&part(ID, 0, &both, 0..at)));
        assert!(in_parts.passes(&second(1, at + 100..end)));
        assert_eq!(in_parts.passes(&second(2, at..at + 100)), is_allowed);
        // A client can have it ready.
        let mut at_once = Talk::of("deny example.com");
        assert_eq!(at_once.passes(&part(ID, 0, &both, 0..end)), is_allowed);
        for talk in [&talk, &in_parts, &at_once] {
            assert_eq!([talk.report("allowed"), talk.report("denied")], [1, u64::from(!is_allowed)]);
        }
    }
    // Something else follows the first one.
    let mut talk = Talk::of("deny example.com");
    let other = [&first[..], &[2, 0, 0, 0]].concat();
    dropped(talk.send(false, &part(ID, 0, &other, 0..other.len())), "sni-invalid");
    assert!(!talk.passes(&part(ID, 1, &message("example.com"), 0..first.len())));
}

/// A server may have forgotten a connection whose keys and id a client uses again.
#[test]
fn a_connection_with_the_keys_of_another_one_is_decided() {
    let (good, bad) = (message("example.org"), message("example.com"));
    let handshakes = || {
        let mut talk = Talk::of("deny example.com");
        assert!(talk.passes(&part(ID, 0, &good, 0..good.len())));
        // What a client sends alone does not end its handshake.
        assert!(talk.passes(&handshake()));
        dropped(talk.send(false, &part(ID, 1, &bad, 0..bad.len())), "sni-invalid");
        assert_eq!(talk.send(true, &handshake()), ChainVerdict::Pass);
        assert!(talk.passes(
            &[&initial_packet((V1, ID), SERVER_ID, 2, &[2, 0, 0, 0, 0, 0, 0]), &handshake()[..]].concat()
        ));
        talk
    };
    let mut talk = handshakes();
    assert!(talk.passes(&initial_packet((V1, ID), ID, 3, &[2, 0, 0, 0, 0, 0, 0])));
    assert_eq!(talk.report("allowed"), 1);
    assert!(!talk.passes(&part(ID, 4, &bad, 0..bad.len())));
    let mut talk = handshakes();
    assert!(talk.passes(&part(ID, 0, &bad, 0..200)));
    assert!(!talk.passes(&part(ID, 1, &bad, 200..bad.len())));
    let mut talk = handshakes();
    assert!(talk.passes(&part(ID, 0, &good, 0..good.len())));
    assert_eq!([talk.report("allowed"), talk.report("denied")], [2, 0]);
}

#[test]
fn what_is_not_quic_is_dropped() {
    let draft = [&[0xc0, 0xff, 0, 0, 0x1d, 8][..], &[1; 8], &[0; 40]].concat();
    let mut stream = whole(ID, "example.org");
    stream.truncate(stream.len() - 1);
    let other_frames = initial_packet((V1, ID), ID, 0, &[8, 0, 1, 2, 3, 4, 5, 6]);
    let cases: [(&[u8], &str); 6] = [
        (b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0", "not TLS, or malformed"),
        (&[0x40; 30], "not TLS, or malformed"),
        (&handshake(), "not TLS, or malformed"),
        (&stream, "not TLS, or malformed"),
        (&other_frames, "not TLS, or malformed"),
        (&draft, "QUIC datagrams of an unknown version"),
    ];
    for (datagram, counter) in cases {
        let mut talk = Talk::of("deny a");
        dropped(talk.send(false, datagram), "sni-invalid");
        assert_eq!(talk.report(counter), 1, "{datagram:?}");
        // It does no harm to the session.
        assert!(talk.passes(&whole(ID, "example.org")));
        assert!(Talk::of("errors pass deny a").passes(datagram), "{datagram:?}");
    }
}

/// Servers wait for the end of a message, for as long as there is room for it.
#[test]
fn incomplete_messages_have_bounded_room() {
    let mut harness =
        Harness::with_sessions(crate::registry(), "nf add f sni deny a\nchain add c f", 5000).unwrap();
    let message = message("example.com");
    let part = part(ID, 0, &message, 0..100);
    let frames: Vec<_> = (0..4097u16)
        .map(|n| {
            Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), Udp::new(5000 + n, 443))
                .payload(&part[..])
                .build()
        })
        .collect();
    let passed = harness.send("c", &frames).iter().filter(|one| one.verdict == ChainVerdict::Pass).count();
    assert_eq!(passed, 4096);
}
