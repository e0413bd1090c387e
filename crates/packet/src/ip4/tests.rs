//! Tests of the parent module.

use super::*;
use crate::build::{Frame, Icmp, Ip4, Tcp, Udp};
use crate::window::CHUNKS;
use crate::{Window, checksum, fill_plain_window, fill_window, parse};
use proptest::prelude::*;

fn ip() -> Ip4 {
    Ip4::new([10, 0, 0, 1], [10, 0, 0, 2])
}

const NO_FLAGS: PacketFlags = PacketFlags::empty();

fn outcome(frame: &[u8]) -> Result<(u8, u16, PacketFlags), DropReason> {
    let mut m = Meta::default();
    parse(frame, frame.len(), &mut m).map(|()| (m.kind.0, m.l4_off, m.flags))
}

/// Returns the frame with one byte changed.
fn with(mut frame: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    frame[at] = byte;
    frame
}

#[test]
fn malformed_headers_are_named() {
    let frame = Frame::new(ip(), Udp::new(1, 2)).payload([0; 20]).build();
    assert_eq!(outcome(&with(frame.clone(), 14, 0x55)), Err(DropReason::Ip4Malformed), "version 5");
    assert_eq!(outcome(&with(frame.clone(), 14, 0x44)), Err(DropReason::Ip4Malformed), "4 words of header");
    assert_eq!(outcome(&with(frame.clone(), 17, 19)), Err(DropReason::Ip4Malformed), "total length 19");
    assert_eq!(outcome(&with(frame.clone(), 14, 0x4f)), Err(DropReason::Ip4Malformed), "header over total");
    assert_eq!(outcome(&with(frame.clone(), 16, 1)), Err(DropReason::Ip4Truncated), "total over frame");
    assert_eq!(outcome(&frame[..33]), Err(DropReason::Ip4Truncated), "19 bytes");
    assert_eq!(outcome(&with(frame, 17, 20)), Err(DropReason::L4Truncated), "header only");
}

#[test]
fn an_error_leaves_no_kind_behind() {
    let frame = Frame::new(ip(), Udp::new(1, 2)).build();
    let mut m = Meta::default();
    assert_eq!(parse(&frame, frame.len(), &mut m), Ok(()));
    assert_eq!(parse(&frame[..40], 40, &mut m), Err(DropReason::Ip4Truncated));
    assert_eq!((m.kind, m.proto, m.flow_hash, m.l4_off, m.end), (Kind(0), 0, 0, 14, 40));
}

#[test]
fn fragments() {
    let piece = |flags, fragment_offset| Ip4 { flags, fragment_offset, ..ip() };
    let first = Frame::new(piece(1, 0), Udp::new(1, 2)).payload([0; 24]).build();
    let later = Frame::new(piece(1, 4), crate::build::Transport::Raw(17)).payload([0; 32]).build();
    let last = Frame::new(piece(0, 8), crate::build::Transport::Raw(17)).payload([0; 9]).build();
    let [whole, reserved] = [2, 4].map(|f| Frame::new(piece(f, 0), Udp::new(1, 2)).payload([0; 24]).build());
    let both = PacketFlags::FRAGMENT | PacketFlags::LATER_FRAGMENT;
    assert_eq!(outcome(&first), Ok((Kind::IP4 | Kind::UDP, 34, PacketFlags::FRAGMENT)));
    assert_eq!(outcome(&later), Ok((Kind::IP4, 34, both)));
    assert_eq!(outcome(&last), Ok((Kind::IP4, 34, both)));
    assert_eq!(outcome(&whole), Ok((Kind::IP4 | Kind::UDP, 34, NO_FLAGS)), "don't fragment");
    assert_eq!(outcome(&reserved), Ok((Kind::IP4 | Kind::UDP, 34, NO_FLAGS)), "reserved bit");
    let hash = |frame: &[u8]| {
        let mut m = Meta::default();
        parse(frame, frame.len(), &mut m).map(|()| m.flow_hash)
    };
    assert_eq!(hash(&first), hash(&later), "all fragments of a packet go to one worker");
    assert_eq!(hash(&first), hash(&last));
    assert_ne!(hash(&first), hash(&whole));
}

#[test]
fn a_transport_header_must_be_whole_and_sound() {
    let (cut, wrong) = (Err(DropReason::L4Truncated), Err(DropReason::L4Malformed));
    let tcp = Frame::new(ip(), Tcp { options: vec![1; 8], ..Tcp::new(1, 2) }).build();
    assert_eq!(outcome(&tcp), Ok((Kind::IP4 | Kind::TCP, 34, NO_FLAGS)));
    assert_eq!(outcome(&with(tcp.clone(), 46, 0x40)), wrong, "data offset 4");
    assert_eq!(outcome(&with(tcp.clone(), 46, 0x80)), cut, "data offset 8 in 28 bytes");
    assert_eq!(outcome(&with(tcp, 17, 39)), cut, "19 bytes of TCP");
    let udp = Frame::new(ip(), Udp::new(1, 2)).payload([0; 30]).build();
    assert_eq!(outcome(&with(udp.clone(), 39, 7)), wrong, "UDP length 7");
    assert_eq!(
        outcome(&with(udp.clone(), 38, 9)),
        Ok((Kind::IP4 | Kind::UDP, 34, NO_FLAGS)),
        "UDP length over IP's"
    );
    assert_eq!(outcome(&with(udp, 17, 27)), cut, "7 bytes of UDP");
    let icmp = Frame::new(ip(), Icmp::new(8)).build();
    assert_eq!(outcome(&icmp), Ok((Kind::IP4 | Kind::ICMP, 34, NO_FLAGS)));
    assert_eq!(outcome(&with(icmp.clone(), 17, 27)), cut, "7 bytes of ICMP");
    assert_eq!(outcome(&with(icmp, 23, 58)), Ok((Kind::IP4, 34, NO_FLAGS)), "ICMPv6 over IPv4");
}

