//! ICMP errors that the engine sends, compared with those that scapy builds (`vectors/make.py`).

use std::net::IpAddr;

use mmb_flow::{IcmpErrorKind, parse_quote, rewrite_as_icmp_error};
use mmb_packet::{Kind, Meta, PacketBuf, VecPacket, parse};

struct Vector {
    name: &'static str,
    complaint: IcmpErrorKind,
    source: [u8; 16],
    packet: Vec<u8>,
    /// Empty: no error.
    error: Vec<u8>,
}

fn vectors() -> Vec<Vector> {
    let lines = include_str!("vectors/answers.txt").lines();
    lines.filter(|line| !line.starts_with('#')).map(vector).collect()
}

fn vector(line: &'static str) -> Vector {
    let [name, complaint, source, packet, error]: [&str; 5] =
        line.split('|').map(str::trim).collect::<Vec<_>>().try_into().expect("five columns");
    let source = match source.parse().expect("an address") {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        }
        IpAddr::V6(address) => address.octets(),
    };
    Vector { name, complaint: complaint_of(complaint), source, packet: bytes(packet), error: bytes(error) }
}

fn complaint_of(words: &str) -> IcmpErrorKind {
    match words {
        "prohibited" => IcmpErrorKind::PROHIBITED,
        "no-route" => IcmpErrorKind::NO_ROUTE,
        "unreachable" => IcmpErrorKind::UNREACHABLE,
        "no-neighbor" => IcmpErrorKind::NO_NEIGHBOR,
        "time-exceeded" => IcmpErrorKind::TIME_EXCEEDED,
        words => {
            let mtu = words.strip_prefix("too-big ").expect("a complaint");
            IcmpErrorKind::too_big(mtu.parse().expect("a number"))
        }
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).expect("hexadecimal")).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parsed(frame: &[u8]) -> Meta {
    let mut meta = Meta::default();
    if let Err(reason) = parse(frame, frame.len(), &mut meta) {
        assert!(reason.is_transport_error());
    }
    meta
}

#[test]
fn errors_are_those_of_scapy() {
    for Vector { name, complaint, source, packet, error } in vectors() {
        let (mut buffer, mut meta) = (VecPacket::new(&packet), parsed(&packet));
        let answered = rewrite_as_icmp_error(&mut buffer, &mut meta, complaint, source);
        assert_eq!(answered, !error.is_empty(), "{name}");
        let expected = if answered { &error } else { &packet };
        assert_eq!(hex(buffer.head()), hex(expected), "{name}");
        assert_eq!(meta, parsed(expected), "{name}");
    }
}

/// The engine's own errors can be parsed.
#[test]
fn the_quotation_is_found_again() {
    for Vector { name, error, .. } in vectors().iter().filter(|vector| !vector.error.is_empty()) {
        let found = parse_quote(error, &parsed(error)).is_some();
        // "padded" is a packet with one byte after its network header.
        assert!(found || *name == "padded", "{name}");
    }
}

#[test]
fn a_packet_without_room_in_front_stays_as_it_is() {
    for Vector { name, complaint, source, packet, .. } in vectors() {
        let mut meta = parsed(&packet);
        let needed = if meta.kind.l3() == Kind::IP4 { 28 } else { 48 };
        let mut buffer = VecPacket::with_room(&packet, needed - 1);
        let before = (buffer.clone(), meta);
        assert!(!rewrite_as_icmp_error(&mut buffer, &mut meta, complaint, source), "{name}");
        assert_eq!((buffer, meta), before, "{name}");
    }
}
