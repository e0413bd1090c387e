//! Tests of the parent module.

use super::*;
use crate::build::{Extension, Frame, Icmp, Ip6, Tcp, Transport, Udp};
use crate::window::CHUNKS;
use crate::{Window, fill_plain_window, fill_window, parse};
use proptest::prelude::*;

fn ip() -> Ip6 {
    Ip6::new([0x2001, 2, 0, 0, 0, 0, 0, 1], [0x2001, 2, 0, 0, 0, 0, 0, 2])
}

fn plain(number: u8, len: usize) -> Extension {
    Extension::Plain { number, body: vec![0; len - 2] }
}

const NO_FLAGS: PacketFlags = PacketFlags::empty();

fn outcome(frame: &[u8]) -> Result<(u8, u8, u16, PacketFlags), DropReason> {
    let mut m = Meta::default();
    parse(frame, frame.len(), &mut m).map(|()| (m.kind.0, m.proto, m.l4_off, m.flags))
}

fn with(mut frame: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    frame[at] = byte;
    frame
}

const UDP: u8 = Kind::IP6 | Kind::UDP;

#[test]
fn malformed_headers_are_named() {
    let frame = Frame::new(ip(), Udp::new(1, 2)).payload([0; 20]).build();
    assert_eq!(outcome(&frame), Ok((UDP, 17, 54, NO_FLAGS)));
    assert_eq!(outcome(&with(frame.clone(), 14, 0x50)), Err(DropReason::Ip6Malformed));
    assert_eq!(outcome(&with(frame.clone(), 18, 1)), Err(DropReason::Ip6Truncated));
    assert_eq!(outcome(&frame[..53]), Err(DropReason::Ip6Truncated));
    assert_eq!(outcome(&with(frame, 20, 1)), Ok((Kind::IP6, 1, 54, NO_FLAGS)), "ICMP over IPv6");
}

/// RFC 2675: payload length 0; a hop-by-hop header holds the real length.
#[test]
fn jumbograms_are_refused() {
    let jumbo = Extension::Plain { number: 0, body: vec![0xc2, 4, 0, 1, 0, 0] };
    let mut frame = Frame::new(ip().with([jumbo]), Udp::new(1, 2)).payload([0; 20]).build();
    frame[18..20].fill(0);
    assert_eq!(outcome(&frame), Err(DropReason::Ip6Malformed));
    assert_eq!(outcome(&frame[..54]), Err(DropReason::L4Truncated), "no bytes behind the header");
    assert_eq!(outcome(&with(frame, 20, 59)), Ok((Kind::IP6, 59, 54, NO_FLAGS)), "padding");
}

#[test]
fn every_extension_header_is_walked() {
    for number in [0, 60, 135, 139, 140] {
        let frame = Frame::new(ip().with([plain(number, 24)]), Udp::new(1, 2)).build();
        assert_eq!(outcome(&frame), Ok((UDP, 17, 78, NO_FLAGS)), "{number}");
    }
    let chain = [
        plain(0, 8),
        plain(60, 16),
        Extension::Routing { kind: 2, segments_left: 0, addresses: vec![[7; 16].into()] },
        Extension::Fragment { offset: 0, more: false, id: 1 },
        Extension::Authentication { spi: 1, sequence: 1 },
        plain(60, 2040),
    ];
    let frame = Frame::new(ip().with(chain), Tcp::new(1, 2)).build();
    let l4 = 54 + 8 + 16 + 24 + 8 + 24 + 2040;
    assert_eq!(outcome(&frame), Ok((Kind::IP6 | Kind::TCP, 6, l4, NO_FLAGS)));
}

#[test]
fn other_headers_end_the_extension_header_chain() {
    for number in [50, 59, 41, 47, 253] {
        let frame = Frame::new(ip().with([plain(0, 8)]), Transport::Raw(number)).payload([0; 40]).build();
        assert_eq!(outcome(&frame), Ok((Kind::IP6, number, 62, NO_FLAGS)));
    }
}

#[test]
fn a_chain_that_runs_out_is_refused() {
    let frame = Frame::new(ip().with([plain(0, 8), plain(60, 16)]), Icmp::new(128)).build();
    for (payload, (proto, l4)) in [(1, (0, 55)), (7, (0, 61)), (8, (60, 62)), (15, (60, 69)), (23, (60, 77))]
    {
        let (frame, mut m) = (with(frame.clone(), 19, payload), Meta::default());
        assert_eq!(parse(&frame, frame.len(), &mut m), Err(DropReason::L4Truncated), "{payload}");
        assert_eq!((m.kind.0, m.proto, m.l4_off, m.end), (Kind::IP6, proto, l4, 54 + u16::from(payload)));
    }
    assert_eq!(outcome(&with(frame.clone(), 19, 31)), Err(DropReason::L4Truncated), "7 bytes of ICMPv6");
    assert_eq!(outcome(&frame), Ok((Kind::IP6 | Kind::ICMP6, 58, 78, NO_FLAGS)));
}

