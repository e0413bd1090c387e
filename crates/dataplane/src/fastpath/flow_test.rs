use mmb_packet::build::{Extension, Frame, Icmp, Ip4, Ip6, Tcp, Udp};
use proptest::prelude::*;

use super::*;

const PORT: FastPort = FastPort(3);
const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [10, 0, 0, 2];
const HOME: [u8; 6] = [2, 0, 0, 0, 9, 1];
const AWAY: [u8; 6] = [2, 0, 0, 0, 9, 2];

fn ack() -> Tcp {
    Tcp { flags: 0x10, ..Tcp::new(40_000, 80) }
}

fn echo(kind: u8) -> Icmp {
    Icmp { rest: [0x12, 0x34, 0, 7], ..Icmp::new(kind) }
}

fn key(frame: &Frame) -> Option<FastKey> {
    key_of(PORT, &frame.build())
}

#[test]
fn a_flow_is_named_by_its_ends() {
    let ends = |key: FastKey| (key.proto, key.source, key.source_port, key.destination, key.destination_port);
    let (a, b) = (IpAddr::from(A), IpAddr::from(B));
    let tcp = key(&Frame::new(Ip4::new(A, B), ack())).map(ends);
    assert_eq!(tcp, Some((6, a, 40_000, b, 80)));
    let padded = key(&Frame::new(Ip4::new(A, B), Udp::new(5, 6)).payload([1; 3]).pad_to(60)).map(ends);
    assert_eq!(padded, Some((17, a, 5, b, 6)));
    let six = key(&Frame::new(Ip6::new([1; 16], [2; 16]), Udp::new(5, 6))).map(ends);
    assert_eq!(six, Some((17, [1; 16].into(), 5, [2; 16].into(), 6)));
    assert_eq!(key(&Frame::new(Ip4::new(A, B), echo(8))).map(ends), Some((1, a, 0x1234, b, 8)));
    let six = key(&Frame::new(Ip6::new([1; 16], [2; 16]), echo(129))).map(ends);
    assert_eq!(six, Some((58, [1; 16].into(), 0x1234, [2; 16].into(), 129)));
}

#[test]
fn what_is_not_plain_is_of_no_flow() {
    let ip = || Ip4::new(A, B);
    let mut damaged = Frame::new(ip(), ack()).build();
    damaged[24] ^= 1;
    let mut short = Frame::new(ip(), Udp::new(1, 2)).payload([0; 9]).build();
    short.pop();
    let mut length = Frame::new(ip(), Udp::new(1, 2)).payload([0; 9]).build();
    length[39] -= 1;
    let frames = [
        Frame::new(ip(), ack()).vlan(5),
        Frame::new(Ip4 { options: vec![1; 4], ..ip() }, ack()),
        Frame::new(Ip4 { flags: 1, ..ip() }, Udp::new(1, 2)),
        Frame::new(Ip4 { fragment_offset: 9, ..ip() }, Udp::new(1, 2)),
        Frame::new(ip(), Icmp::new(3)),
        Frame::new(ip(), Icmp { code: 1, ..echo(8) }),
        Frame::new(ip(), echo(128)),
        Frame::new(Ip6::new([1; 16], [2; 16]), echo(8)),
        Frame::new(Ip6::new([1; 16], [2; 16]), Udp { checksum: false, ..Udp::new(1, 2) }),
        Frame::new(
            Ip6::new([1; 16], [2; 16]).with([Extension::Fragment { offset: 0, more: false, id: 1 }]),
            ack(),
        ),
        Frame::ethernet(0x0806),
    ];
    for (at, frame) in frames.iter().enumerate() {
        assert_eq!(key(frame), None, "frame {at}");
    }
    for frame in [damaged, short, length, Vec::new(), vec![0; 14]] {
        assert_eq!(key_of(PORT, &frame), None, "{frame:?}");
    }
}

/// One of the protocols over one of the versions, and the same with other ends.
fn frames() -> impl Strategy<Value = (Frame, Frame)> {
    let ends = (any::<[u8; 4]>(), any::<[u8; 4]>(), 1u16.., 1u16..);
    let tail = (prop::collection::vec(any::<u8>(), 0..40), any::<bool>(), 0..5usize);
    (ends.clone(), ends, tail).prop_map(|(one, other, (payload, partial, which))| {
        let make = |(a, b, sport, dport): ([u8; 4], [u8; 4], u16, u16)| {
            let (six, to) = ([a, a, b, a].concat(), [b, a, b, b].concat());
            let six = Ip6::new(<[u8; 16]>::try_from(six).unwrap(), <[u8; 16]>::try_from(to).unwrap());
            let ip = Ip4::new(a, b);
            let [high, low] = sport.to_be_bytes();
            let rest = [high, low, 0, 1];
            let frame = match which {
                0 => Frame::new(ip, Tcp { sport, dport, ..ack() }),
                1 => Frame::new(ip, Udp::new(sport, dport)),
                2 => Frame::new(six, Tcp { sport, dport, ..ack() }),
                3 => Frame::new(six, Udp::new(sport, dport)),
                _ => Frame::new(ip, Icmp { rest, ..Icmp::new(8) }),
            };
            frame.payload(payload.clone()).pad_to(60)
        };
        let before = make(one);
        (if partial { before.partial_checksum() } else { before }, make(other))
    })
}

