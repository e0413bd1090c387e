use std::collections::BTreeMap;

use super::testing::crypto_frame as crypto;
use super::*;
use crate::Progress;

/// RFC 9001, A.2, and RFC 9369, A.2: the first datagram of a client that asks for `example.com`.
const RFC9001: &[u8] = include_bytes!("rfc9001.bin");
const RFC9369: &[u8] = include_bytes!("rfc9369.bin");
/// The first datagram of a client with aioquic 1.7, which asks for `quic.example.com`.
const AIOQUIC: &[u8] = include_bytes!("aioquic.bin");

fn initial(datagram: &[u8]) -> Initial {
    match packets(datagram).next() {
        Some(Ok(Packet::Initial(initial))) => initial,
        other => panic!("{other:?}"),
    }
}

/// The server's name in a client's first datagram.
fn name(datagram: &[u8]) -> String {
    let mut datagram = datagram.to_vec();
    let packet = initial(&datagram);
    let keys = InitialKeys::new(packet.version, packet.destination.bytes());
    let opened = keys.open(&mut datagram, &packet, None).unwrap();
    let mut stream = CryptoStream::default();
    assert!(stream.is_empty() && stream.add_frames(&datagram[opened.frames]) == Ok(true));
    match stream.hello(0) {
        Ok(Progress::Complete(hello)) => String::from_utf8(hello.server_name.unwrap().to_vec()).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn first_datagrams_of_clients() {
    assert_eq!(name(RFC9001), "example.com");
    assert_eq!(name(RFC9369), "example.com");
    assert_eq!(name(AIOQUIC), "quic.example.com");
    assert_eq!(initial(RFC9001).destination.bytes(), [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08]);
    assert_eq!([initial(RFC9001).version, initial(RFC9369).version], [Version::V1, Version::V2]);
}

/// RFC 9001, 5.3: a packet that was changed anywhere, or has other keys, is not accepted.
#[test]
fn a_packet_with_another_byte_is_not_accepted() {
    let packet = initial(RFC9001);
    let keys = InitialKeys::new(packet.version, packet.destination.bytes());
    for at in (5..40).chain((40..1200).step_by(37)) {
        let mut changed = RFC9001.to_vec();
        changed[at] ^= 0x10;
        let before = changed.clone();
        assert!(keys.open(&mut changed, &packet, None).is_err(), "{at}");
        assert_eq!(changed, before);
    }
    let mut datagram = RFC9001.to_vec();
    let other = InitialKeys::new(Version::V2, packet.destination.bytes());
    assert_eq!(other.open(&mut datagram, &packet, None), Err(QuicError::OtherKeys));
    assert_eq!(datagram, RFC9001);
    assert_eq!(keys.open(&mut datagram, &packet, None).map(|opened| opened.number), Ok(2));
}

/// A long header without its connection ids.
fn long(first: u8, version: u32, behind: &[u8]) -> Vec<u8> {
    [&[first][..], &version.to_be_bytes(), &[2, 7, 7, 1, 9], behind].concat()
}

/// RFC 9000, 12.2 and 17.2.
#[test]
fn datagrams_are_divided_into_packets() {
    let v1 = |kind: u8, behind: &[u8]| long(0xc0 | kind << 4, 1, behind);
    let handshake = v1(2, &[3, 1, 2, 3]);
    let early = v1(1, &[0x40, 2, 1, 2]);
    let whole = [RFC9001, &handshake, &early, &[0x40, 1, 2]].concat();
    let read: Vec<_> = packets(&whole).map(Result::unwrap).collect();
    assert_eq!(read[0], Packet::Initial(initial(RFC9001)));
    assert_eq!(read[1..], [Packet::Handshake, Packet::Early, Packet::Short]);
    let second = [&handshake[..], RFC9001].concat();
    let Some(Ok(Packet::Initial(moved))) = packets(&second).nth(1) else { panic!() };
    assert_eq!(moved.range, handshake.len()..handshake.len() + 1200);
    let one = |bytes: &[u8]| packets(bytes).map(Result::ok).collect::<Vec<_>>();
    assert_eq!(one(&v1(3, &[1; 20])), [Some(Packet::Retry)]);
    assert_eq!(one(&long(0x80, 0, &[0, 0, 0, 1])), [Some(Packet::VersionNegotiation)]);
    assert_eq!(one(&long(0xff, 0xff00_001d, &[1])), [Some(Packet::UnknownVersion(0xff00_001d))]);
    // RFC 9369, 3.2.
    assert_eq!(one(&long(0xc0, 0x6b33_43cf, &[1; 20])), [Some(Packet::Retry)]);
    assert_eq!(one(&long(0xf0, 0x6b33_43cf, &[1, 1])), [Some(Packet::Handshake)]);
    // RFC 9287: the fixed bit may be clear.
    assert_eq!(one(&long(0xa0, 1, &[1, 1])), [Some(Packet::Handshake)]);
    // Lengths that do not fit, and a connection id of 21 bytes.
    assert_eq!(one(&v1(2, &[2, 1])), [None]);
    assert_eq!(one(&v1(0, &[9, 1])), [None]);
    assert_eq!(one(&[&[0xc0, 0, 0, 0, 1, 21][..], &[0; 40]].concat()), [None]);
    assert_eq!(one(&RFC9001[..1199]), [None]);
    assert_eq!(one(&[]), []);
}

/// The packets of tests are those of the RFCs.
#[test]
fn packets_of_tests() {
    for (version, expected) in [(Version::V1, RFC9001), (Version::V2, RFC9369)] {
        let id = initial(expected).destination;
        let frames = [crypto(0, &message()), vec![0; 917]].concat();
        // The frame has one byte for its offset there.
        let frames = [&frames[..1], &[0], &frames[3..]].concat();
        let made = testing::initial_packet((version, id.bytes()), id.bytes(), 2, &frames);
        assert_eq!(made, expected);
    }
}

/// The message of RFC 9001, A.2.
fn message() -> Vec<u8> {
    let (mut datagram, packet) = (RFC9001.to_vec(), initial(RFC9001));
    let keys = InitialKeys::new(packet.version, packet.destination.bytes());
    let opened = keys.open(&mut datagram, &packet, None).unwrap();
    datagram[opened.frames][4..4 + 0xf1].to_vec()
}

/// RFC 9000, 19.6: frames come in any order, overlap and repeat.
#[test]
fn frames_are_put_in_order() {
    let message = message();
    for size in [1, 7, 64, 100] {
        for is_reverse in [false, true] {
            let mut pieces: Vec<_> = (0..).step_by(size).zip(message.chunks(size)).collect();
            if is_reverse {
                pieces.reverse();
            }
            let mut stream = CryptoStream::default();
            for (n, (offset, piece)) in pieces.iter().enumerate() {
                assert!(matches!(stream.hello(0), Ok(Progress::Incomplete(_))), "{n}");
                let start = if is_reverse { *offset } else { offset.max(&3) - 3 };
                let with_more = &message[usize::from(start)..usize::from(*offset) + piece.len()];
                let ack = [2, 9, 0, 1, 0, 3, 4];
                let ecn = [3, 9, 0, 0, 0, 1, 2, 3];
                let frames = [&ack[..], &[1, 0, 0], &crypto(start, with_more), &ecn].concat();
                assert_eq!(stream.add_frames(&frames), Ok(true));
            }
            let Ok(Progress::Complete(hello)) = stream.hello(0) else { panic!("{size}") };
            assert_eq!(hello.server_name, Some(&b"example.com"[..]));
        }
    }
}

#[test]
fn frames_that_are_wrong() {
    let added = |frames: &[u8]| CryptoStream::default().add_frames(frames);
    assert_eq!(added(&[0; 9]), Ok(false));
    assert_eq!(added(&[0x1c, 1, 2]), Ok(false));
    assert_eq!(added(&[]), Err(QuicError::Malformed));
    assert_eq!(added(&[6, 0, 5, 1]), Err(QuicError::Malformed));
    assert_eq!(added(&[2, 0, 0, 0x7f, 0xff]), Err(QuicError::Malformed));
    // STREAM, and a type that does not exist.
    assert_eq!([added(&[8, 0, 1]), added(&[0x40, 0x99])], [Err(QuicError::Frame); 2]);
    assert_eq!(added(&crypto(MOST_CRYPTO as u16 - 1, b"ab")), Err(QuicError::TooLong));
    assert_eq!(added(&crypto(MOST_CRYPTO as u16 - 2, b"ab")), Ok(true));
    let far = [&[6, 0xff][..], &[0xff; 7], &[1, 1]].concat();
    assert_eq!(added(&far), Err(QuicError::TooLong));
    let mut stream = CryptoStream::default();
    assert_eq!(stream.add_frames(&crypto(5, b"abc")), Ok(true));
    assert_eq!(stream.add_frames(&crypto(4, b"xab")), Ok(true));
    assert_eq!(stream.add_frames(&crypto(6, b"xc")), Err(QuicError::Conflict));
    // A message that has no room.
    let mut long = CryptoStream::default();
    long.add_frames(&crypto(0, &[1, 0, 0x20, 0])).unwrap();
    assert_eq!(long.hello(0).map(|_| ()), Err(QuicError::TooLong));
    let mut other = CryptoStream::default();
    other.add_frames(&crypto(0, &[2])).unwrap();
    assert_eq!(other.hello(0).map(|_| ()), Err(QuicError::Hello(crate::HelloError::OtherMessage)));
}

/// The frames against a map of bytes.
#[test]
fn bytes_are_where_frames_put_them() {
    let mut state = 1u64;
    let mut next = |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % limit
    };
    let (mut stream, mut model) = (CryptoStream::default(), BTreeMap::new());
    for _ in 0..2000 {
        let (offset, len) = (next(600) as usize, next(30) as usize);
        let bytes: Vec<u8> =
            (offset..offset + len).map(|at| [1, 0, 0x1f, 0].get(at).copied().unwrap_or(at as u8)).collect();
        stream.add_frames(&crypto(offset as u16, &bytes)).unwrap();
        model.extend((offset..).zip(bytes));
        let contiguous = (0..).take_while(|at| model.contains_key(at)).count();
        let needed = match stream.hello(0) {
            Ok(Progress::Incomplete(needed)) => needed,
            other => panic!("{other:?}"),
        };
        assert!(needed > contiguous);
    }
}
