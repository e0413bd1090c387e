//! Tests of the parent module.

use std::net::Ipv6Addr;

use mmb_packet::build::{Extension, Frame, Icmp, Ip4, Ip6, Net, Tcp, Transport, Udp};
use mmb_packet::{PacketFlags, parse};
use proptest::prelude::*;

use super::*;

const A: [u8; 4] = [192, 0, 2, 1];
const B: [u8; 4] = [198, 51, 100, 2];
const A6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const B6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 7, 0, 0, 0, 0, 2);

fn of(frame: &Frame) -> Result<Key, KeyError> {
    let frame = frame.build();
    let mut meta = Meta::default();
    if let Err(reason) = parse(&frame, frame.len(), &mut meta) {
        assert!(reason.is_transport_error());
    }
    parse_key(&frame, &meta)
}

fn there4(transport: impl Into<Transport>) -> Result<Key, KeyError> {
    of(&Frame::new(Ip4::new(A, B), transport).payload([0; 40]))
}

fn back4(transport: impl Into<Transport>) -> Result<Key, KeyError> {
    of(&Frame::new(Ip4::new(B, A), transport).payload([0; 40]))
}

fn key4(kind: u8, proto: u8, ports: [u8; 4]) -> Key {
    let [source_port, destination_port] = bytemuck::cast(ports);
    let (source, destination) = (widen(A), widen(B));
    Key { source, destination, source_port, destination_port, kind: Kind::IP4 | kind, proto, asks: [0; 2] }
}

fn query4(ports: [u8; 4]) -> Key {
    Key { asks: Key::BY_SOURCE, ..key4(Kind::ICMP, 1, ports) }
}

fn echo(kind: u8, id: [u8; 2]) -> Icmp {
    Icmp { rest: [id[0], id[1], 9, 9], ..Icmp::new(kind) }
}

#[test]
fn ports_of_tcp_and_udp() {
    assert_eq!(there4(Tcp::new(0x1234, 80)), Ok(key4(Kind::TCP, 6, [0x12, 0x34, 0, 80])));
    assert_eq!(there4(Udp::new(53, 0x1234)), Ok(key4(Kind::UDP, 17, [0, 53, 0x12, 0x34])));
    assert_eq!(back4(Tcp::new(80, 0x1234)), there4(Tcp::new(0x1234, 80)).map(|key| key.reversed()));
    let six = of(&Frame::new(Ip6::new(A6, B6), Udp::new(53, 0x1234)).vlan(3)).unwrap();
    assert_eq!((six.source, six.destination), (A6.octets(), B6.octets()));
    assert_eq!((six.source_port, six.destination_port), ([0, 53], [0x12, 0x34]));
    assert_eq!((six.kind, six.proto, six.is_ip4()), (Kind::IP6 | Kind::UDP, 17, false));
}

/// RFC 792 and RFC 950: echo, timestamp, information, address mask; RFC 4443: echo; RFC 8335: extended echo.
#[test]
fn icmp_replies_have_their_requests_key_reversed() {
    for (request, reply) in [(8, 0), (13, 14), (15, 16), (17, 18), (42, 43)] {
        let key = there4(echo(request, [7, 5])).unwrap();
        assert_eq!(key, query4([7, 5, 0, request]));
        assert_eq!(back4(echo(reply, [7, 5])), Ok(key.reversed()));
        let crossing = back4(echo(request, [7, 5])).unwrap();
        assert_ne!(crossing, key.reversed(), "B's ping to A is another session");
    }
    let six = |src, dst, kind| of(&Frame::new(Ip6::new(src, dst), echo(kind, [7, 5]))).unwrap();
    let key = six(A6, B6, 128);
    assert_eq!((key.source_port, key.destination_port), ([7, 5], [0, 128]));
    assert_eq!(six(B6, A6, 129), key.reversed());
    assert_eq!(six(B6, A6, 161), six(A6, B6, 160).reversed());
}

/// A reply whose identifier equals the type of another query, and a query with the reverse.
#[test]
fn a_reply_is_never_a_query() {
    for id in [8, 13, 15, 17, 42] {
        for (request, reply) in [(8, 0), (13, 14), (15, 16), (17, 18), (42, 43)] {
            let reply = there4(echo(reply, [0, id])).unwrap();
            let query = there4(echo(id, [0, request])).unwrap();
            assert_eq!(
                (reply.source_port, reply.destination_port),
                (query.source_port, query.destination_port)
            );
            assert_ne!(reply, query);
            assert_ne!(reply.pack(), query.pack());
            assert_eq!(query.reversed().asks, Key::BY_DESTINATION);
        }
    }
}

#[test]
fn icmp_errors_and_other_icmp() {
    let four: Vec<u8> = (0..=255).filter(|&t| there4(Icmp::new(t)) == Err(KeyError::IcmpError)).collect();
    assert_eq!(four, [3, 4, 5, 11, 12]);
    let error6 = |t| of(&Frame::new(Ip6::new(A6, B6), Icmp::new(t))) == Err(KeyError::IcmpError);
    assert_eq!((0..=255).filter(|&t| error6(t)).collect::<Vec<u8>>(), [1, 2, 3, 4]);
    assert_eq!(there4(echo(9, [7, 5])), Ok(key4(Kind::ICMP, 1, [0; 4])), "router advertisement");
}

