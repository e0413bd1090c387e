//! Protocols other than TCP, and the parsing of packets.

use mmb_packet::build::{Frame, Icmp, Ip4, Ip6, Tcp, Transport, Udp};
use mmb_packet::{Meta, parse};

use super::*;

#[test]
fn other_traffic_is_unreplied_and_then_replied() {
    let settings = SessionSettings::default();
    for (traffic, unreplied, replied) in [
        (TrackInput::Udp, 120_000, 300_000),
        (TrackInput::Icmp, 60_000, 60_000),
        (TrackInput::Other, 120_000, 120_000),
    ] {
        let mut acks = [3, 4];
        let (mut track, seen) = TrackState::open(&traffic, &mut acks, &settings).expect("opens");
        let opened = TrackOutcome {
            verdict: TrackVerdict::Pass,
            timeout: unreplied,
            settled: [true, false],
            embryonic: true,
        };
        assert_eq!(seen, opened);
        assert_eq!(track.update(Forward, &traffic, &mut acks, &settings), opened);
        assert_eq!(track.state_name(), "unreplied");
        let seen = track.update(Reverse, &traffic, &mut acks, &settings);
        assert_eq!(seen, TrackOutcome { timeout: replied, settled: [true; 2], embryonic: false, ..opened });
        assert_eq!((track.state_name(), acks), ("replied", [3, 4]));
    }
}

#[test]
fn packets_of_another_kind_change_nothing() {
    let settings = SessionSettings::default();
    let tcp = TrackInput::Tcp(segment(Reverse, RST | ACK, 0, 1, 0));
    let kinds = [TrackInput::Udp, TrackInput::Icmp, TrackInput::Other, tcp];
    for first in kinds {
        for second in kinds {
            if std::mem::discriminant(&first) == std::mem::discriminant(&second) {
                continue;
            }
            let mut acks = [0; 2];
            let (track, seen) = TrackState::open(&first, &mut acks, &settings).expect("opens");
            let (mut after, before) = (track, acks);
            assert_eq!(after.update(Reverse, &second, &mut acks, &settings), seen);
            assert_eq!((after, acks), (track, before));
        }
    }
}

fn traffic(frame: &[u8]) -> TrackInput {
    let mut meta = Meta::default();
    if let Err(reason) = parse(frame, frame.len(), &mut meta) {
        assert!(reason.is_transport_error());
    }
    TrackInput::of(frame, &meta)
}

#[test]
fn frames_are_read() {
    let ip = || Ip4 { options: vec![1; 8], ..Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]) };
    let six = || Ip6::new([0xfd00, 0, 0, 0, 0, 0, 0, 1], [0xfd00, 0, 0, 0, 0, 0, 0, 2]);
    // MSS, padding, window scale 200, which counts as 14, and an option of a wrong length.
    let options = vec![2, 4, 5, 0xb4, 1, 3, 3, 200, 3, 4, 5, 5];
    let syn = Tcp { options, seq: 0x1020_3040, flags: SYN, window: 0xfaf0, ..Tcp::new(1, 2) };
    let expected =
        TcpSegment { seq: 0x1020_3040, ack: syn.ack, len: 3, window: 0xfaf0, flags: SYN, scale: Some(14) };
    let frame = Frame::new(ip(), syn.clone()).payload(*b"abc").pad_to(120).build();
    assert_eq!(traffic(&frame), TrackInput::Tcp(expected));
    assert_eq!(traffic(&Frame::new(six(), syn.clone()).payload(*b"abc").build()), TrackInput::Tcp(expected));
    let later = Tcp { flags: 0x18, ..syn };
    let TrackInput::Tcp(read) = traffic(&Frame::new(ip(), later).build()) else { panic!("TCP") };
    assert_eq!((read.flags, read.scale, read.len), (0x18, None, 0));
    assert_eq!(traffic(&Frame::new(ip(), Udp::new(1, 2)).build()), TrackInput::Udp);
    for (kind, query) in [
        (0, true),
        (3, false),
        (8, true),
        (11, false),
        (12, false),
        (13, true),
        (18, true),
        (42, true),
        (43, true),
    ] {
        let expected = if query { TrackInput::Icmp } else { TrackInput::Other };
        assert_eq!(traffic(&Frame::new(ip(), Icmp::new(kind)).build()), expected, "{kind}");
    }
    for (kind, query) in
        [(1, false), (8, false), (128, true), (129, true), (135, false), (160, true), (161, true)]
    {
        let expected = if query { TrackInput::Icmp } else { TrackInput::Other };
        assert_eq!(traffic(&Frame::new(six(), Icmp::new(kind)).build()), expected, "{kind}");
    }
    assert_eq!(traffic(&Frame::new(ip(), Transport::Raw(47)).payload([0; 20]).build()), TrackInput::Other);
    let cut = Frame::new(ip(), Transport::Raw(6)).payload([0; 19]).build();
    assert_eq!(traffic(&cut), TrackInput::Other);
}