/// RFC 1858, 3 and RFC 3128, 2. The metadata still describes a fragment that can be forwarded.
#[test]
fn fragments_that_hide_a_header_are_named() {
    let whole = Frame::new(ip(), Tcp { options: vec![1; 12], ..Tcp::new(1, 2) }).payload([0; 32]).build();
    let tiny = Err(DropReason::TinyFragment);
    for length in (8..40).step_by(8) {
        let mut first = with(with(whole.clone(), 20, 0x20), 17, 20 + length);
        assert_eq!(
            outcome(&first),
            if length < 32 { tiny } else { Ok((Kind::IP4 | Kind::TCP, 34, PacketFlags::FRAGMENT)) }
        );
        let mut m = Meta::default();
        let _ = parse(&first, first.len(), &mut m);
        assert_eq!(
            (m.kind.l3(), m.proto, m.flags, m.end),
            (Kind::IP4, 6, PacketFlags::FRAGMENT, 34 + u16::from(length))
        );
        first[23] = 17;
        assert_eq!(outcome(&with(first, 39, 7)), Err(DropReason::L4Malformed), "UDP length 7");
    }
    let both = PacketFlags::FRAGMENT | PacketFlags::LATER_FRAGMENT;
    for (offset, expected) in [(1, tiny), (2, tiny), (3, Ok((Kind::IP4, 34, both)))] {
        for more in [0, 0x20] {
            assert_eq!(outcome(&with(with(whole.clone(), 20, more), 21, offset)), expected, "{offset}");
        }
        let udp = with(with(whole.clone(), 21, offset), 23, 17);
        assert_eq!(outcome(&udp), Ok((Kind::IP4, 34, both)), "a UDP header has 8 bytes");
    }
}

#[test]
fn headers_behind_the_head_are_refused() {
    let ip = Ip4 { options: vec![1; 40], ..ip() };
    let frame = Frame::new(ip, Tcp { options: vec![1; 40], ..Tcp::new(1, 2) }).payload([0; 500]).build();
    let mut m = Meta::default();
    for head in 14..14 + 120 {
        assert_eq!(parse(&frame[..head], frame.len(), &mut m), Err(DropReason::HeaderTooLong), "{head}");
    }
    assert_eq!(parse(&frame[..14 + 120], frame.len(), &mut m), Ok(()));
    assert_eq!((m.kind.0, m.l4_off, m.end), (Kind::IP4 | Kind::TCP, 74, 634));
}

#[test]
fn the_end_saturates() {
    let frame = Frame::new(ip(), Udp::new(1, 2)).payload([0; 65_600]).build();
    assert_eq!(frame.len(), 14 + 65_535);
    let mut m = Meta::default();
    assert_eq!(parse(&frame, frame.len(), &mut m), Ok(()));
    assert_eq!((m.kind.0, m.end), (Kind::IP4 | Kind::UDP, u16::MAX));
    m.l3_off = u16::MAX;
    assert_eq!(parse_ip4(&[0x45; 90_000], 90_000, &mut m), Err(DropReason::HeaderTooLong));
}

proptest! {
    #[test]
    fn the_plain_parse_agrees_with_the_general_one(
        udp in any::<bool>(),
        chunks in 0..1u8 << CHUNKS,
        payload in 0..40usize,
        hits in prop::collection::vec((14..54usize, any::<u8>()), 0..3),
        head in 34..100usize,
    ) {
        let bare = if udp { Frame::new(ip(), Udp::new(5, 6)) } else { Frame::new(ip(), Tcp::new(5, 6)) };
        let mut frame = bare.payload(vec![0; payload]).pad_to(60).build();
        hits.into_iter().for_each(|(at, byte)| frame[at] = byte);
        let head = &frame[..head.min(frame.len())];
        let mut plain = Meta { l3_off: 14, ..Meta::default() };
        let mut general = plain;
        if let Some(found) = parse_plain_ip4(head, usize::from(plain.l3_off), frame.len(), &mut plain) {
            prop_assert_eq!(parse_general(head, frame.len(), &mut general), Ok(()));
            prop_assert_eq!(std::mem::replace(&mut plain.flow_hash, found.flow_hash()), 0);
            prop_assert_eq!(found.addresses.as_slice(), &frame[26..34]);
            prop_assert!(frame[30..34] == found.octets()[1]);
            let right = checksum::fold(checksum::sum(&frame[14..34], 0)) == 0xffff;
            prop_assert_eq!(found.is_forwardable(), right && frame[22] > 1);
            let mut windows = [Window { chunk: [u128::MAX; CHUNKS] }; 2];
            fill_window(head, &general, 7, 9, chunks | 1, &mut windows[0]);
            fill_plain_window(&found, (head, &plain), 7, 9, chunks, &mut windows[1]);
            prop_assert_eq!(windows[0], windows[1]);
            transport::tests::agrees(&found, &frame[34..], &general)?;
        }
        prop_assert_eq!(plain, general);
    }
}
