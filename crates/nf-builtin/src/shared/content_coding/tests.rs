use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use proptest::prelude::*;

use super::inflate::{COMMENT, EXTRA, HEADER_CRC, NAME};
use super::*;
use flate2::Crc;

/// Returns a gzip member.
pub(crate) fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

/// Returns data of zlib.
pub(crate) fn zlib(text: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(6));
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

/// Returns deflate data without a header.
pub(crate) fn raw(text: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::new(6));
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

/// Returns data of brotli with a window of 2 to the power of `window` bytes.
pub(crate) fn br_with(text: &[u8], window: u32) -> Vec<u8> {
    let mut encoder = ::brotli::CompressorWriter::new(Vec::new(), 4096, 5, window);
    encoder.write_all(text).unwrap();
    encoder.into_inner()
}

/// Returns data of brotli.
pub(crate) fn br(text: &[u8]) -> Vec<u8> {
    br_with(text, 22)
}

/// Returns a frame of zstd with a checksum, made of pieces that are flushed, with a window of 2 to the power
/// of `window` bytes.
fn zstd_with(pieces: &[&[u8]], window: u32) -> Vec<u8> {
    use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer};
    let (mut context, mut data) = (CCtx::create(), Vec::with_capacity(1 << 20));
    context.set_parameter(CParameter::ChecksumFlag(true)).unwrap();
    context.set_parameter(CParameter::WindowLog(window)).unwrap();
    for piece in pieces {
        let mut input = InBuffer::around(piece);
        while input.pos() < piece.len() {
            let from = data.len();
            data.reserve(1 << 17);
            context.compress_stream(&mut OutBuffer::around_pos(&mut data, from), &mut input).unwrap();
        }
        let from = data.len();
        data.reserve(1 << 18);
        assert_eq!(context.flush_stream(&mut OutBuffer::around_pos(&mut data, from)), Ok(0));
    }
    let from = data.len();
    data.reserve(1 << 18);
    assert_eq!(context.end_stream(&mut OutBuffer::around_pos(&mut data, from)), Ok(0));
    data
}

/// Returns a frame of zstd.
pub(crate) fn zstd(text: &[u8]) -> Vec<u8> {
    zstd_with(&[text], 20)
}

/// A frame that is skipped (RFC 8878, 3.1.2).
const SKIPPABLE: &[u8] = b"\x53\x2a\x4d\x18\x03\0\0\0abc";

/// Returns a gzip member whose header has all fields.
fn with_fields(text: &[u8]) -> Vec<u8> {
    let mut member = vec![0x1f, 0x8b, 8, HEADER_CRC | EXTRA | NAME | COMMENT, 1, 2, 3, 4, 0, 3];
    member.extend_from_slice(b"\x05\0extraa name\0a comment\0");
    let mut crc = Crc::new();
    crc.update(&member);
    member.extend_from_slice(&crc.sum().to_le_bytes()[..2]);
    let plain = gzip(text);
    member.extend_from_slice(&plain[10..]);
    member
}

/// Decodes a body in pieces. Returns what it means up to an error, and whether bytes were ignored.
fn decode(coding: Coding, body: &[u8], piece: usize) -> (Vec<u8>, Result<bool, DecodeError>) {
    let mut decoders = Decoders::new(0);
    let number = decoders.open(coding).unwrap();
    let (decoder, mut out) = (decoders.get(number).unwrap(), Vec::new());
    for bytes in body.chunks(piece.max(1)) {
        let mut part = Vec::new();
        let result = decoder.decode(bytes, &mut part, MOST_DECODED);
        out.append(&mut part);
        if let Err(error) = result {
            return (out, Err(error));
        }
    }
    let result = decoder.end().map(|()| decoder.has_garbage());
    (out, result)
}

const TEXT: &[u8] = b"a text, a text, and some more text";

