//! Tests of the parent module: segments against frames that are built one by one.

#![allow(clippy::unwrap_used)]

mod tunnel;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::build::{Extension, Frame, Ip4, Ip6, Tcp, Transport, Udp};

/// What all frames of a test have, apart from the fields that differ from segment to segment.
#[derive(Clone, Debug)]
struct Shape {
    is_ip4: bool,
    /// IPv4 options, or the body of an IPv6 extension header.
    extra: Vec<u8>,
    id: u16,
    tags: Vec<u16>,
    /// Sequence number, flags and options; none: UDP.
    tcp: Option<(u32, u8, Vec<u8>)>,
    payload: Vec<u8>,
    size: usize,
}

impl Shape {
    /// Builds a frame with these values.
    fn frame(&self, id: u16, tcp: Option<(u32, u8)>, payload: &[u8]) -> Vec<u8> {
        let transport: Transport = match (&self.tcp, tcp) {
            (Some((_, _, options)), Some((seq, flags))) => {
                Tcp { seq, flags, ack: 7, options: options.clone(), ..Tcp::new(1000, 2000) }.into()
            }
            _ => Udp::new(1000, 2000).into(),
        };
        let ip4 =
            Ip4 { id, options: self.extra.clone(), flags: 2, ..Ip4::new([10, 0, 0, 1], [192, 168, 3, 4]) };
        let ip6 = Ip6::new([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], [0xfd00, 0, 0, 0, 5, 0, 0, 2]);
        let frame = match self.is_ip4 {
            true => Frame::new(ip4, transport),
            false if self.extra.is_empty() => Frame::new(ip6, transport),
            false => {
                let destination = Extension::Plain { number: 60, body: self.extra.clone() };
                Frame::new(ip6.with([destination]), transport)
            }
        };
        self.tags.iter().fold(frame, |frame, tag| frame.vlan(*tag)).payload(payload).build()
    }

    /// The large frame.
    fn large(&self) -> Vec<u8> {
        self.frame(self.id, self.tcp.as_ref().map(|(seq, flags, _)| (*seq, *flags)), &self.payload)
    }

    /// The frames that a sender without offload would send. FIN (1) and PSH (8) are set in the last one only,
    /// CWR (0x80) in the first one only; the others are copied.
    fn expected(&self) -> Vec<Vec<u8>> {
        let pieces: Vec<&[u8]> =
            if self.payload.is_empty() { vec![&[]] } else { self.payload.chunks(self.size).collect() };
        let last = pieces.len() - 1;
        let one = |(at, piece): (usize, &&[u8])| {
            let tcp = self.tcp.as_ref().map(|(seq, flags, _)| {
                let mut flags = *flags;
                if at != last {
                    flags &= !0x09;
                }
                if at != 0 {
                    flags &= !0x80;
                }
                (seq.wrapping_add((at * self.size) as u32), flags)
            });
            self.frame(self.id.wrapping_add(at as u16), tcp, piece)
        };
        pieces.iter().enumerate().map(one).collect()
    }
}

fn shapes() -> impl Strategy<Value = Shape> {
    let tcp = prop::option::weighted(0.7, (any::<u32>(), any::<u8>(), vec(Just(1u8), 0..40)));
    let extra = prop_oneof![Just(Vec::new()), Just(vec![1u8; 6])];
    (any::<bool>(), extra, any::<u16>(), vec(1..4000u16, 0..3), tcp, vec(any::<u8>(), 0..5000), 1..2000usize)
        .prop_map(|(is_ip4, extra, id, tags, tcp, payload, size)| Shape {
            is_ip4,
            extra,
            id,
            tags,
            tcp,
            payload,
            size,
        })
}

/// Segments a large frame whose transport checksum is `checksum`, in pieces of `piece` bytes behind the
/// headers.
fn segments(large: &[u8], size: usize, checksum: [u8; 2], piece: usize) -> Vec<Vec<u8>> {
    let headers = LargeFrame::parse(large, large.len()).unwrap();
    let mut large = large.to_vec();
    let field = headers.transport() + headers.checksum_offset();
    large[field..field + 2].copy_from_slice(&checksum);
    cut(&headers, &large, size, piece)
}

/// The segments of a large frame with these headers, in pieces of `piece` bytes behind the headers.
fn cut(headers: &LargeFrame, large: &[u8], size: usize, piece: usize) -> Vec<Vec<u8>> {
    let (head, payload) = large.split_at(headers.header_len());
    let one = |place: SegmentPlace| {
        let part = &payload[place.payload.clone()];
        let (first, rest) = part.split_at(part.len().min(piece));
        let mut head = [head, first].concat();
        let rest: Vec<&[u8]> = rest.chunks(piece).collect();
        assert!(headers.finish_segment(&mut head, &rest, &place));
        [head, rest.concat()].concat()
    };
    headers.segments(size).map(one).collect()
}

proptest! {
    #[test]
    fn segments_are_what_a_sender_without_offload_sends(
        shape in shapes(),
        checksum in any::<[u8; 2]>(),
        piece in 1..3000usize,
    ) {
        prop_assert_eq!(segments(&shape.large(), shape.size, checksum, piece), shape.expected());
    }

    #[test]
    fn any_bytes_are_survived(bytes in vec(any::<u8>(), 0..200), shape in shapes(), cut in any::<prop::sample::Index>()) {
        let large = shape.large();
        let cut = &large[..cut.index(large.len())];
        for frame in [&bytes[..], cut] {
            if let Some(headers) = LargeFrame::parse(frame, 70_000) {
                for place in headers.segments(shape.size).take(3) {
                    headers.finish_segment(&mut frame.to_vec(), &[], &place);
                }
                headers.write_partial_checksum(&mut frame.to_vec());
            }
        }
    }
}

#[test]
fn the_partial_checksum_is_that_of_the_whole_frame() {
    let frame = Frame::new(Ip6::new([1, 2, 3, 4, 5, 6, 7, 8], [9; 8]), Tcp::new(1, 2)).payload(vec![7; 4000]);
    let mut large = frame.build();
    LargeFrame::parse(&large, large.len()).unwrap().write_partial_checksum(&mut large);
    assert_eq!(large, frame.partial_checksum().build());
}

#[test]
fn fragments_and_other_protocols_are_no_large_frames() {
    let ip = Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]);
    let tcp = Tcp::new(1, 2);
    let parse = |frame: Frame| LargeFrame::parse(&frame.build(), frame.build().len());
    assert!(parse(Frame::new(ip.clone(), tcp.clone())).is_some());
    assert_eq!(parse(Frame::new(Ip4 { flags: 1, ..ip.clone() }, tcp)), None);
    assert_eq!(parse(Frame::new(ip, Transport::Raw(47)).payload([0; 60])), None);
    assert_eq!(parse(Frame::ethernet(0x0806).payload([0; 60])), None);
}
