//! The functions that edit streams of packets do the same to the bytes of a broker's connection.

use std::net::SocketAddr;
use std::sync::Arc;

use mmb_nf::{ByteStreams, ChainVerdict, Direction, Follows, Harness, Instance, Refusal};
use mmb_packet::build::{Frame, Ip4, Tcp};
use proptest::prelude::*;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// What the ends of a connection get, by direction, and whether a function has refused the connection.
type Outcome = ([Vec<u8>; 2], bool);

/// A piece of a connection: its direction and its bytes. The last one of a direction has its end.
type Piece = (usize, Vec<u8>);

fn harness(functions: &[&str]) -> Harness {
    let lines = functions.iter().enumerate().map(|(n, line)| format!("nf add f{n} {line}\n"));
    let names: Vec<String> = (0..functions.len()).map(|n| format!("f{n}")).collect();
    let lines: String = lines.chain([format!("chain add c {}", names.join(" | "))]).collect();
    Harness::new(mmb_nf_builtin::registry(), &lines).expect("accepted lines")
}

/// Sends the pieces as segments.
fn as_packets(functions: &[&str], pieces: &[Piece]) -> Outcome {
    let mut harness = harness(functions);
    let (mut next, mut passed, mut is_refused) = ([100_u32, 500], [Vec::new(), Vec::new()], false);
    let mut segment = |direction: usize, flags: u8, payload: &[u8]| {
        let (ends, ports, other) = ([[10, 0, 0, 1], [10, 0, 0, 2]], [4000, 80], 1 - direction);
        let ack = if flags == SYN { 0 } else { [101, 501][other] + passed[other].len() as u32 };
        let tcp = Tcp { seq: next[direction], ack, flags, ..Tcp::new(ports[direction], ports[other]) };
        let frame = Frame::new(Ip4::new(ends[direction], ends[other]), tcp).payload(payload).build();
        next[direction] += payload.len() as u32 + u32::from(flags & (SYN | FIN) != 0);
        for sent in harness.send("c", &[frame]) {
            is_refused |= matches!(sent.verdict, ChainVerdict::Refuse(_));
            let own = (sent.verdict == ChainVerdict::Pass).then_some(sent.frame);
            for frame in sent.emitted.into_iter().map(|(_, frame)| frame).chain(own) {
                let way = usize::from(frame[34..36] == 80_u16.to_be_bytes());
                if frame[47] & (SYN | RST) == 0 {
                    passed[way].extend_from_slice(&frame[34 + usize::from(frame[46] >> 4) * 4..]);
                }
            }
        }
        is_refused
    };
    for (direction, flags) in [(0, SYN), (1, SYN | ACK), (0, ACK)] {
        segment(direction, flags, b"");
    }
    let ends = pieces.iter().map(|(direction, bytes)| (*direction, ACK, &**bytes));
    for (direction, flags, bytes) in ends.chain([(0, ACK | FIN, &[][..]), (1, ACK | FIN, &[])]) {
        if segment(direction, flags, bytes) {
            break;
        }
    }
    (passed, is_refused)
}

/// Gives the pieces to the functions as a broker does.
fn as_bytes(functions: &[&str], pieces: &[Piece]) -> Outcome {
    let harness = harness(functions);
    let instances: Vec<Arc<Instance>> = (0..functions.len())
        .map(|n| harness.program().instance(&format!("f{n}")).expect("an instance").clone())
        .collect();
    let [client, server] =
        ["10.0.0.1:4000", "10.0.0.2:80"].map(|end| end.parse::<SocketAddr>().expect("an address"));
    let mut streams = ByteStreams::open(&instances, client, server).expect("stream functions");
    let mut passed = [Vec::new(), Vec::new()];
    let ends = pieces.iter().map(|(direction, bytes)| (*direction, &**bytes, Follows::More));
    for (direction, bytes, follows) in ends.chain([(0, &[][..], Follows::End), (1, &[], Follows::End)]) {
        let which = if direction == 0 { Direction::Forward } else { Direction::Reverse };
        if streams.push(which, bytes, follows, &mut passed[direction]).is_err() {
            return (passed, true);
        }
    }
    assert!(!streams.is_holding(Direction::Forward) && !streams.is_holding(Direction::Reverse));
    (passed, false)
}

