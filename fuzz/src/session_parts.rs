//! Translation and tracking of arbitrary input, for the fuzz target `session`.

use mmb_flow::{
    Direction, Key, Mangle, SessionSettings, TcpSegment, TrackInput, TrackState, parse_quote, translate,
    translate_icmp_error, untranslate,
};
use mmb_packet::{Kind, Meta, PacketFlags};

/// Translates a head with arbitrary metadata. Nothing may panic.
pub(super) fn translate_any_metadata(bytes: &[u8]) {
    let Some((&[l3, l4, end, kind, proto], head)) = bytes.split_first_chunk() else { return };
    let (l3_off, l4_off) = (u16::from(l3), u16::from(l3) + u16::from(l4));
    let meta = Meta {
        l3_off,
        l4_off,
        end: l4_off + u16::from(end),
        kind: Kind(kind),
        proto,
        flags: PacketFlags::from_bits_retain(end & 7),
        ..Meta::default()
    };
    let from = Key { kind, proto, ..Key::default() };
    let to = Key { source: [7; 16], destination: [8; 16], source_port: [9; 2], ..from };
    let mangle = Mangle { sequence: 77, acknowledgment: 88, new_label: 5, ip_id: 3, ..Mangle::default() };
    for direction in [Direction::Forward, Direction::Reverse] {
        let mut head = head.to_vec();
        let quoted = parse_quote(&head, &meta);
        let _ = translate(&mut head, &meta, &from, &to, Some(&mangle), direction);
        let _ = untranslate(&mut head, &meta, &to, &from, Some(&mangle), direction);
        if let Some(quoted) = quoted {
            let _ = translate_icmp_error(&mut head, &meta, &quoted, &from, &to, Some(&mangle), direction);
        }
    }
}

/// Passes arbitrary segments to the tracker.
pub(super) fn track_any_segments(bytes: &[u8]) {
    let segment = |chunk: &[u8; 8]| {
        let [flags, window, seq, ack, len, high, scale, way] = *chunk;
        let long = |byte: u8| u32::from(byte) << (high & 0x18) | u32::from(high >> 6) << 30;
        let segment = TcpSegment {
            seq: long(seq),
            ack: long(ack),
            len: len.into(),
            window: u16::from(window) << 8,
            flags,
            scale: (scale & 1 != 0).then_some(scale >> 1),
        };
        (if way & 1 == 0 { Direction::Forward } else { Direction::Reverse }, TrackInput::Tcp(segment))
    };
    let (chunks, _) = bytes.as_chunks();
    for tcp_window_check in [false, true] {
        let settings = SessionSettings { tcp_window_check, ..SessionSettings::default() };
        let (mut acks, mut track) = ([0; 2], None::<TrackState>);
        for (direction, traffic) in chunks.iter().map(segment) {
            match &mut track {
                None => track = TrackState::open(&traffic, &mut acks, &settings).ok().map(|(track, _)| track),
                Some(track) => {
                    let seen = track.update(direction, &traffic, &mut acks, &settings);
                    assert!(seen.timeout > 0 && !track.state_name().is_empty());
                    assert!(!seen.settled[0] || !tcp_window_check);
                }
            }
        }
    }
}
