//! Tests of the parent module.

use super::*;

/// Kind, data and offset.
type OptionAt<'a> = (u8, &'a [u8], usize);

fn walked(area: &[u8]) -> (Vec<OptionAt<'_>>, usize) {
    let mut options = TcpOptions::new(area);
    let found = options.by_ref().map(|o| (o.kind, o.data, o.at)).collect();
    (found, options.position())
}

/// Timestamp, MSS, window scale, presence bits, value bits.
fn index(area: &[u8]) -> (u64, u16, u8, u8, u8) {
    let OptionIndex { timestamp, rest } = OptionIndex::walk(area);
    let byte = |shift| (rest >> shift) as u8;
    (u64::from_be(timestamp), (rest >> MSS) as u16, byte(WSCALE), byte(PRESENT), byte(VALUED))
}

#[test]
fn padding_is_skipped_and_zero_ends_the_walk() {
    assert_eq!(walked(&[]), (vec![], 0));
    assert_eq!(walked(&[1, 1, 1, 1]), (vec![], 0));
    let mss: &[u8] = &[5, 180];
    assert_eq!(walked(&[1, 2, 4, 5, 180, 1, 4, 2]), (vec![(2, mss, 1), (4, &[], 6)], 8));
    assert_eq!(walked(&[2, 4, 5, 180, 1, 0, 4, 2]), (vec![(2, mss, 0)], 4));
}

#[test]
fn unreadable_bytes_end_the_walk() {
    let sackp: OptionAt<'_> = (4, &[], 0);
    for rest in [&[2, 0][..], &[2, 1], &[2, 5, 5, 180], &[2], &[19, 255, 0, 0]] {
        let area = [&[4, 2][..], rest].concat();
        assert_eq!(walked(&area), (vec![sackp], 2), "{rest:?}");
        assert_eq!(index(&area), (0, 0, 0, 0x21, 0));
    }
}

#[test]
fn the_last_option_of_valid_length_gives_the_value() {
    assert_eq!(index(&[2, 4, 5, 180, 2, 4, 2, 24]), (0, 536, 0, 0x81, 0x80));
    assert_eq!(index(&[2, 4, 5, 180, 2, 3, 9, 0]), (0, 1460, 0, 0x81, 0x80));
    assert_eq!(index(&[3, 3, 255, 3, 3, 7]), (0, 0, 7, 0x41, 0x40));
    let without_value = [2, 6, 5, 180, 0, 0, 3, 2, 8, 6, 1, 2, 3, 4];
    assert_eq!(index(&without_value), (0, 0, 0, 0x80 | 0x40 | 0x08 | 0x01, 0));
    let twice = [8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 8, 10, 0, 0, 0, 3, 0, 0, 0, 4, 34, 2, 5, 2, 30, 2];
    assert_eq!(index(&twice), (3 << 32 | 4, 0, 0, 0x1f, 0x08));
}

/// Headers cut at any length, and other protocols.
#[test]
fn the_index_equals_that_of_the_walk() {
    for words in 4..=8u8 {
        let usual = [&[0; OFFSET_AT][..], &[words << 4, 0, 0, 0, 0, 0, 0, 0, 1, 1, 8, 10], &[7; 12]].concat();
        for (head, l4_off) in (0..=usual.len()).flat_map(|len| [0, 3].map(|l4_off| (&usual[..len], l4_off))) {
            for l4 in [Kind::L4_NONE, Kind::TCP, Kind::UDP] {
                let meta = Meta { kind: Kind(Kind::IP4 | l4), l4_off, ..Meta::default() };
                assert_eq!(
                    OptionIndex::of(head, &meta),
                    OptionIndex::walk(tcp_options(head, &meta).area()),
                    "{words} {} {l4}",
                    head.len()
                );
            }
        }
    }
}

/// RFC 7323, appendix A, with and without options behind it.
#[test]
fn the_usual_layout_equals_the_walk() {
    let usual = [1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 7];
    let sack = [1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2];
    let newer = [8, 10, 0, 0, 0, 10, 0, 0, 0, 8, 0, 0];
    for rest in [&[][..], &sack, &newer, &[0; 4], &[8, 200, 0, 0], &[1, 1, 1, 1]] {
        let area = [&usual[..], rest].concat();
        let mut header = vec![0; FIXED];
        header[OFFSET_AT] = ((FIXED + area.len()) / 4) as u8 * 16;
        header.extend(&area);
        let meta = Meta { kind: Kind(Kind::IP4 | Kind::TCP), ..Meta::default() };
        assert_eq!(OptionIndex::of(&header, &meta), OptionIndex::walk(&area), "{rest:?}");
    }
}

#[test]
fn windows_are_shifted_as_scales_differ() {
    for (window, bits, expected) in [
        (0x1234, 0, 0x1234),
        (0x1234, 3, 0x91a0),
        (0x2000, 3, u16::MAX),
        (0x1234, -3, 0x246),
        (3, -14, 0),
        (0, 14, 0),
        (1, 14, 16_384),
        (4, 14, 65_535),
        (65_535, 1, 65_535),
        (1000, 0, 1000),
        (1000, -3, 125),
        (65_535, -14, 3),
        (65_535, i8::MIN, 0),
        (1, i8::MAX, 65_535),
    ] {
        assert_eq!(shift_window(window, bits), expected, "{window} by {bits}");
    }
}
