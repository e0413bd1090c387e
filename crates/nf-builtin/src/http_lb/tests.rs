//! Parts of connections. Whole ones, with the engine around the function, are in
//! `crates/session/tests/http_lb`.

use mmb_flow::TcpSegment;
use mmb_packet::build::{Frame, Ip4, Ip6, Tcp};
use proptest::prelude::*;

use super::*;
use mmb_nf::testing::{Bench, Forward, Reverse, assert_checksums, key_of_frame, parsed, refused};

const CLIENT: [u8; 4] = [192, 0, 2, 9];
const SERVICE: [u8; 4] = [198, 51, 100, 1];
const TWO: &str = "path /a to 10.0.0.1:8080 10.0.0.2 default to 10.0.0.3";

fn segment(port: u16, flags: u8, [seq, ack]: [u32; 2], payload: &[u8]) -> Vec<u8> {
    let tcp = Tcp { flags, seq, ack, window: 1000, ..Tcp::new(port, 80) };
    Frame::new(Ip4::new(CLIENT, SERVICE), tcp).payload(payload).build()
}

fn read(frame: &[u8]) -> TcpSegment {
    assert_checksums(frame);
    TcpSegment::read(frame, &parsed(frame)).expect("TCP")
}

/// The handshake of a client with initial number 1000. Returns the cookie.
fn connect(bench: &mut Bench<HttpLb>, port: u16) -> u32 {
    let (admission, answer, _) = bench.admit(&segment(port, SYN, [1000, 0], b""));
    let answer = read(&answer);
    assert_eq!((admission, answer.flags, answer.ack), (Admission::Answer, SYN | ACK, 1001));
    assert_eq!(answer.window, WINDOW);
    let ack = segment(port, ACK, [1001, answer.seq.wrapping_add(1)], b"");
    assert_eq!(bench.admit(&ack).0, Admission::Drop(DropReason::SynCookie));
    answer.seq
}

fn line(bench: &Bench<HttpLb>, name: &str) -> Option<String> {
    bench.function.report().into_iter().find(|(key, _)| key == name).map(|(_, line)| line)
}

/// Opens a session as the engine does.
fn open(bench: &mut Bench<HttpLb>, port: u16, request: &[u8]) -> (usize, Vec<u8>, String) {
    let cookie = connect(bench, port);
    let frame = segment(port, ACK, [1001, cookie.wrapping_add(1)], request);
    let (admission, syn, translation) = bench.admit(&frame);
    assert_eq!((admission, translation.proxied_isn), (Admission::Open, Some(cookie)));
    assert_eq!(translation.early_bytes, u32::from(WINDOW));
    let (address, port) = translation.destination.expect("a server");
    let session = bench.open(&syn);
    (session, syn, port.map_or_else(|| address.to_string(), |port| format!("{address}:{port}")))
}

const REQUEST: &[u8] = b"GET /a/b HTTP/1.1\r\nHost: x\r\n\r\n";

#[test]
fn properties_follow_from_the_servers() {
    for (words, accepts) in [
        ("default to 10.0.0.1", "net-proto ip4 tcp-sport"),
        ("path /a to 2001:db8::1 default to [2001:db8::2]:80", "net-proto ip6 tcp-sport"),
        ("path /a to 2001:db8::1 default to 10.0.0.1", "tcp-sport"),
    ] {
        let properties = Bench::<HttpLb>::new(words).function.properties();
        assert_eq!(properties.accepts, accepts);
        assert!(mmb_lang::parse_matches(accepts).is_ok());
        let Translates { source, destination, sequence_numbers } = properties.translates;
        assert!(destination && sequence_numbers && !source);
    }
    assert!(refused::<HttpLb>("").contains("a clause"));
}

#[test]
fn sessions_take_turns_in_their_group() {
    let mut bench = Bench::<HttpLb>::new(TWO);
    let mut servers = Vec::new();
    for port in 0..6 {
        let request = if port % 2 == 0 { REQUEST } else { b"GET / HTTP/1.0\r\n\r\n" };
        let (session, syn, server) = open(&mut bench, 4000 + port, request);
        servers.push(server);
        let done = bench.packet(session, Forward, &syn);
        let sent = read(&done.frame);
        assert_eq!(
            (done.verdict, sent.flags, sent.seq, sent.ack, sent.len),
            (Verdict::Pass, SYN, 1000, 0, 0)
        );
    }
    assert_eq!(servers, ["10.0.0.1:8080", "10.0.0.3", "10.0.0.2", "10.0.0.3", "10.0.0.1:8080", "10.0.0.3"]);
    assert_eq!(line(&bench, "path /a to 10.0.0.1:8080").as_deref(), Some("up, 2 sessions, 2 opened"));
    bench.release(0);
    assert_eq!(line(&bench, "path /a to 10.0.0.1:8080").as_deref(), Some("up, 1 sessions, 2 opened"));
}

