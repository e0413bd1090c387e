//! Tests of the parent module.

use mmb_packet::build::{Frame, Ip4, Ip6, Udp};
use mmb_packet::checksum::{fold, sum};
use proptest::prelude::*;

use super::*;

const HOP: NextHop = NextHop {
    header: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
    interface: 0,
    first: 0,
    members: 0,
    port: 0,
    mtu: 0,
    kind: crate::NextHopKind::Forward,
    gateway: None,
    neighbor_stale: false,
};

proptest! {
    #[test]
    fn ip4_equals_the_builders_frame(src: [u8; 4], dst: [u8; 4], ttl in 1u8.., id: u16, tos: u8) {
        let ip = |ttl| Ip4 { ttl, id, tos, ..Ip4::new(src, dst) };
        let mut frame = Frame::new(ip(ttl), Udp::new(1, 2)).build();
        let after = Frame::new(ip(ttl - 1), Udp::new(1, 2)).build();
        prop_assert!(forward_ip4(&mut frame, 14, &HOP));
        prop_assert_eq!(&frame[..12], &HOP.header[..]);
        prop_assert_eq!(&frame[12..], &after[12..]);
    }

    #[test]
    fn an_invalid_checksum_keeps_its_difference(header: [u8; 20]) {
        prop_assume!(header[8] > 0 && header[0] > 0);
        let mut frame = [&[0; 14][..], &header].concat();
        forward_ip4(&mut frame, 14, &HOP);
        prop_assert_eq!(fold(sum(&frame[14..], 0)) % 0xffff, fold(sum(&header, 0)) % 0xffff);
    }
}

/// For every possible header checksum, the update equals a recomputation.
#[test]
fn every_checksum() {
    for id in 0..=u16::MAX {
        let ip = |ttl| Ip4 { ttl, id, ..Ip4::new([10, 0, 0, 1], [192, 0, 2, 9]) };
        let mut frame = Frame::new(ip(64), Udp::new(1, 2)).build();
        forward_ip4(&mut frame, 14, &HOP);
        assert_eq!(frame[14..34], Frame::new(ip(63), Udp::new(1, 2)).build()[14..34], "id {id}");
    }
}

#[test]
fn ip6_hop_limit_is_decremented() {
    let ip = |hop_limit| Ip6 { hop_limit, ..Ip6::new([1; 16], [2; 16]) };
    let mut frame = Frame::new(ip(255), Udp::new(1, 2)).build();
    assert!(forward_ip6(&mut frame, 14, &HOP));
    assert_eq!(frame[12..], Frame::new(ip(254), Udp::new(1, 2)).build()[12..]);
    assert_eq!(frame[..12], HOP.header);
    let before = frame.clone();
    assert!(set_ethernet_addresses(&mut frame, 14, &NextHop::default()));
    assert_eq!((&frame[..12], &frame[12..]), (&[0; 12][..], &before[12..]));
}

#[test]
fn short_frames_are_unchanged() {
    let mut short = [7; 33];
    assert!(!forward_ip4(&mut short, 14, &HOP) && !forward_ip4(&mut short, 13, &HOP));
    assert!(!forward_ip6(&mut [7; 53], 14, &HOP) && !forward_ip4(&mut short, usize::MAX, &HOP));
    assert_eq!(short, [7; 33]);
    assert!(forward_ip4(&mut [7; 34], 14, &HOP) && forward_ip6(&mut [7; 54], 14, &HOP));
}