#[test]
fn fragments() {
    let piece = |offset, more| ip().with([Extension::Fragment { offset, more, id: 9 }]);
    let first = Frame::new(piece(0, true), Udp::new(1, 2)).payload([0; 8]).build();
    let atomic = Frame::new(piece(0, false), Udp::new(1, 2)).payload([0; 8]).build();
    let [later, last] =
        [true, false].map(|m| Frame::new(piece(2, m), Transport::Raw(17)).payload([0; 8]).build());
    let both = PacketFlags::FRAGMENT | PacketFlags::LATER_FRAGMENT;
    assert_eq!(outcome(&first), Ok((UDP, 17, 62, PacketFlags::FRAGMENT)));
    assert_eq!(outcome(&atomic), Ok((UDP, 17, 62, NO_FLAGS)));
    assert_eq!(outcome(&later), Ok((Kind::IP6, 17, 62, both)));
    assert_eq!(outcome(&last), Ok((Kind::IP6, 17, 62, both)));
    let destination = Frame::new(piece(128, true), Transport::Raw(60)).payload([0; 8]).build();
    assert_eq!(outcome(&destination), Ok((Kind::IP6, 60, 62, both)), "not walked in a later fragment");
}

/// RFC 7112, 5: the first fragment has all headers. RFC 8200, 4.1: one fragment header.
#[test]
fn fragments_that_hide_a_header_are_named() {
    let piece = |offset, more| Extension::Fragment { offset, more, id: 9 };
    let (tiny, twice) = (Err(DropReason::TinyFragment), Err(DropReason::L4Malformed));
    let chain = ip().with([piece(0, true), plain(60, 8)]);
    let first = Frame::new(chain, Tcp::new(1, 2)).build();
    for length in 8..36 {
        assert_eq!(outcome(&with(first.clone(), 19, length)), tiny, "{length}");
    }
    assert_eq!(outcome(&first), Ok((Kind::IP6 | Kind::TCP, 6, 70, PacketFlags::FRAGMENT)));
    let both = PacketFlags::FRAGMENT | PacketFlags::LATER_FRAGMENT;
    for (offset, number, expected) in [
        (1, 6, tiny),
        (2, 6, tiny),
        (3, 6, Ok((Kind::IP6, 6, 62, both))),
        (1, 17, Ok((Kind::IP6, 17, 62, both))),
        // What overlaps the destination options and the TCP header behind them (RFC 5722, RFC 7112).
        (1, 60, tiny),
        (127, 60, tiny),
        (127, 51, tiny),
        (128, 60, Ok((Kind::IP6, 60, 62, both))),
    ] {
        let later =
            Frame::new(ip().with([piece(offset, true)]), Transport::Raw(number)).payload([0; 24]).build();
        assert_eq!(outcome(&later), expected);
    }
    for (offset, more) in [(0, false), (0, true), (2, false)] {
        let nested = ip().with([piece(0, false), piece(offset, more)]);
        assert_eq!(outcome(&Frame::new(nested, Udp::new(1, 2)).build()), twice);
    }
}

/// Linux takes a UDP length of 0 for the rest of the packet, as in a jumbogram (RFC 2675, 4).
#[test]
fn a_udp_length_of_0_is_refused() {
    let frame = Frame::new(ip(), Udp::new(1, 2)).payload([0; 20]).build();
    assert_eq!(outcome(&with(frame, 59, 0)), Err(DropReason::L4Malformed));
}

/// A UDP header may be all that there is behind the network header.
#[test]
fn the_shortest_datagram_is_plain() {
    let frame = Frame::new(ip(), Udp::new(1, 2)).build();
    let is_plain = |head: &[u8]| {
        parse_plain_ip6(head, 14, frame.len(), &mut Meta { l3_off: 14, ..Meta::default() }).is_some()
    };
    assert_eq!(frame.len(), 62);
    assert!(is_plain(&frame) && !is_plain(&frame[..61]));
}

fn seen(frame: &[u8]) -> u16 {
    let mut m = Meta::default();
    if let Err(reason) = parse(frame, frame.len(), &mut m) {
        assert!(reason.is_transport_error());
    }
    extensions(frame, &m)
}

