use super::*;
use mmb_packet::build::{Extension, Frame, Icmp, Ip4, Ip6, Tcp, Udp};

const PORT: FastPort = FastPort(3);
const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [10, 0, 0, 2];

fn ack() -> Tcp {
    Tcp { flags: 0x10, ..Tcp::new(40_000, 80) }
}

fn echo(kind: u8) -> Icmp {
    Icmp { rest: [0x12, 0x34, 0, 7], ..Icmp::new(kind) }
}

fn key(frame: &Frame) -> Option<FastKey> {
    parse_key(PORT, &frame.build())
}

#[test]
fn keys_hold_the_ends_of_flows() {
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
fn unusual_packets_have_no_key() {
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
        assert_eq!(parse_key(PORT, &frame), None, "{frame:?}");
    }
}

#[test]
fn segments_have_roles() {
    for (flags, stateless, sessions) in [
        (0x02, PacketRole::First, PacketRole::Opening),
        (0x12, PacketRole::First, PacketRole::First),
        (0x10, PacketRole::Later, PacketRole::Later),
        (0x18, PacketRole::Later, PacketRole::Later),
        (0x11, PacketRole::Last, PacketRole::Last),
        (0x14, PacketRole::Last, PacketRole::Last),
        (0x04, PacketRole::Last, PacketRole::Last),
    ] {
        for frame in [
            Frame::new(Ip4::new(A, B), Tcp { flags, ..ack() }),
            Frame::new(Ip6::new([1; 16], [2; 16]), Tcp { flags, ..ack() }),
        ] {
            let key = key(&frame).unwrap();
            assert_eq!(packet_role(&key, &frame.build(), false), stateless, "{flags:#x}");
            assert_eq!(packet_role(&key, &frame.build(), true), sessions, "{flags:#x}");
            assert_eq!(is_tcp_answer(&key, &frame.build()), flags == 0x12, "{flags:#x}");
        }
    }
    // The bytes of a datagram at the place of TCP flags do not matter.
    let datagram = Frame::new(Ip4::new(A, B), Udp::new(1, 2)).payload([0xff; 20]);
    assert_eq!(packet_role(&key(&datagram).unwrap(), &datagram.build(), true), PacketRole::First);
    assert!(!is_tcp_answer(&key(&datagram).unwrap(), &datagram.build()));
}
