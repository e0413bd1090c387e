//! Tests of the parent module.

use super::*;
use crate::build::{Extension, Frame, Ip4, Ip6, Tcp, Udp};
use crate::parse;

fn completed(frame: &mut [u8]) -> bool {
    let mut meta = Meta::default();
    assert_eq!(parse(frame, frame.len(), &mut meta), Ok(()));
    complete_partial(frame, [], &meta)
}

fn ip4() -> Ip4 {
    Ip4::new([10, 0, 0, 1], [10, 0, 0, 2])
}

#[test]
fn padding_is_not_summed() {
    let bare = Frame::new(ip4(), Udp::new(1, 2)).payload(*b"odd");
    let mut frame = bare.clone().partial_checksum().build();
    frame.resize(60, 0xaa);
    assert!(completed(&mut frame));
    assert_eq!(frame[..45], bare.build());
}

#[test]
fn a_udp_checksum_of_zero_is_written_as_ones() {
    let bare = Frame::new(ip4(), Udp::new(1, 2));
    let csum = u16::from_be_bytes(*bytes::at(&bare.clone().payload([0, 0]).build(), 40).unwrap());
    // A packet that carries its own checksum as payload sums to ones, so its checksum is 0.
    let frame = bare.payload(csum.to_be_bytes());
    let mut partial = frame.clone().partial_checksum().build();
    assert!(completed(&mut partial));
    assert_eq!(partial[40..42], [0xff, 0xff]);
    assert_eq!(partial, frame.build());
}

/// A checksum inside a tunnel, in pieces of any length behind the headers.
#[test]
fn a_checksum_is_completed_wherever_it_is() {
    let payload = (0..77u8).collect::<Vec<_>>();
    let whole = Frame::new(ip4(), Tcp::new(1, 2)).payload(payload.clone());
    for (frame, start, field) in [
        (whole, 34, 50),
        (Frame::new(ip4(), Udp::new(1, 2)).payload(payload.clone()), 34, 40),
        (Frame::new(Ip6::new([1; 8], [2; 8]), Udp::new(1, 2)).payload(payload), 54, 60),
    ] {
        let expected = [&[0xa5; 50], &frame.clone().build()[..]].concat();
        let partial = [&[0xa5; 50], &frame.partial_checksum().build()[..]].concat();
        for piece in [1, 7, 1000] {
            let (head, rest) = partial.split_at(120);
            let (mut head, rest) = (head.to_vec(), rest.chunks(piece).collect::<Vec<_>>());
            complete_from(&mut head, &rest, 50 + start, 50 + field);
            assert_eq!([head, rest.concat()].concat(), expected);
        }
    }
    complete_from(&mut [0; 10], &[], 20, 30);
    complete_from(&mut [0; 22], &[], 20, 30);
}

#[test]
fn fragments_and_source_routed_packets_are_unchanged() {
    let mut fragment =
        Frame::new(Ip4 { flags: 1, ..ip4() }, Udp::new(1, 2)).payload([1; 8]).partial_checksum().build();
    assert!(!completed(&mut fragment));
    let hop = Extension::Routing { kind: 0, segments_left: 1, addresses: vec![[7; 16].into()] };
    let ip = Ip6::new([1; 16], [2; 16]).with([hop]);
    assert!(!completed(&mut Frame::new(ip, Tcp::new(1, 2)).payload([1; 8]).partial_checksum().build()));
}

#[test]
fn an_invalid_checksum_is_unchanged() {
    let mut frame = Frame::new(ip4(), Tcp::new(1, 2)).payload([1; 8]).build();
    frame[50] ^= 1;
    let before = frame.clone();
    assert!(!completed(&mut frame) && frame == before);
}

#[test]
fn the_longest_packet_in_odd_pieces() {
    let bare = Frame::new(ip4(), Tcp::new(1, 2)).payload((0..70_000).map(|n| n as u8).collect::<Vec<_>>());
    let (right, frame) = (bare.build(), bare.partial_checksum().build());
    let mut meta = Meta::default();
    assert_eq!(parse(&frame, frame.len(), &mut meta), Ok(()));
    let (mut head, rest) = (frame[..301].to_vec(), &frame[301..]);
    let pieces: Vec<&[u8]> = rest.chunks(1449).collect();
    let is_valid = |head: &[u8], from: usize| is_tcp_valid(head, pieces[from..].iter().copied(), &meta);
    assert!(is_valid(&right[..301], 0) && !is_valid(&right[..301], 1) && !is_valid(&head, 0));
    assert!(!complete_partial(&mut head.clone(), pieces[1..].iter().copied(), &meta), "a piece is missing");
    assert!(complete_partial(&mut head, pieces.iter().copied(), &meta));
    assert_eq!(head, right[..301]);
}

#[test]
fn each_bit_of_a_segment_is_verified() {
    for frame in [
        Frame::new(ip4(), Tcp::new(1, 2)).payload(*b"odd"),
        Frame::new(Ip6::new([1; 8], [2; 8]), Tcp::new(1, 2)).payload(*b"odd"),
    ] {
        let (mut meta, frame) = (Meta::default(), frame.build());
        assert_eq!(parse(&frame, frame.len(), &mut meta), Ok(()));
        let valid = |frame: &[u8]| is_tcp_valid(frame, [], &meta);
        assert!(valid(&frame));
        for bit in 8 * usize::from(meta.l4_off)..8 * frame.len() {
            let mut damaged = frame.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(!valid(&damaged), "{bit}");
        }
    }
}

#[test]
fn what_cannot_be_verified_is_valid() {
    let hop = Extension::Routing { kind: 0, segments_left: 1, addresses: vec![[7; 16].into()] };
    for frame in [
        Frame::new(Ip4 { flags: 1, ..ip4() }, Tcp::new(1, 2)).payload([1; 12]),
        Frame::new(Ip6::new([1; 16], [2; 16]).with([hop]), Tcp::new(1, 2)).payload([1; 12]),
    ] {
        let (mut meta, mut frame) = (Meta::default(), frame.build());
        assert_eq!(parse(&frame, frame.len(), &mut meta), Ok(()));
        *frame.last_mut().unwrap() ^= 1;
        assert!(is_tcp_valid(&frame, [], &meta));
    }
}
