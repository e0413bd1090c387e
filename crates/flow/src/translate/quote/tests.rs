//! Tests of the parent module.

use mmb_packet::build::{Extension, Frame, Icmp, Ip4, Ip6, Transport, Udp};
use mmb_packet::parse;

use super::*;

const SENDER: [u8; 4] = [10, 0, 0, 1];
const OTHER: [u8; 4] = [10, 0, 0, 2];

fn ip4_packet(transport: impl Into<Transport>) -> Vec<u8> {
    Frame::new(Ip4::new(SENDER, OTHER), transport).payload([7; 40]).build()[14..].to_vec()
}

fn ip6_packet(extension: Extension) -> Vec<u8> {
    let ip = Ip6::new([1; 16], [2; 16]).with([extension]);
    Frame::new(ip, Udp::new(1, 2)).payload([7; 40]).build()[14..].to_vec()
}

/// The packet with one byte changed.
fn with(mut packet: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    packet[at] = byte;
    packet
}

fn found(frame: Vec<u8>) -> bool {
    let mut meta = Meta::default();
    assert_eq!(parse(&frame, frame.len(), &mut meta), Ok(()));
    parse_quote(&frame, &meta).is_some()
}

fn found4(kind: u8, packet: &[u8]) -> bool {
    found(Frame::new(Ip4::new(OTHER, SENDER), Icmp::new(kind)).payload(packet).build())
}

fn found6(kind: u8, packet: &[u8]) -> bool {
    found(Frame::new(Ip6::new([2; 16], [1; 16]), Icmp::new(kind)).payload(packet).build())
}

#[test]
fn only_errors_quote() {
    let skipped = Extension::Plain { number: 60, body: vec![0; 6] };
    let (packet, packet6) = (ip4_packet(Udp::new(1, 2)), ip6_packet(skipped));
    for kind in 0..=255 {
        assert_eq!(found4(kind, &packet), matches!(kind, 3 | 4 | 5 | 11 | 12), "{kind}");
        assert_eq!(found6(kind, &packet6), matches!(kind, 1..=4), "{kind}");
    }
}

#[test]
fn eight_bytes_of_a_transport_header_are_needed() {
    for (transport, least) in
        [(Transport::from(Udp::new(1, 2)), 28), (Icmp::new(8).into(), 28), (Transport::Raw(47), 20)]
    {
        let packet = ip4_packet(transport);
        (0..packet.len()).for_each(|length| assert_eq!(found4(3, &packet[..length]), length >= least));
    }
    let packet = ip6_packet(Extension::Fragment { offset: 0, more: true, id: 1 });
    (0..packet.len()).for_each(|length| assert_eq!(found6(3, &packet[..length]), length >= 56));
    // After the end of the packet lie other bytes.
    let [short, short6] = [with(ip4_packet(Udp::new(1, 2)), 3, 27), with(packet, 5, 15)];
    assert!(!found4(3, &short) && !found6(3, &short6));
}

#[test]
fn quotes_that_belong_to_no_session_are_not_found() {
    let packet = ip4_packet(Udp::new(1, 2));
    assert!(!found4(3, &with(packet.clone(), 0, 0x55)), "version 5");
    assert!(!found4(3, &with(packet.clone(), 0, 0x44)), "header of 16 bytes");
    assert!(!found4(3, &with(packet.clone(), 7, 1)), "a later fragment");
    assert!(!found4(3, &with(packet, 15, 9)), "somebody else sent it");
    for kind in [3, 4, 5, 11, 12] {
        assert!(!found4(3, &ip4_packet(Icmp::new(kind))), "an error about an error");
    }
    let packet = ip6_packet(Extension::Fragment { offset: 1, more: true, id: 1 });
    assert!(!found6(3, &packet), "a later fragment");
    let packet = ip6_packet(Extension::Plain { number: 60, body: vec![0; 6] });
    assert!(!found6(3, &with(packet.clone(), 0, 0x45)), "version 4");
    assert!(!found6(3, &with(packet.clone(), 23, 9)), "somebody else sent it");
    assert!(!found6(3, &with(packet, 41, 9)), "an extension header longer than the packet");
}
