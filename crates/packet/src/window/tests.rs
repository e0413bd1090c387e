//! Tests of the parent module.

use super::*;
use crate::build::{Extension, Frame, Ip4, Ip6, Tcp, Transport, Udp};
use crate::parse;

fn window(frame: &[u8]) -> [u8; BYTES] {
    let (mut meta, mut w) = (Meta::default(), Window::default());
    assert_eq!(parse(frame, frame.len(), &mut meta), Ok(()));
    fill_window(frame, &meta, 3, 4, 0b111111, &mut w);
    *w.bytes()
}

/// The four bytes before the index, followed by an empty index.
fn with_empty_index(before: [u8; 4]) -> [u8; 20] {
    let mut end = [0; 20];
    end[..4].copy_from_slice(&before);
    end
}

#[test]
fn ip4_tcp() {
    let ip = Ip4 { tos: 0xb8, id: 0x0102, ttl: 9, ..Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]) };
    let tcp =
        Tcp { seq: 0x01020304, ack: 0x05060708, flags: 0x02, window: 0x0a0b, ..Tcp::new(0x1122, 0x3344) };
    let frame = Frame::new(ip, tcp).build();
    let w = window(&frame);
    assert_eq!(w[..16], [10, 0, 0, 1, 10, 0, 0, 2, 0x11, 0x22, 0x33, 0x44, 0x14, 6, 0, 3]);
    assert_eq!(w[16..48], [0; 32]);
    assert_eq!(w[48..60], [1, 2, 3, 4, 5, 6, 7, 8, 0x50, 2, 0x0a, 0x0b]);
    assert_eq!(w[60..64], frame[50..54]);
    assert_eq!(w[64..76], frame[14..26]);
    assert_eq!(w[76..], with_empty_index([8, 0, 0, 4]));
}

#[test]
fn ports_have_one_offset_in_every_layout() {
    let udp = || Transport::from(Udp::new(0x1122, 0x3344));
    let options = Ip4 { options: vec![1; 12], ..Ip4::new([1; 4], [2; 4]) };
    let extensions = Ip6::new([1; 16], [2; 16]).with([Extension::Plain { number: 0, body: vec![0; 6] }]);
    for frame in [
        Frame::new(Ip4::new([1; 4], [2; 4]), udp()),
        Frame::new(options, udp()),
        Frame::new(Ip6::new([1; 16], [2; 16]), udp()),
        Frame::new(extensions.clone(), udp()),
        Frame::new(extensions, udp()).vlan(1).vlan(2),
    ] {
        let w = window(&frame.build());
        assert_eq!(
            (&w[8..12], &w[48..50], &w[52..64]),
            (&[0x11, 0x22, 0x33, 0x44][..], &[0, 8][..], &[0; 12][..])
        );
    }
}

#[test]
fn ip6_next_is_the_field_and_not_the_end_of_the_chain() {
    let ip = Ip6::new([1; 16], [2; 16]).with([Extension::Plain { number: 60, body: vec![] }]);
    let w = window(&Frame::new(Ip6 { traffic_class: 0xfc, hop_limit: 7, ..ip }, Udp::new(1, 2)).build());
    assert_eq!(w[..8], [0; 8]);
    assert_eq!(w[12..16], [0x26, 60, 0, 3]);
    assert_eq!((&w[16..32], &w[32..48]), (&[1; 16][..], &[2; 16][..]));
    assert_eq!(w[64..76], [0x6f, 0xc0, 0, 0, 0, 16, 60, 7, 0, 0, 0, 0]);
    assert_eq!(w[76..94], with_empty_index([0x86, 0xdd, 0, 4])[..18]);
    assert_eq!(w[94..], [0x04, 0x40], "destination options");
}

#[test]
fn options_and_extension_headers_are_indexed() {
    let options =
        vec![2, 4, 0x05, 0xb4, 1, 3, 3, 7, 1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 4, 2, 30, 4, 0, 0, 253, 2];
    let ip = Ip6::new([1; 16], [2; 16]).with([
        Extension::Plain { number: 0, body: vec![] },
        Extension::Authentication { spi: 1, sequence: 1 },
    ]);
    let w = window(&Frame::new(ip, Tcp { options, ..Tcp::new(1, 2) }).build());
    assert_eq!(w[80..91], [1, 2, 3, 4, 5, 6, 7, 8, 0x05, 0xb4, 7]);
    assert_eq!(w[91..94], [0x80 | 0x40 | 0x20 | 0x08 | 0x02 | 0x01, 0x80 | 0x40 | 0x08, 0x01]);
    assert_eq!(w[94..], [0x88, 0x40]);
}

#[test]
fn frames_without_ip_have_no_fields() {
    let w = window(&Frame::ethernet(0x0806).payload([0xff; 28]).build());
    assert!(w.iter().enumerate().all(|(i, b)| *b == 0 || [15, 76, 77, 79].contains(&i)));
    assert_eq!((w[15], &w[76..]), (3, &with_empty_index([8, 6, 0, 4])[..]));
}

#[test]
fn offsets_beyond_the_bytes_read_zeros() {
    let meta = Meta { l3_off: 60_000, l4_off: 65_535, kind: Kind(0x14), proto: 6, ..Meta::default() };
    let mut w = Window::default();
    fill_window(&[0xff; 20], &meta, 0, 0, 0b111111, &mut w);
    assert_eq!((w.bytes()[KIND], w.bytes()[13]), (0x14, 6));
    assert!(w.bytes().iter().enumerate().all(|(i, b)| *b == 0 || [KIND, 13].contains(&i)));
}