#[test]
fn other_protocols_are_address_pairs() {
    assert_eq!(there4(Transport::Raw(47)), Ok(key4(Kind::L4_NONE, 47, [0; 4])));
    let cut = of(&Frame::new(Ip4::new(A, B), Transport::Raw(6)).payload([0x12, 0x34, 0, 80]));
    assert_eq!(cut, Ok(key4(Kind::L4_NONE, 6, [0; 4])), "a TCP header that is cut short");
    assert_eq!(of(&Frame::ethernet(0x0806).payload([0; 46])), Err(KeyError::NotIp));
}

#[test]
fn fragments() {
    let first = Net::from(Ip4 { flags: 1, ..Ip4::new(A, B) });
    let key = key4(Kind::UDP, 17, [0, 53, 0, 9]);
    let first = Frame::new(first, Udp::new(53, 9)).payload([0; 40]);
    assert_eq!(of(&first), Err(KeyError::FirstFragment(key)));
    let later = Ip4 { fragment_offset: 6, ..Ip4::new(A, B) };
    assert_eq!(of(&Frame::new(later, Transport::Raw(17)).payload([0; 8])), Err(KeyError::LaterFragment));
    let six = |offset, more, transport: Transport| {
        let fragment = Extension::Fragment { offset, more, id: 1 };
        of(&Frame::new(Ip6::new(A6, B6).with([fragment]), transport).payload([0; 40]))
    };
    assert!(matches!(six(0, true, Udp::new(53, 9).into()), Err(KeyError::FirstFragment(_))));
    assert_eq!(six(6, false, Transport::Raw(17)), Err(KeyError::LaterFragment));
    assert!(six(0, false, Udp::new(53, 9).into()).is_ok(), "RFC 6946: whole");
}

proptest! {
    #[test]
    fn packing_loses_nothing(bytes: [[u8; 10]; 4], ip6: bool, asks in 0..3usize) {
        let mut key: Key = bytemuck::cast(bytes);
        key.asks = [[0; 2], Key::BY_SOURCE, Key::BY_DESTINATION][asks];
        key.kind = key.kind & Kind::L4_MASK | if ip6 { Kind::IP6 } else { Kind::IP4 };
        if !ip6 {
            key.source[4..].fill(0);
            key.destination[4..].fill(0);
        }
        prop_assert_eq!(key.pack().unpack(), key);
        prop_assert_eq!(key.pack().head[1] >> 48, 0, "room for other things");
        prop_assert_eq!(key.pack().is_ip6(), ip6);
    }

    #[test]
    fn no_packet_is_too_short(bytes: Vec<u8>, l3_off: u16, l4_off: u16, kind: u8, flags: u8) {
        let meta = Meta { l3_off, l4_off, kind: Kind(kind), flags: PacketFlags::from_bits_retain(flags), ..Meta::default() };
        if bytes.len() < usize::from(l3_off) {
            prop_assert!(parse_key(&bytes, &meta).is_err());
        }
    }
}

proptest! {
    #[test]
    fn keys_are_reversed_field_by_field(bytes: [u8; 32], ends: [u8; 8], address: [u8; 4], port: [u8; 2]) {
        for version in [Kind::IP4, Kind::IP6] {
            let [source, destination] = match version {
                Kind::IP4 => [widen(bytemuck::cast([bytes[0], bytes[1], bytes[2], bytes[3]])), widen(address)],
                _ => bytemuck::cast(bytes),
            };
            let [s0, s1, d0, d1, _, proto, asks @ ..] = ends;
            let key = Key {
                source,
                destination,
                source_port: [s0, s1],
                destination_port: [d0, d1],
                kind: version | Kind::UDP,
                proto,
                asks,
            };
            let reversed = Key {
                source: destination,
                destination: source,
                source_port: [d0, d1],
                destination_port: [s0, s1],
                asks: [asks[1], asks[0]],
                ..key
            };
            prop_assert_eq!(key.reversed(), reversed);
            prop_assert!(key.is_reversed(&reversed));
            for changed in [
                Key { source: [1; 16], ..reversed },
                Key { destination: [1; 16], ..reversed },
                Key { source_port: [d0 ^ 1, d1], ..reversed },
                Key { destination_port: [s0, s1 ^ 1], ..reversed },
                Key { asks: [asks[1], asks[0] ^ 1], ..reversed },
                Key { proto: proto ^ 1, ..reversed },
            ] {
                prop_assert_eq!(key.is_reversed(&changed), changed == reversed);
            }
            let moved = Key { destination: widen(address), destination_port: port, ..key };
            prop_assert_eq!(key.with_destination4(address, port), moved);
        }
    }
}