#[test]
fn codings_are_decoded_wherever_the_bytes_are_cut() {
    let two = [gzip(TEXT), with_fields(TEXT)].concat();
    let bodies = [
        (Coding::Gzip, gzip(TEXT), TEXT.to_vec()),
        (Coding::Gzip, with_fields(TEXT), TEXT.to_vec()),
        (Coding::Gzip, gzip(b""), Vec::new()),
        (Coding::Gzip, Vec::new(), Vec::new()),
        (Coding::Gzip, two, TEXT.repeat(2)),
        (Coding::Deflate, zlib(TEXT), TEXT.to_vec()),
        (Coding::Deflate, raw(TEXT), TEXT.to_vec()),
        (Coding::Deflate, Vec::new(), Vec::new()),
        (Coding::Br, br(TEXT), TEXT.to_vec()),
        (Coding::Br, br_with(TEXT, 10), TEXT.to_vec()),
        (Coding::Br, br(b""), Vec::new()),
        (Coding::Br, Vec::new(), Vec::new()),
        (Coding::Zstd, zstd(TEXT), TEXT.to_vec()),
        (Coding::Zstd, zstd_with(&[b"a text, ", &TEXT[8..]], 10), TEXT.to_vec()),
        (Coding::Zstd, [&zstd(TEXT), SKIPPABLE, &zstd(TEXT), SKIPPABLE].concat(), TEXT.repeat(2)),
        (Coding::Zstd, zstd(b""), Vec::new()),
        (Coding::Zstd, Vec::new(), Vec::new()),
    ];
    for (coding, body, text) in bodies {
        for piece in 1..=body.len().max(1) {
            assert_eq!(decode(coding, &body, piece), (text.clone(), Ok(false)), "{coding:?} {piece}");
        }
    }
    assert_eq!(Coding::of(b"X-Gzip"), Some(Coding::Gzip));
    assert_eq!((Coding::of(b"DEFLATE"), Coding::of(b"compress")), (Some(Coding::Deflate), None));
    assert_eq!((Coding::of(b"br"), Coding::of(b"Zstd")), (Some(Coding::Br), Some(Coding::Zstd)));
    assert!(Coding::ALL.iter().enumerate().all(|(at, &coding)| coding as usize == at));
}

#[test]
fn data_without_an_end_is_noticed() {
    let members = [with_fields(TEXT), gzip(TEXT)];
    let two = members.concat();
    for len in 1..two.len() {
        let (out, result) = decode(Coding::Gzip, &two[..len], 5);
        assert!(TEXT.repeat(2).starts_with(&out));
        // A whole member, and at most one byte more.
        let expected = match len - members[0].len().min(len) {
            0 if len == members[0].len() => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::Truncated),
        };
        assert_eq!(result, expected, "{len} of {}", two.len());
    }
    for (coding, body) in [
        (Coding::Deflate, zlib(TEXT)),
        (Coding::Deflate, raw(TEXT)),
        (Coding::Br, br(TEXT)),
        (Coding::Zstd, zstd_with(&[b"a text, ", &TEXT[8..]], 20)),
    ] {
        for len in 1..body.len() {
            let (out, result) = decode(coding, &body[..len], 3);
            assert!(TEXT.starts_with(&out), "{coding:?} {len}");
            assert_eq!(result, Err(DecodeError::Truncated), "{coding:?} {len}");
        }
    }
    let two = zstd(TEXT).repeat(2);
    for len in two.len() / 2 + 1..two.len() {
        assert_eq!(decode(Coding::Zstd, &two[..len], 7).1, Err(DecodeError::Truncated), "{len}");
    }
}

/// A part that a server has flushed is decoded before the next one comes.
#[test]
fn flushed_parts_leave_at_once() {
    let first = zstd_with(&[TEXT], 23);
    // Without the last block, which is empty, and the checksum.
    let flushed = &first[..first.len() - 7];
    let mut encoder = ::brotli::CompressorWriter::new(Vec::new(), 4096, 5, 24);
    encoder.write_all(TEXT).unwrap();
    encoder.flush().unwrap();
    for (coding, body) in [(Coding::Zstd, flushed), (Coding::Br, encoder.get_ref())] {
        let (out, result) = decode(coding, body, 5);
        assert_eq!((out.as_slice(), result), (TEXT, Err(DecodeError::Truncated)), "{coding:?}");
    }
}

#[test]
fn bytes_behind_the_data_are_ignored() {
    for garbage in [&b"\0\0\0\0"[..], b"\x1f", b"\x1fabc", b"<!-- cached -->"] {
        for (coding, body) in [
            (Coding::Gzip, gzip(TEXT)),
            (Coding::Deflate, zlib(TEXT)),
            (Coding::Br, br(TEXT)),
            (Coding::Zstd, zstd(TEXT)),
        ] {
            let body = [body.as_slice(), garbage].concat();
            for piece in [1, 3, body.len()] {
                assert_eq!(decode(coding, &body, piece), (TEXT.to_vec(), Ok(true)), "{garbage:?}");
            }
        }
    }
}

