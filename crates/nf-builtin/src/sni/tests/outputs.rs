//! Outputs of chains that names choose.

use mmb_nf::harness::HarnessError;
use mmb_nf::{ChainVerdict, Harness};
use mmb_packet::build::{Frame, Ip4, Tcp, Udp};
use mmb_tls::quic::Version;
use mmb_tls::quic::testing::{crypto_frame, initial_packet};

use super::retry::server_hello;
use super::{DATA, HELLO, hello};
use crate::shared::connection::{ACK, FIN, SYN, Talk, dropped};

const ARMS: &str =
    "nf add o count\nnf add v count\nnf add r count\nchain add c f [org: o, video: v, rest: r]";

fn lines(arguments: &str) -> String {
    format!("nf add f sni {arguments}\n{ARMS}")
}

/// Returns the packets that each arm has counted.
fn counted(harness: &Harness) -> [u64; 3] {
    ["o", "v", "r"].map(|name| {
        let report = harness.program().instance(name).unwrap().report();
        report.iter().find(|(one, _)| one == "packets").unwrap().1.parse().unwrap()
    })
}

#[test]
fn the_name_chooses_the_output_of_both_directions() {
    let names = "org: *.org video: example.com org: example.net";
    for (arguments, name, expected) in [
        (names, "example.com", [0, 3, 0]),
        (names, "example.org", [3, 0, 0]),
        (names, "example.net", [3, 0, 0]),
        (names, "example.edu", [0, 0, 3]),
        // The first label that has the name.
        ("org: *.com video: example.com", "example.com", [3, 0, 0]),
        ("deny example.org org: *.org video: *.com", "example.com", [0, 3, 0]),
        ("allow *.com org: *.org video: example.com", "example.com", [0, 3, 0]),
    ] {
        let mut talk = Talk::of(&lines(arguments));
        // The handshake passes by all arms.
        assert_eq!(counted(&talk.harness), [0; 3]);
        talk.segment(0, ACK, hello(name));
        talk.segment(1, ACK, "an answer");
        talk.segment(0, ACK, DATA);
        assert_eq!(counted(&talk.harness), expected, "{arguments} {name}");
        assert_eq!(talk.passed, [&hello(name)[..], DATA].concat());
    }
}

#[test]
fn refused_names_reach_no_arm() {
    for arguments in ["deny *.com org: *.org video: *.com", "allow *.org org: *.org video: *.com"] {
        let mut talk = Talk::of(&lines(arguments));
        dropped(talk.segment(0, ACK, HELLO).0, "sni-denied");
        assert_eq!((counted(&talk.harness), talk.passed.len()), ([0; 3], 0));
    }
}

/// What waits for its decision goes on in order, and what follows goes by the arm.
#[test]
fn a_hello_in_segments_is_decided_once() {
    for piece in [1, 100, 300] {
        let mut talk = Talk::of(&lines("org: *.org video: *.com"));
        for part in HELLO.chunks(piece) {
            assert_eq!(counted(&talk.harness), [0; 3]);
            talk.segment(0, ACK, part);
            talk.segment(1, ACK, "");
        }
        let [0, before, 0] = counted(&talk.harness) else { panic!("another arm") };
        assert_eq!(talk.passed, HELLO);
        for _ in 0..3 {
            talk.segment(0, ACK, DATA);
            talk.segment(1, ACK, "more");
        }
        assert_eq!(counted(&talk.harness), [0, before + 6, 0]);
        assert_eq!(talk.passed, [HELLO, DATA, DATA, DATA].concat());
    }
}

/// The second segment comes first: it waits for the other one, and both go by the arm.
#[test]
fn a_hello_out_of_order() {
    let mut talk = Talk::of(&lines("org: *.org video: *.com"));
    let (first, second) = HELLO.split_at(100);
    let at = talk.next[0];
    talk.next[0] = at + 100;
    assert_eq!(talk.segment(0, ACK, second).0, ChainVerdict::Hold);
    assert_eq!(counted(&talk.harness), [0; 3]);
    talk.next[0] = at;
    talk.segment(0, ACK, first);
    let left = talk.harness.released();
    assert_eq!(left.len(), 1);
    let sent: usize = left[0].emitted.iter().map(|(_, frame)| frame.len() - 54).sum();
    let passed = usize::from(left[0].verdict == ChainVerdict::Pass) * (left[0].frame.len() - 54);
    assert_eq!(talk.passed.len() + sent + passed, HELLO.len());
    talk.next[0] = at + HELLO.len() as u32;
    talk.segment(0, ACK, DATA);
    let [0, counted, 0] = counted(&talk.harness) else { panic!("another arm") };
    assert!(counted >= 1);
}

