//! Tests of the parent module.

use mmb_packet::build::{Extension, Frame, Icmp, Ip4, Ip6, Tcp, Udp};
use proptest::prelude::*;

use super::*;
use mmb_nf::testing::{Bench, Forward, Reverse, assert_checksums, refused};

/// Builds a packet with a byte of DSCP and ECN, and a priority in its tag.
fn frame(ip6: bool, tos: u8, tag: Option<u16>, payload: usize) -> Vec<u8> {
    let frame = if ip6 {
        let ip = Ip6::new([1; 16], [2; 16]).with(vec![Extension::Plain { number: 0, body: vec![1, 4] }]);
        Frame::new(Ip6 { traffic_class: tos, flow_label: 0xf_abcd, ..ip }, Udp::new(1, 2))
    } else {
        let ip = Ip4 { tos, id: 77, options: vec![1; 3], ..Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]) };
        Frame::new(ip, Tcp::new(1, 2))
    };
    let frame = frame.payload(vec![0x5a; payload]);
    match tag {
        Some(tci) => frame.tag(0x88a8, tci).vlan(0xe007).build(),
        None => frame.build(),
    }
}

proptest! {
    #[test]
    fn a_marked_packet_equals_one_sent_with_the_mark(
        ip6: bool, tos: u8, dscp in 0..64u8, priority in 0..8u16, tci: u16, tagged: bool, payload in 0..40usize,
    ) {
        let mut bench = Bench::<Mark>::new(&format!("dscp {dscp} vlan-priority {priority}"));
        let before = frame(ip6, tos, tagged.then_some(tci), payload);
        let after = frame(ip6, dscp << 2 | tos & 3, tagged.then_some(tci & 0x1fff | priority << 13), payload);
        let session = bench.open(&before);
        for direction in [Forward, Reverse] {
            let done = bench.packet(session, direction, &before);
            prop_assert_eq!(done.verdict, Verdict::Pass);
            prop_assert_eq!(&done.frame, &after);
            assert_checksums(&done.frame);
        }
    }
}

#[test]
fn a_wrong_checksum_stays_wrong() {
    let mut bench = Bench::<Mark>::new("dscp ef");
    let mut before = frame(false, 0, None, 3);
    before[14 + 10] ^= 0x40;
    let session = bench.open(&before);
    let done = bench.packet(session, Forward, &before);
    let right = frame(false, 46 << 2, None, 3);
    let field = |frame: &[u8]| u16::from_be_bytes([frame[24], frame[25]]);
    assert_ne!(field(&done.frame), field(&right));
    assert_eq!(done.frame[15], 46 << 2);
}

#[test]
fn one_direction_only() {
    let mut bench = Bench::<Mark>::new("dscp 10 reverse");
    let before = frame(false, 0, None, 0);
    let session = bench.open(&before);
    assert_eq!(bench.packet(session, Forward, &before).frame, before);
    assert_eq!(bench.packet(session, Reverse, &before).frame[15], 40);
}

#[test]
fn later_fragments_are_marked_too() {
    let ip = Ip4 { fragment_offset: 100, ..Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]) };
    let echo = Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), Icmp::new(8)).build();
    let fragment = Frame::new(ip, mmb_packet::build::Transport::Raw(17)).payload(vec![1; 5]).build();
    let mut bench = Bench::<Mark>::new("dscp cs7");
    let session = bench.open(&echo);
    let done = bench.packet(session, Forward, &fragment);
    assert_eq!(done.frame[15], 56 << 2);
    assert_checksums(&done.frame);
}

/// RFC 4594, figure 3.
#[test]
fn names_of_code_points() {
    for (name, value) in [
        ("cs0", 0),
        ("cs1", 8),
        ("cs7", 56),
        ("af11", 10),
        ("af23", 22),
        ("af31", 26),
        ("af43", 38),
        ("ef", 46),
        ("va", 44),
        ("le", 1),
        ("63", 63),
    ] {
        assert_eq!(dscp(name), Ok(value), "{name}");
    }
    for wrong in ["", "64", "cs8", "cs", "cs77", "af10", "af51", "af1", "efx", "-1", "é"] {
        assert!(dscp(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn invalid_arguments_are_refused() {
    assert_eq!(refused::<Mark>(""), "`mark` needs `dscp N`, `vlan-priority N` or both");
    assert_eq!(refused::<Mark>("forward"), "`mark` needs `dscp N`, `vlan-priority N` or both");
    assert_eq!(refused::<Mark>("vlan-priority 8"), "invalid VLAN priority `8`: must be 0 to 7");
    assert_eq!(refused::<Mark>("dscp"), "`dscp` needs a value");
    assert!(refused::<Mark>("dscp 1 both").contains("unknown argument `both`"));
}