#[test]
fn extension_headers_are_seen_if_they_are_whole() {
    let none = Frame::new(ip(), Udp::new(1, 2)).build();
    assert_eq!(seen(&none), 0);
    assert_eq!(seen(&Frame::new(crate::build::Ip4::new([1; 4], [2; 4]), Transport::Raw(50)).build()), 0);
    for (i, number) in [0, 43, 44, 51, 60, 135, 139, 140].into_iter().enumerate() {
        let bit = [0x8000, 0x4000, 0x2000, 0x0800, 0x0400, 0x0200, 0x0100, 0x0080][i];
        let frame = Frame::new(ip(), Transport::Raw(number)).payload([17, 0, 0, 0, 0, 0, 0, 0]).build();
        assert_eq!(seen(&frame), bit | 0x0040, "{number}");
        assert_eq!(seen(&with(frame, 19, 7)), 0, "{number} cut short");
    }
    let chain = [plain(0, 8), plain(60, 16)];
    let frame = Frame::new(ip().with(chain), Udp::new(1, 2)).build();
    assert_eq!(seen(&frame), 0x8440);
    assert_eq!(seen(&with(frame, 19, 23)), 0x8040, "the second is cut short");
}

#[test]
fn esp_is_seen_with_its_first_eight_bytes() {
    let esp = |payload: usize| {
        Frame::new(ip().with([plain(60, 8)]), Transport::Raw(50)).payload(vec![0; payload]).build()
    };
    assert_eq!((seen(&esp(7)), seen(&esp(8))), (0x0440, 0x1440));
    assert_eq!(seen(&Frame::new(ip(), Transport::Raw(50)).payload([0; 8]).build()), 0x1040);
    let later = ip().with([Extension::Fragment { offset: 2, more: false, id: 9 }]);
    assert_eq!(seen(&Frame::new(later, Transport::Raw(50)).payload([0; 8]).build()), 0x2040);
}

#[test]
fn segments_left_make_a_packet_routed() {
    let hop = |segments_left| Extension::Routing { kind: 4, segments_left, addresses: vec![[7; 16].into()] };
    let [there, on_its_way] = [0, 1].map(|n| Frame::new(ip().with([hop(n)]), Udp::new(1, 2)).build());
    assert_eq!(outcome(&there), Ok((UDP, 17, 78, NO_FLAGS)));
    assert_eq!(outcome(&on_its_way), Ok((UDP, 17, 78, PacketFlags::ROUTED)));
}

#[test]
fn headers_behind_the_head_are_refused() {
    let chain = [plain(0, 200), plain(60, 200)];
    let frame = Frame::new(ip().with(chain), Tcp { options: vec![1; 4], ..Tcp::new(1, 2) }).build();
    let mut m = Meta::default();
    for head in 14..frame.len() {
        assert_eq!(parse(&frame[..head], frame.len(), &mut m), Err(DropReason::HeaderTooLong), "{head}");
    }
}

#[test]
fn offsets_past_64k_are_refused() {
    let long = vec![plain(60, 2048); 32];
    let mut frame = Frame::new(ip(), Transport::Raw(60)).payload([0; 65_535]).build();
    let bytes = Frame::new(ip().with(long), Transport::Raw(60)).build();
    frame[54..54 + 31 * 2048].copy_from_slice(&bytes[54..54 + 31 * 2048]);
    frame[54 + 31 * 2048..][..2].copy_from_slice(&[59, 253]);
    assert_eq!(outcome(&frame), Err(DropReason::HeaderTooLong));
}

proptest! {
    #[test]
    fn the_plain_parse_agrees_with_the_general_one(
        udp in any::<bool>(),
        chunks in 0..1u8 << CHUNKS,
        payload in 0..40usize,
        hits in prop::collection::vec((14..74usize, any::<u8>()), 0..3),
        head in 54..120usize,
    ) {
        let bare = if udp { Frame::new(ip(), Udp::new(5, 6)) } else { Frame::new(ip(), Tcp::new(5, 6)) };
        let mut frame = bare.payload(vec![0; payload]).build();
        for (at, byte) in hits {
            frame.get_mut(at).into_iter().for_each(|place| *place = byte);
        }
        let head = &frame[..head.min(frame.len())];
        let mut plain = Meta { l3_off: 14, ..Meta::default() };
        let mut general = plain;
        if let Some(found) = parse_plain_ip6(head, usize::from(plain.l3_off), frame.len(), &mut plain) {
            prop_assert_eq!(parse_general(head, frame.len(), &mut general), Ok(()));
            prop_assert_eq!(std::mem::replace(&mut plain.flow_hash, found.flow_hash()), 0);
            prop_assert_eq!(found.addresses.as_slice(), &frame[22..54]);
            prop_assert!(frame[38..54] == found.destination().to_be_bytes());
            prop_assert_eq!(found.is_forwardable(), frame[21] > 1);
            let mut windows = [Window { chunk: [u128::MAX; CHUNKS] }; 2];
            fill_window(head, &general, 7, 9, chunks | 1, &mut windows[0]);
            fill_plain_window(&found, (head, &plain), 7, 9, chunks, &mut windows[1]);
            prop_assert_eq!(windows[0], windows[1]);
            transport::tests::agrees(&found, &frame[54..], &general)?;
        }
        prop_assert_eq!(plain, general);
    }
}
