//! Tests of the parent module.

use super::*;
use crate::build::{Extension, Frame, Icmp, Ip4, Ip6, Net, Tcp, Transport, Udp};
use crate::parse;

fn of(frame: &[u8], which: PayloadLayer) -> Option<Vec<u8>> {
    let mut meta = Meta::default();
    assert_eq!(parse(frame, frame.len(), &mut meta), Ok(()));
    payload(frame, &meta, which).map(<[u8]>::to_vec)
}

fn ip4() -> Ip4 {
    Ip4 { options: vec![1; 8], ..Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]) }
}

fn frame(net: impl Into<Net>, transport: impl Into<Transport>, payload: &[u8]) -> Vec<u8> {
    Frame::new(net, transport).payload(payload).pad_to(100).build()
}

#[test]
fn payloads_begin_behind_their_headers() {
    let tcp = Tcp { options: vec![1; 12], ..Tcp::new(1, 2) };
    let segment = frame(ip4(), tcp.clone(), b"GET /");
    assert_eq!(of(&segment, PayloadLayer::Tcp), Some(b"GET /".to_vec()));
    assert_eq!(of(&segment, PayloadLayer::Ip), Some(segment[42..42 + 37].to_vec()));
    assert_eq!(
        [PayloadLayer::Ip6, PayloadLayer::Udp, PayloadLayer::Icmp].map(|which| of(&segment, which)),
        [const { None }; 3]
    );
    let ip6 = Ip6::new([1; 16], [2; 16]).with([Extension::Plain { number: 0, body: vec![] }]);
    let segment = frame(ip6.clone(), tcp, b"GET /");
    assert_eq!(of(&segment, PayloadLayer::Tcp), Some(b"GET /".to_vec()));
    assert_eq!(
        of(&segment, PayloadLayer::Ip6),
        Some(segment[54..54 + 45].to_vec()),
        "extension headers included"
    );
    assert_eq!(of(&frame(ip4(), Icmp::new(8), b"ping"), PayloadLayer::Icmp), Some(b"ping".to_vec()));
    let echo = frame(ip6, Icmp::new(128), b"ping");
    assert_eq!(
        (of(&echo, PayloadLayer::Icmp6), of(&echo, PayloadLayer::Icmp)),
        (Some(b"ping".to_vec()), None)
    );
}

#[test]
fn empty_payloads_are_none() {
    assert_eq!(of(&frame(ip4(), Tcp::new(1, 2), b""), PayloadLayer::Tcp), None, "padding does not count");
    assert_eq!(of(&frame(ip4(), Udp::new(1, 2), b""), PayloadLayer::Udp), None);
    let bare = frame(ip4(), Transport::Raw(47), b"");
    assert_eq!((of(&bare, PayloadLayer::Ip), of(&bare, PayloadLayer::Tcp)), (None, None));
}

#[test]
fn udp_payload_ends_at_the_udp_length() {
    let mut datagram = frame(ip4(), Udp::new(1, 2), b"abcdef");
    for (length, expected) in [(8, None), (9, Some(b"a".to_vec())), (14, Some(b"abcdef".to_vec()))] {
        datagram[47] = length;
        assert_eq!(of(&datagram, PayloadLayer::Udp), expected);
    }
    datagram[47] = 200;
    assert_eq!(of(&datagram, PayloadLayer::Udp), Some(b"abcdef".to_vec()), "more than IP has");
}

#[test]
fn fragments_have_only_the_network_payload() {
    let later = Ip4 { fragment_offset: 8, ..ip4() };
    let fragment = frame(later, Transport::Raw(6), b"GET /");
    assert_eq!(
        (of(&fragment, PayloadLayer::Ip), of(&fragment, PayloadLayer::Tcp)),
        (Some(b"GET /".to_vec()), None)
    );
}

/// The end offset of the longest packet does not fit 16 bits behind an Ethernet header.
#[test]
fn the_longest_packet_has_its_whole_payload() {
    let long = Frame::new(ip4(), Udp::new(1, 2)).payload(vec![7; 65_535 - 28 - 8]).build();
    assert_eq!(of(&long, PayloadLayer::Udp).map(|bytes| bytes.len()), Some(65_535 - 28 - 8));
    let mut meta = Meta::default();
    assert_eq!(parse(&long, long.len(), &mut meta), Ok(()));
    assert_eq!(
        payload(&long[..60], &meta, PayloadLayer::Udp).map(<[u8]>::len),
        Some(60 - 50),
        "the bytes that are there"
    );
}
