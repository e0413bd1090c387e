//! Tests of `mss-clamp`.

use mmb_packet::build::{Frame, Icmp, Ip4, Ip6, Tcp, Udp};
use proptest::prelude::*;

use super::*;
use mmb_nf::testing::{Bench, Forward, Reverse, assert_checksums, make, refused};

/// A TCP option as a sender writes it.
#[derive(Clone, Debug)]
enum Option {
    Nop,
    Mss(u16),
    /// Of kind 2, with so many bytes of value, not two.
    Odd(u8),
    Other(u8, u8),
}

fn option() -> impl Strategy<Value = Option> {
    prop_oneof![
        2 => Just(Option::Nop),
        3 => prop_oneof![0..2000u16, any::<u16>()].prop_map(Option::Mss),
        1 => prop_oneof![0..2u8, 3..5u8].prop_map(Option::Odd),
        2 => (3..20u8, 0..9u8).prop_map(|(kind, bytes)| Option::Other(kind, bytes)),
    ]
}

/// As many of them as there is room for, then the end.
fn area(options: &[Option]) -> Vec<u8> {
    let mut area = Vec::new();
    for option in options {
        let bytes = match *option {
            Option::Nop => vec![1],
            Option::Mss(value) => [[2, 4], value.to_be_bytes()].concat(),
            Option::Odd(bytes) => [vec![2, bytes + 2], vec![0xff; bytes.into()]].concat(),
            Option::Other(kind, bytes) => [vec![kind, bytes + 2], vec![2; bytes.into()]].concat(),
        };
        if area.len() + bytes.len() <= 40 {
            area.extend(bytes);
        }
    }
    area
}

fn segment(ip6: bool, flags: u8, options: Vec<u8>, payload: &[u8]) -> Vec<u8> {
    let tcp = Tcp { flags, options, seq: 0x1234_5678, ..Tcp::new(4000, 80) };
    let frame = if ip6 {
        Frame::new(Ip6::new([1; 16], [2; 16]), tcp)
    } else {
        Frame::new(Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]), tcp)
    };
    frame.payload(payload).build()
}

proptest! {
    /// A packet after the clamp is the one that a sender with lower values would have sent, checksums from
    /// scratch.
    #[test]
    fn only_greater_values_of_syns_change(
        options in prop::collection::vec(option(), 0..12),
        (most, ip6, flags) in (64..3000u16, any::<bool>(), any::<u8>()),
        payload in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut bench = Bench::<MssClamp>::new(&most.to_string());
        let before = segment(ip6, flags, area(&options), &payload);
        let lower = options.iter().cloned().map(|option| match option {
            Option::Mss(value) if flags & SYN != 0 => Option::Mss(value.min(most)),
            option => option,
        });
        let after = segment(ip6, flags, area(&lower.collect::<Vec<_>>()), &payload);
        let session = bench.open(&before);
        for direction in [Forward, Reverse] {
            let done = bench.packet(session, direction, &before);
            prop_assert_eq!(done.verdict, Verdict::Pass);
            prop_assert_eq!(&done.frame, &after);
            assert_checksums(&done.frame);
        }
        let lowered = if before == after { "0" } else { "2" };
        prop_assert_eq!(&bench.function.report()[0].1, lowered);
    }

    /// Whatever stands in the options, and wherever the frame ends.
    #[test]
    fn broken_options_are_left_alone(bytes in prop::collection::vec(any::<u8>(), 0..40), cut in 0..40usize) {
        let mut bench = Bench::<MssClamp>::new("536");
        let before = segment(false, SYN, bytes, &[]);
        let session = bench.open(&before);
        bench.contiguous = before.len() - cut.min(before.len() - 54);
        let done = bench.packet(session, Forward, &before);
        prop_assert_eq!(done.frame.len(), before.len());
        prop_assert_eq!(&done.frame[..50], &before[..50]);
    }
}

/// RFC 6691 and what Linux, Windows and BSD send: the option comes first, or behind padding.
#[test]
fn usual_syns() {
    let mut bench = Bench::<MssClamp>::new("1360");
    let linux = |mss: u16| {
        [[2, 4].as_slice(), &mss.to_be_bytes(), &[4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7]].concat()
    };
    let session = bench.open(&segment(false, SYN, linux(1460), &[]));
    for (flags, before, after) in [
        (SYN, 1460, 1360),
        (SYN | 0x10, 1460, 1360),
        (SYN, 1360, 1360),
        (SYN, 536, 536),
        (0x10, 1460, 1460),
        (SYN, 0, 0),
    ] {
        let done = bench.packet(session, Forward, &segment(false, flags, linux(before), &[]));
        assert_eq!(done.frame, segment(false, flags, linux(after), &[]));
    }
    let none = segment(true, SYN, vec![], b"x");
    assert_eq!(bench.packet(session, Forward, &none).frame, none);
}

#[test]
fn other_protocols_pass_untouched() {
    let mut bench = Bench::<MssClamp>::new("64");
    let ip = Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]);
    let payload = [2, 4, 0xff, 0xff].repeat(20);
    for frame in [
        Frame::new(ip.clone(), Udp::new(1, 2)).payload(payload.clone()).build(),
        Frame::new(ip, Icmp::new(8)).payload(payload).build(),
    ] {
        let session = bench.open(&frame);
        assert_eq!(bench.packet(session, Forward, &frame).frame, frame);
    }
}

#[test]
fn arguments_are_parsed() {
    assert_eq!(make::<MssClamp>("1360").map(|clamp| clamp.most), Ok(1360));
    for line in ["63", "65536", "x"] {
        assert_eq!(refused::<MssClamp>(line), format!("invalid segment size `{line}`: must be 64 to 65535"));
    }
    assert!(refused::<MssClamp>("").contains("needs one number"));
    assert!(refused::<MssClamp>("1 2").contains("needs one number"));
}