/// Parts of messages, and what spoils them.
fn text() -> impl Strategy<Value = (usize, &'static [u8])> {
    let texts: &[(usize, &'static [u8])] = &[
        (0, b"GET /old/b HTTP/1.1\r\nHost: a\r\n\r\n"),
        (0, b"HEAD / HTTP/1.1\r\nHost: a\r\nX-Drop: 1\r\n\r\n"),
        (0, b"POST / HTTP/1.0\r\nContent-Length: 4\r\n\r\nabba"),
        (0, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nb\r\n0\r\n\r\n"),
        (0, b"GET /chat HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"),
        (1, b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nETag: \"a\"\r\n\r\nxabbabx"),
        (1, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;e\r\nabb\r\n2\r\nab\r\n0\r\nX: ab\r\n\r\n"),
        (1, b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"),
        (1, b"HTTP/1.1 204 None\r\n\r\n"),
        (1, b"HTTP/1.1 100 Continue\r\n\r\n"),
        (1, b"HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"),
        (1, b"HTTP/1.0 200 OK\r\n\r\nabbab"),
        (1, b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 27\r\n\r\n\x1f\x8b\x08\0\0\0\0\0\0\x03KLJJLJN\x04\0\xd1\xf4\xcf\xaa\x07\0\0\0"),
        (1, b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc"),
        (0, b"ab"),
        (1, b"ab"),
        (0, b"a"),
        (1, b"evil"),
        (0, b"\xff\n"),
    ];
    prop::sample::select(texts)
}

const CHAINS: [&[&str]; 8] = [
    &[
        "http-edit type * request header add X-New 1 request header del X-Drop request path replace ^/old/(.*) /new/$1",
    ],
    &[
        "http-edit type * response body replace ab xyz response header add X-Seen yes response location replace ab $0c",
    ],
    &["http-edit type * request body replace ab c response body replace bb longer"],
    &["match ab replace xyz"],
    &["match ab mask", "http-log"],
    &["match evil reset", "match bb remove"],
    &["match evil close http-body", "http-edit type * response body replace ab z"],
    &[
        "match evil alert",
        "http-edit type * response body replace abb q request body replace b qqq",
        "match q mask",
    ],
];

/// Cuts texts into pieces of some bytes.
fn cut(texts: &[(usize, &'static [u8])], sizes: &[usize]) -> Vec<Piece> {
    let mut sizes = sizes.iter().copied().cycle();
    let mut pieces = Vec::new();
    for (direction, text) in texts {
        let mut rest = *text;
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(sizes.next().unwrap_or(1).min(rest.len()));
            pieces.push((*direction, piece.to_vec()));
            rest = behind;
        }
    }
    pieces
}

proptest! {
    #[test]
    fn brokers_and_packets_agree(
        chain in 0..CHAINS.len(),
        texts in prop::collection::vec(text(), 1..10),
        sizes in prop::collection::vec(1..200_usize, 1..5),
    ) {
        let pieces = cut(&texts, &sizes);
        let [packets, bytes] = [as_packets(CHAINS[chain], &pieces), as_bytes(CHAINS[chain], &pieces)];
        let shown = |(passed, is_refused): &Outcome| {
            (passed.each_ref().map(|text| String::from_utf8_lossy(text).into_owned()), *is_refused)
        };
        prop_assert_eq!(shown(&packets), shown(&bytes));
    }
}

/// What waits goes on when the receiver needs it.
#[test]
fn bytes_that_wait_are_released() {
    let harness = harness(&["match abc replace x"]);
    let instances = [harness.program().instance("f0").unwrap().clone()];
    let end = |port: u16| SocketAddr::new(std::net::Ipv6Addr::LOCALHOST.into(), port);
    let mut streams = ByteStreams::open(&instances, end(1), end(2)).unwrap();
    let mut out = Vec::new();
    for (bytes, follows, expected, is_holding) in [
        (&b"abcab"[..], Follows::More, &b"x"[..], true),
        (b"c ab", Follows::More, b"x ", true),
        (b"", Follows::Answer, b"ab", false),
        (b"c ab", Follows::End, b"c ab", false),
    ] {
        out.clear();
        assert_eq!(streams.push(Direction::Reverse, bytes, follows, &mut out), Ok(()));
        assert_eq!((&*out, streams.is_holding(Direction::Reverse)), (expected, is_holding));
    }
    let mixed = ByteStreams::open(&instances, end(1), "10.0.0.1:80".parse().unwrap());
    assert!(mixed.is_none());
}

#[test]
fn refusals_have_their_kind() {
    for (line, expected) in [("match evil close", Refusal::Close), ("match evil reset", Refusal::Reset)] {
        let harness = harness(&[line]);
        let instances = [harness.program().instance("f0").unwrap().clone()];
        let [client, server] = ["10.0.0.1:4000", "10.0.0.2:80"].map(|end| end.parse().unwrap());
        let mut streams = ByteStreams::open(&instances, client, server).expect("stream functions");
        let mut out = Vec::new();
        assert_eq!(streams.push(Direction::Forward, b"ev", Follows::More, &mut out), Ok(()));
        assert_eq!(streams.push(Direction::Forward, b"il", Follows::More, &mut out), Err(expected));
        assert_eq!(out, b"ev");
    }
}