#[test]
fn a_new_connection_with_the_same_ports_is_decided_again() {
    let mut talk = Talk::of(&lines("org: *.org video: *.com"));
    talk.segment(0, ACK, hello("example.org"));
    talk.segment(1, ACK, server_hello([7; 32]));
    talk.segment(0, ACK | FIN, "");
    talk.segment(1, ACK | FIN, "");
    talk.segment(0, ACK, "");
    let [before, 0, 0] = counted(&talk.harness) else { panic!("another arm") };
    // RFC 6191: a greater sequence number.
    (talk.next, talk.acked) = ([900_000, 700_000], [0, 900_000]);
    talk.segment(0, SYN, "");
    talk.segment(1, SYN | ACK, "");
    // Until the server has answered, it may be a forged SYN of the connection before.
    assert_eq!(counted(&talk.harness), [before + 2, 0, 0]);
    talk.segment(0, ACK, hello("example.com"));
    talk.segment(1, ACK, "an answer");
    assert_eq!(counted(&talk.harness), [before + 2, 2, 0]);
}

#[test]
fn without_a_decision_by_name_the_rest_is_chosen() {
    // Not TLS; and no name.
    let mut none = HELLO.to_vec();
    let at = none.windows(11).position(|part| part == b"example.com").unwrap();
    none[at - 9..at - 7].copy_from_slice(&[0x0a, 0x0a]);
    for bytes in [&b"GET / HTTP/1.1\r\n"[..], &none] {
        let mut talk = Talk::of(&lines("errors pass video: *.com org: *.org"));
        talk.segment(0, ACK, bytes);
        talk.segment(1, ACK, "an answer");
        assert_eq!((counted(&talk.harness), &*talk.passed), ([0, 0, 2], bytes));
    }
    // The instance joins an existing session.
    let mut talk = Talk::of("nf add r count\nchain add c r");
    talk.harness.wait(5);
    talk.harness.load(&lines("video: *.com org: *.org")).unwrap();
    let before = counted(&talk.harness)[2];
    talk.segment(0, ACK, "in the middle");
    assert_eq!(counted(&talk.harness), [0, 0, before + 1]);
}

/// A change of the chain around the function keeps the arm of a session.
#[test]
fn sessions_keep_their_output_when_chains_change() {
    let mut talk = Talk::of(&lines("video: *.com org: *.org"));
    talk.segment(0, ACK, HELLO);
    let other = lines("video: *.com org: *.org").replace("rest: r]", "rest: r] | m") + "\nnf add m monitor";
    talk.harness.load(&other).unwrap();
    talk.segment(0, ACK, DATA);
    talk.segment(1, ACK, "more");
    assert_eq!(counted(&talk.harness), [0, 3, 0]);
    let frame = Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), Tcp::new(4000, 80)).build();
    let told = talk.harness.describe(&frame);
    let told = told.unwrap().into_iter().find(|(name, _)| name == "f").unwrap().1;
    assert!(told.ends_with(", output `video`"), "{told}");
}

#[test]
fn chains_that_cannot_be() {
    let names = "nf add f sni video: *.com\nnf add w match x alert\nnf add n lb 192.0.2.1\nchain add c ";
    for (chain, expected) in [
        ("f", "has the outputs video, rest"),
        ("f [video: pass, rest: drop]", "no arm behind it can be `drop`"),
        ("f [video: w, rest: pass]", "must be next to all other stream functions"),
        ("f [video: pass, rest: pass] | w", "must be next to all other stream functions"),
        ("f [video: [n, else: pass], rest: pass]", "cannot tell in advance which sessions get there"),
        ("f [ads: pass, rest: pass]", "has no output `ads`"),
    ] {
        let error = Harness::new(crate::registry(), &format!("{names}{chain}")).err().unwrap();
        assert!(matches!(error, HarnessError::Program(_)), "{error}");
        assert!(error.to_string().contains(expected), "{chain}: {error}");
    }
}

/// Datagrams that complete no ClientHello pass by the arms.
#[test]
fn datagrams_of_quic() {
    let harness = Harness::new(crate::registry(), &lines("video: *.com org: *.org"));
    let mut harness = harness.unwrap();
    let send = |harness: &mut Harness, is_reply: bool, payload: &[u8]| {
        let (ends, ports) = ([[10, 0, 0, 1], [10, 0, 0, 2]], [4000, 443]);
        let [from, to] = if is_reply { [1, 0] } else { [0, 1] };
        let frame = Frame::new(Ip4::new(ends[from], ends[to]), Udp::new(ports[from], ports[to]));
        let sent = harness.send("c", &[frame.payload(payload).build()]).remove(0);
        assert_eq!((sent.verdict, sent.emitted), (ChainVerdict::Pass, vec![]));
    };
    let id: &[u8] = &[7; 8];
    let message = hello("example.com")[5..].to_vec();
    for (number, range) in [(0, 0..200), (1, 200..message.len())] {
        assert_eq!(counted(&harness), [0; 3]);
        let frames = [crypto_frame(range.start as u16, &message[range]), vec![0; 40]].concat();
        send(&mut harness, false, &initial_packet((Version::V1, id), id, number, &frames));
    }
    send(&mut harness, true, &[0x40; 30]);
    assert_eq!(counted(&harness), [0, 2, 0]);
}