#[test]
fn corrupt_data_is_noticed() {
    let gzip = gzip(TEXT);
    let changed = |body: &[u8], at: usize, bit: u8| {
        let mut body = body.to_vec();
        body[at] ^= bit;
        body
    };
    let last = gzip.len() - 1;
    let fields = with_fields(TEXT);
    let (zlib, zstd) = (zlib(TEXT), zstd(TEXT));
    let bodies = [
        (Coding::Gzip, changed(&gzip, 0, 1), "magic"),
        (Coding::Gzip, changed(&gzip, 2, 1), "method"),
        (Coding::Gzip, changed(&gzip, 3, 0x20), "reserved flag"),
        (Coding::Gzip, changed(&gzip, 10, 6), "block type"),
        (Coding::Gzip, changed(&gzip, last - 7, 1), "checksum"),
        (Coding::Gzip, changed(&gzip, last, 1), "length"),
        (Coding::Gzip, changed(&fields, 20, 1), "checksum of the header"),
        (Coding::Gzip, [gzip.clone(), changed(&gzip, 2, 1)].concat(), "second member"),
        (Coding::Deflate, changed(&zlib, zlib.len() - 1, 1), "checksum of zlib"),
        (Coding::Deflate, b"plain text".to_vec(), "no data"),
        (Coding::Br, b"\xffplain text".to_vec(), "no data of brotli"),
        // RFC 7932, 9.1: the first bits of a window that is too large.
        (Coding::Br, b"\x11plain text".to_vec(), "large window"),
        (Coding::Zstd, b"plain text".to_vec(), "no frame"),
        (Coding::Zstd, changed(&zstd, zstd.len() - 1, 1), "checksum of zstd"),
        // RFC 8878, 3.1.1.1: reserved bit, a window of 16 MiB, and a dictionary.
        (Coding::Zstd, b"\x28\xb5\x2f\xfd\x08\x58".to_vec(), "reserved bit"),
        (Coding::Zstd, b"\x28\xb5\x2f\xfd\x00\x70\x01\0\0".to_vec(), "window"),
        (Coding::Zstd, b"\x28\xb5\x2f\xfd\x01\x58\x07\x01\0\0".to_vec(), "dictionary"),
    ];
    for (coding, body, what) in bodies {
        for piece in [1, 4, body.len()] {
            let (_, result) = decode(coding, &body, piece);
            assert_eq!(result, Err(DecodeError::Corrupt), "{what} in pieces of {piece}");
        }
    }
}

#[test]
fn bodies_do_not_grow_without_a_limit() {
    // Zeros have 1,000 times as many bytes as their data.
    let body = gzip(&vec![0; MOST_DECODED]);
    assert_eq!(decode(Coding::Gzip, &body, 100).0.len(), MOST_DECODED);
    let body = gzip(&vec![0; 2 * MOST_DECODED]);
    for piece in [100, body.len()] {
        let (out, result) = decode(Coding::Gzip, &body, piece);
        assert_eq!(result, Err(DecodeError::TooLarge));
        assert!(out.len() <= MOST_DECODED + 100 * 1032, "{}", out.len());
    }
    // One member after the other.
    let members = gzip(&vec![0; 60_000]).repeat(2 * MOST_DECODED / 60_000);
    assert_eq!(decode(Coding::Gzip, &members, 1000).1, Err(DecodeError::TooLarge));
    for body in [(Coding::Br, br(&vec![0; 16 << 20])), (Coding::Zstd, zstd(&vec![0; 16 << 20]))] {
        for piece in [1, 100, body.1.len()] {
            let (out, result) = decode(body.0, &body.1, piece);
            assert_eq!(result, Err(DecodeError::TooLarge), "{:?}", body.0);
            assert!(out.len() <= 2 * MOST_DECODED, "{:?} {}", body.0, out.len());
        }
    }
    // A large body that grows less is not one of these.
    let text: Vec<u8> = (0..600_000_u32).flat_map(|n| (n % 40_000).to_le_bytes()).collect();
    assert_eq!(decode(Coding::Gzip, &gzip(&text), 1400), (text.clone(), Ok(false)));
    let noise: Vec<u8> = (0..700_000_u32).flat_map(|n| n.wrapping_mul(0x9e37_79b1).to_be_bytes()).collect();
    assert_eq!(decode(Coding::Br, &br_with(&noise, 24), 1400), (noise.clone(), Ok(false)));
    assert_eq!(decode(Coding::Zstd, &zstd_with(&[&noise], 23), 1400), (noise, Ok(false)));
}

/// What the windows of all bodies need is bounded, and is free again when they are over.
#[test]
fn windows_need_no_more_memory_than_there_is() {
    let noise: Vec<u8> = (0..3_000_000_u32).flat_map(|n| n.wrapping_mul(0x9e37_79b1).to_be_bytes()).collect();
    for (coding, body) in [(Coding::Br, br_with(&noise, 24)), (Coding::Zstd, zstd_with(&[&noise], 23))] {
        let mut decoders = Decoders::new(0);
        for _ in 0..3 {
            let numbers: Vec<u16> = (0..MOST_DECODERS).filter_map(|_| decoders.open(coding)).collect();
            assert_eq!(numbers.len(), MOST_DECODERS, "none of them has a window yet");
            let mut results = Vec::new();
            for &number in &numbers {
                let mut out = Vec::new();
                results.push(body.chunks(100_000).take(20).try_for_each(|piece| {
                    out.clear();
                    decoders.get(number).unwrap().decode(piece, &mut out, MOST_DECODED)
                }));
            }
            assert_eq!((results[0], results[MOST_DECODERS - 1]), (Ok(()), Err(DecodeError::Memory)));
            decoders.close(numbers[MOST_DECODERS - 1]);
            assert_eq!(decoders.open(Coding::Br), None, "no other body is begun");
            let gzip = decoders.open(Coding::Gzip);
            assert!(gzip.is_some(), "but those that need no window");
            decoders.close(gzip.unwrap());
            numbers[..MOST_DECODERS - 1].iter().for_each(|&number| decoders.close(number));
            assert!(decoders.memory <= MOST_MEMORY / 4);
        }
    }
}

