//! Properties of the reader of QUIC datagrams.

use mmb_tls::Progress;
use mmb_tls::quic::testing::initial_packet;
use mmb_tls::quic::{CryptoStream, InitialKeys, MOST_CRYPTO, Packet, Version, packets};

/// Checks what is read of a datagram, and of frames in an Initial packet.
pub fn check(bytes: &[u8]) {
    let mut datagram = bytes.to_vec();
    let mut end = 0;
    for packet in packets(bytes).flatten() {
        let Packet::Initial(packet) = packet else { continue };
        // Packets do not overlap.
        assert!(packet.range.start >= end && packet.range.end <= bytes.len());
        assert!(packet.range.contains(&packet.number_at) || packet.number_at == packet.range.end);
        end = packet.range.end;
        let keys = InitialKeys::new(packet.version, packet.destination.bytes());
        match keys.open(&mut datagram, &packet, None) {
            Ok(opened) => frames(&datagram[opened.frames]),
            Err(_) => assert_eq!(datagram[packet.range.clone()], bytes[packet.range]),
        }
    }
    frames(bytes);
    let part = &bytes[..bytes.len().min(1200)];
    let mut sealed = initial_packet((Version::V1, &[1; 8]), &[2; 5], 7, part);
    let Some(Ok(Packet::Initial(packet))) = packets(&sealed).next() else { panic!("a packet") };
    let opened =
        InitialKeys::new(Version::V1, &[1; 8]).open(&mut sealed, &packet, Some(6)).expect("its keys");
    assert_eq!((opened.number, &sealed[opened.frames]), (7, part));
}

/// Frames that came before in the same order change nothing.
fn frames(bytes: &[u8]) {
    let mut stream = CryptoStream::default();
    let added = stream.add_frames(bytes);
    if added.is_ok() {
        let before = format!("{:?}", stream.hello(0));
        assert_eq!(stream.add_frames(bytes), added);
        assert_eq!(format!("{:?}", stream.hello(0)), before);
    }
    if let Ok(Progress::Incomplete(needed)) = stream.hello(0) {
        assert!((1..=MOST_CRYPTO).contains(&needed));
    }
}