/// As a router sends it on.
fn a_hop_on(frame: &mut [u8]) {
    frame[..6].copy_from_slice(&AWAY);
    frame[6..12].copy_from_slice(&HOME);
    if frame[14] >> 4 == 6 {
        frame[21] -= 1;
        return;
    }
    frame[22] -= 1;
    frame[24..26].fill(0);
    let sum = !checksum::fold(checksum::sum(&frame[14..34], 0));
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

proptest! {
    /// Addresses and ports, TTL and Ethernet header, in any combination: what was done is what is found, though the packet
    /// may have come with its checksum unfinished. Anything else that differs is noticed.
    #[test]
    fn what_was_done_is_read_off(
        (before, after) in frames(),
        routed: bool,
        translated: bool,
        hit in any::<prop::sample::Index>(),
        bit in 0..8u8,
    ) {
        let key = key(&before).unwrap();
        let mut sent = if translated { after.build() } else {
            // The same packet, complete.
            let mut whole = before.build();
            let headers = Headers::of(&whole).unwrap();
            let sum = transport_checksum(&mut whole, headers).unwrap();
            put(&mut whole, headers.checksum(), sum).unwrap();
            whole
        };
        if routed {
            a_hop_on(&mut sent);
        }
        let done = compare(key.port, routed, &before.build(), &sent).unwrap();
        prop_assert_eq!(done.decrement_ttl, routed);
        prop_assert_eq!(done.macs, routed.then_some(FastMacs { destination: AWAY, source: HOME }));
        let now = key_of(PORT, &sent).unwrap();
        if let Some(to) = done.translation {
            let to = (to.source, to.destination, to.source_port, to.destination_port);
            prop_assert_eq!(to, (now.source, now.destination, now.source_port, now.destination_port));
        } else {
            prop_assert_eq!(key, now);
        }
        let at = hit.index(sent.len());
        sent[at] ^= 1u8 << bit;
        let refused = compare(key.port, routed, &before.build(), &sent) == Err(Refused::Otherwise);
        // Other Ethernet addresses are a router's to give.
        prop_assert_eq!(refused, !(routed && at < 12));
        prop_assert_eq!(compare(key.port, !routed, &before.build(), &sent), Err(Refused::Otherwise));
    }
}

#[test]
fn segments_have_their_places() {
    for (flags, stateless, sessions) in [
        (0x02, Place::First, Place::Opening),
        (0x12, Place::First, Place::First),
        (0x10, Place::Later, Place::Later),
        (0x18, Place::Later, Place::Later),
        (0x11, Place::Useless, Place::Useless),
        (0x14, Place::Useless, Place::Useless),
        (0x04, Place::Useless, Place::Useless),
    ] {
        for frame in [
            Frame::new(Ip4::new(A, B), Tcp { flags, ..ack() }),
            Frame::new(Ip6::new([1; 16], [2; 16]), Tcp { flags, ..ack() }),
        ] {
            let key = key(&frame).unwrap();
            assert_eq!(place(&key, &frame.build(), false), stateless, "{flags:#x}");
            assert_eq!(place(&key, &frame.build(), true), sessions, "{flags:#x}");
            assert_eq!(is_answer(&key, &frame.build()), flags == 0x12, "{flags:#x}");
        }
    }
    // Not what stands there in a datagram.
    let datagram = Frame::new(Ip4::new(A, B), Udp::new(1, 2)).payload([0xff; 20]);
    assert_eq!(place(&key(&datagram).unwrap(), &datagram.build(), true), Place::First);
    assert!(!is_answer(&key(&datagram).unwrap(), &datagram.build()));
}

#[test]
fn more_than_the_headers_is_refused() {
    let before = Frame::new(Ip4::new(A, B), Udp::new(1, 2)).payload(*b"one");
    let same = Frame::new(Ip4::new(A, B), Udp::new(1, 2)).payload(*b"two");
    let longer = before.clone().pad_to(60);
    let key = key(&before).unwrap();
    for after in [same, longer] {
        assert_eq!(compare(key.port, false, &before.build(), &after.build()), Err(Refused::Otherwise));
    }
    assert!(compare(key.port, false, &before.build(), &before.build()).is_ok());
}