#[test]
fn decoders_are_used_again() {
    let mut decoders = Decoders::new(4);
    for _ in 0..3 {
        let numbers: Vec<u16> = (0..MOST_DECODERS).map(|_| decoders.open(Coding::Gzip).unwrap()).collect();
        assert_eq!(decoders.open(Coding::Deflate), None);
        let (decoder, mut out) = (decoders.get(numbers[0]).unwrap(), Vec::new());
        assert!(decoder.decode(b"not gzip", &mut out, 100).is_err());
        let decoder = decoders.get(numbers[1]).unwrap();
        decoder.decode(&gzip(TEXT)[..20], &mut out, 100).unwrap();
        decoder.kept.push(1);
        numbers.into_iter().for_each(|number| decoders.close(number));
    }
    let number = decoders.open(Coding::Deflate).unwrap();
    let (decoder, mut out) = (decoders.get(number).unwrap(), Vec::new());
    assert!(decoder.kept.is_empty());
    decoder.decode(&raw(TEXT), &mut out, 100).unwrap();
    assert_eq!((out.as_slice(), decoder.end()), (TEXT, Ok(())));
    decoders.close(0);
    assert!(decoders.get(0).is_none());
}

proptest! {
    /// Whatever comes in whatever pieces: the result is the same, and data that ends too early means the
    /// beginning of the text.
    #[test]
    fn spoiled_data_of_br_and_zstd_is_handled(
        text in "[ab]{0,400}",
        is_zstd in any::<bool>(),
        spoiled in prop::option::of((any::<prop::sample::Index>(), 1..=255_u8)),
        cut in prop::option::of(any::<prop::sample::Index>()),
        piece in 1..40_usize,
    ) {
        let coding = if is_zstd { Coding::Zstd } else { Coding::Br };
        let mut body = if is_zstd { zstd(text.as_bytes()) } else { br(text.as_bytes()) };
        let is_whole = spoiled.is_none() && cut.is_none();
        if let Some((at, bits)) = spoiled {
            let at = at.index(body.len());
            body[at] ^= bits;
        }
        if let Some(cut) = cut {
            body.truncate(cut.index(body.len()) + 1);
        }
        let (out, result) = decode(coding, &body, piece);
        prop_assert_eq!(decode(coding, &body, body.len()).1.is_ok(), result.is_ok());
        if spoiled.is_none() {
            prop_assert!(text.as_bytes().starts_with(&out));
        }
        if is_whole {
            prop_assert_eq!((out.as_slice(), result), (text.as_bytes(), Ok(false)));
        }
    }

    /// The decoder and that of flate2 agree, also about members that were spoiled.
    #[test]
    fn members_are_those_of_flate2(
        texts in prop::collection::vec("[ab]{0,40}", 1..4),
        has_fields in any::<bool>(),
        spoiled in prop::option::of((any::<prop::sample::Index>(), 1..=255_u8)),
        cut in prop::option::of(any::<prop::sample::Index>()),
        piece in 1..40_usize,
    ) {
        let member = if has_fields { with_fields } else { gzip };
        let mut body: Vec<u8> = texts.iter().flat_map(|text| member(text.as_bytes())).collect();
        if let Some((at, bits)) = spoiled {
            let at = at.index(body.len());
            body[at] ^= bits;
        }
        if let Some(cut) = cut {
            body.truncate(cut.index(body.len()) + 1);
        }
        let mut theirs = Vec::new();
        let is_accepted = MultiGzDecoder::new(body.as_slice()).read_to_end(&mut theirs).is_ok();
        match decode(Coding::Gzip, &body, piece) {
            (ours, Ok(false)) => {
                prop_assert!(is_accepted);
                prop_assert_eq!(ours, theirs);
            }
            // Only flate2 refuses bytes that are not the beginning of a member.
            (ours, Ok(true)) => prop_assert!(ours.starts_with(&theirs)),
            (_, Err(_)) => prop_assert!(!is_accepted),
        }
    }
}