#[test]
fn a_drained_server_gets_no_sessions() {
    let mut bench = Bench::<HttpLb>::new(TWO);
    bench.function.set(&["drain", "10.0.0.2"]).unwrap();
    assert!((0..4).all(|port| open(&mut bench, 4000 + port, REQUEST).2 == "10.0.0.1:8080"));
    assert_eq!(line(&bench, "path /a to 10.0.0.2").as_deref(), Some("draining, 0 sessions, 0 opened"));
    bench.function.set(&["undrain", "10.0.0.2"]).unwrap();
    assert!((4..6).any(|port| open(&mut bench, 4000 + port, REQUEST).2 == "10.0.0.2"));
    for words in [&["drain", "10.0.0.9"][..], &["drain"], &["weight", "10.0.0.2"]] {
        assert!(bench.function.set(words).is_err());
    }
}

/// The checks find that a server is down, before and after it has answered.
#[test]
fn a_server_that_is_down_loses_its_sessions() {
    let mut bench = Bench::<HttpLb>::new(TWO);
    let (waiting, syn, _) = open(&mut bench, 4000, REQUEST);
    bench.packet(waiting, Forward, &syn);
    let (other, _, _) = open(&mut bench, 4001, REQUEST);
    let (joined, syn, _) = open(&mut bench, 4002, REQUEST);
    bench.packet(joined, Forward, &syn);
    let answer = Tcp { flags: SYN | ACK, seq: 70, ack: 1001, ..Tcp::new(80, 4002) };
    let done = bench.packet(joined, Reverse, &Frame::new(Ip4::new(SERVICE, CLIENT), answer).build());
    let [(_, first), (_, handed)] = &done.emitted[..] else { panic!("{:?}", done.emitted) };
    let first = read(first);
    assert_eq!(
        (first.flags, first.len, first.seq, first.ack),
        (ACK, 0, 1001, 71),
        "the handshake ends first"
    );
    assert_eq!((done.verdict, &handed[handed.len() - REQUEST.len()..]), (Verdict::Consume, REQUEST));
    bench.function.groups[0].backends.set_down(0, true);
    let repeated = segment(4000, ACK, [1001, 1], REQUEST);
    let end = Verdict::End(DropReason::BackendDown);
    let done = bench.packet(waiting, Forward, &repeated);
    assert_eq!((done.verdict, done.emitted.len()), (end, 0), "it opens another session");
    let done = bench.packet(joined, Forward, &segment(4002, ACK, [1001 + REQUEST.len() as u32, 1], b""));
    assert_eq!((done.verdict, read(&done.emitted[0].1).flags), (end, RST));
    assert_eq!(bench.packet(other, Forward, &segment(4001, RST, [1001, 1], b"")).verdict, STRANGE);
}

const STRANGE: Verdict = Verdict::Drop(DropReason::SynCookieBad);

