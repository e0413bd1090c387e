//! Tests of packet views and of edits.

use mmb_packet::build::{Frame, Icmp, Ip4, Ip6, Net, Tcp, Transport, Udp};
use proptest::prelude::*;

use super::*;
use crate::testing::{assert_checksums, parsed};

fn with_packet<R>(frame: &mut [u8], f: impl FnOnce(&mut Packet<'_>) -> R) -> R {
    let mut meta = parsed(frame);
    let len = frame.len() as u32;
    let (direction, session) = (Direction::Forward, SessionId(0));
    f(&mut Packet {
        head: frame,
        tail: None,
        meta: &mut meta,
        len,
        segment_size: 0,
        in_port: 0,
        direction,
        session,
    })
}

fn net(is_ip6: bool) -> Net {
    match is_ip6 {
        true => Ip6::new([1u16; 8], [2u16; 8]).into(),
        false => Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]).into(),
    }
}

fn transport(number: u8, is_ip6: bool) -> Transport {
    match number {
        0 => Tcp { options: vec![1; 40], seq: 7, ack: 9, ..Tcp::new(1, 2) }.into(),
        1 => Udp::new(1, 2).into(),
        _ => Icmp::new(if is_ip6 { 128 } else { 8 }).into(),
    }
}

proptest! {
    /// After any write into transport header or payload, the checksum is the one that a computation from
    /// scratch gives.
    #[test]
    fn transport_writes_keep_the_checksum(
        at in 0..90usize, new in prop::collection::vec(any::<u8>(), 0..20), is_ip6: bool, kind in 0..3u8,
        payload in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let mut frame = Frame::new(net(is_ip6), transport(kind, is_ip6)).payload(payload).build();
        let (before, l4) = (frame.clone(), usize::from(parsed(&frame).l4_off));
        let (field, fixed) = [(16, 60), (6, 8), (2, 8)][usize::from(kind)];
        let overlaps = |from: usize, to: usize| at < to && at + new.len() > from;
        // Neither the checksum, nor fields that tell where the segment or its options end.
        prop_assume!(!overlaps(field & !1, field + 2) && !overlaps(12, 14) && (kind != 1 || !overlaps(4, 6)));
        prop_assume!(kind != 0 || !overlaps(20, fixed));
        let written = with_packet(&mut frame, |packet| packet.write_l4(at, &new));
        prop_assert_eq!(written, l4 + at + new.len() <= before.len());
        if written {
            prop_assert_eq!(&frame[l4 + at..l4 + at + new.len()], &new[..]);
            assert_checksums(&frame);
        } else {
            prop_assert_eq!(frame, before);
        }
    }

    /// After any write of addresses and of fields in front of them, all checksums are right.
    #[test]
    fn network_writes_keep_checksums(bytes in prop::collection::vec(any::<u8>(), 0..12), is_ip6: bool, kind in 0..3u8) {
        let mut frame = Frame::new(net(is_ip6), transport(kind, is_ip6)).payload(vec![5; 9]).build();
        let at = if is_ip6 { 7 } else { 12 };
        let fits = with_packet(&mut frame, |packet| packet.write_ip(at, &bytes));
        prop_assert_eq!(fits, at + bytes.len() <= if is_ip6 { 40 } else { 20 });
        assert_checksums(&frame);
    }

    #[test]
    fn nothing_is_written_outside(at in 0..80usize, new: [u8; 4]) {
        let mut frame = Frame::new(net(false), Transport::from(Udp::new(1, 2))).build();
        let before = frame.len();
        with_packet(&mut frame, |packet| (packet.write_l4(at, &new), packet.write_ip(at, &new)));
        prop_assert_eq!(frame.len(), before);
    }
}

#[test]
fn a_udp_checksum_of_zero_stays_zero() {
    for is_ip6 in [false, true] {
        let mut frame = Frame::new(net(is_ip6), Transport::from(Udp::new(1, 2))).payload([1, 2]).build();
        let field = usize::from(parsed(&frame).l4_off) + 6;
        frame[field..field + 2].fill(0);
        assert!(with_packet(&mut frame, |packet| packet.write_l4(8, &[9])));
        assert_eq!(frame[field..field + 2], [0, 0], "{is_ip6}");
    }
}

/// A payload that lies in several segments is seen in order, and without the padding behind it.
#[test]
fn payload_crosses_segments() {
    let payload: Vec<u8> = (0..100).collect();
    let mut frame = Frame::new(net(false), Transport::from(Udp::new(1, 2))).payload(payload.clone()).build();
    frame.extend([0xee; 7]);
    let mut meta = parsed(&frame);
    let (len, mut bytes) = (frame.len() as u32, frame.clone());
    for cut in [42, 43, 60] {
        let tail: Vec<Vec<u8>> = bytes[cut..].chunks(17).map(<[u8]>::to_vec).collect();
        let packet = Packet {
            head: &mut bytes[..cut],
            tail: Some(&tail),
            meta: &mut meta,
            len,
            segment_size: 0,
            in_port: 0,
            direction: Direction::Forward,
            session: SessionId(0),
        };
        assert_eq!(packet.segments().collect::<Vec<_>>().concat(), frame);
        assert_eq!(packet.payload().collect::<Vec<_>>().concat(), payload);
    }
}