#[test]
fn what_follows_the_head_waits_for_the_server() {
    let mut bench = Bench::<HttpLb>::new(TWO);
    let request = [b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n".as_slice(), b"abc"].concat();
    let (session, syn, _) = open(&mut bench, 4000, &request);
    bench.packet(session, Forward, &syn);
    let next = 1001 + request.len() as u32;
    for (seq, payload) in [(next + 3, b"ghi"), (next, b"def")] {
        let done = bench.packet(session, Forward, &segment(4000, ACK, [seq, 1], payload));
        assert_eq!(done.verdict, Verdict::Hold);
    }
    let answer = Tcp { flags: SYN | ACK, seq: 70, ack: 1001, ..Tcp::new(80, 4000) };
    let done = bench.packet(session, Reverse, &Frame::new(Ip4::new(SERVICE, CLIENT), answer).build());
    let sent: Vec<_> = done.emitted.iter().map(|(_, frame)| read(frame)).collect();
    let sent: Vec<_> = sent.iter().map(|sent| (sent.seq, sent.len)).collect();
    assert_eq!(sent, [(1001, 0), (1001, request.len() as u32), (1001, 0)], "all of it is the beginning");
    assert!(bench.released().is_empty(), "the server may know nothing of the connection");
    let answer = Tcp { flags: ACK, seq: 71, ack: next, ..Tcp::new(80, 4000) };
    bench.packet(session, Reverse, &Frame::new(Ip4::new(SERVICE, CLIENT), answer).build());
    let released: Vec<_> =
        bench.released().into_iter().map(|done| (done.verdict, read(&done.frame).seq)).collect();
    assert_eq!(released, [(Verdict::Pass, next), (Verdict::Pass, next + 3)]);
}

#[test]
fn more_heads_than_places_are_not_kept() {
    let mut bench = Bench::<HttpLb>::new(TWO);
    for port in 0..5000 {
        let cookie = connect(&mut bench, 10_000 + port);
        bench.admit(&segment(10_000 + port, ACK, [1001, cookie.wrapping_add(1)], b"GET"));
    }
    let full: u32 = line(&bench, "packets without room").expect("a line").parse().expect("a number");
    assert!((2952..4000).contains(&full), "{full}");
    // The next ones take the places of those that take too long.
    bench.now += 10_001;
    assert!((0..100).all(|port| open(&mut bench, 30_000 + port, REQUEST).0 == usize::from(port)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Whatever comes, nothing breaks, and what is answered is well-formed.
    #[test]
    fn any_packet_is_handled(frames in mmb_oracle::generate::frames(20), state in 0..4u8, fill: [u8; 48]) {
        let mut bench = Bench::<HttpLb>::new(TWO);
        for frame in &frames {
            let mut meta = mmb_nf::Meta::default();
            let parsed = mmb_packet::parse(frame, frame.len(), &mut meta);
            if parsed.is_err() || mmb_flow::parse_key(frame, &meta).is_err() {
                continue;
            }
            if let (Admission::Answer, answer, _) = bench.admit(frame) {
                assert_checksums(&answer);
            }
            let session = bench.open(frame);
            let mut pad: Pad = bytemuck::pod_read_unaligned(&fill);
            pad.splice.state = state;
            for way in [Forward, Reverse] {
                bench.set_pad(session, pad);
                for (_, frame) in bench.packet(session, way, frame).emitted {
                    assert_checksums(&frame);
                }
            }
            let _ = key_of_frame(frame);
        }
    }

    /// Segments of a client that has proven its address, with any numbers and bytes.
    #[test]
    fn any_segment_of_a_client_is_handled(
        segments in prop::collection::vec((0..4u8, -50..400i32, 0..400u32, 0..5usize, any::<[u8; 6]>()), 1..40),
        ip6: bool,
    ) {
        let mut bench = Bench::<HttpLb>::new("host x to 10.0.0.1 2001:db8::1 path /a to 10.0.0.2");
        let net: mmb_packet::build::Net = match ip6 {
            true => Ip6::new([1u16; 8], [2u16; 8]).into(),
            false => Ip4::new(CLIENT, SERVICE).into(),
        };
        let build = |flags, seq, ack, payload: &[u8]| {
            Frame::new(net.clone(), Tcp { flags, seq, ack, ..Tcp::new(9, 80) }).payload(payload).build()
        };
        let (_, answer, _) = bench.admit(&build(SYN, 1000, 0, b""));
        let cookie = read(&answer).seq;
        for (flags, seq, ack, piece, bytes) in segments {
            let flags = [ACK, ACK | FIN, RST, ACK][usize::from(flags)];
            let pieces: [&[u8]; 5] = [b"GET /a HTTP/1.1\r\n", b"Host: x\r\n", b"\r\n", b"", &bytes];
            let (seq, ack) = (1001u32.wrapping_add_signed(seq), cookie.wrapping_add(1 + ack % 3 * (ack / 3)));
            let (admission, frame, _) = bench.admit(&build(flags, seq, ack, pieces[piece]));
            match admission {
                Admission::Answer | Admission::Open => { read(&frame); }
                Admission::Drop(_) => {}
            }
            bench.now += 100;
        }
    }
}
