//! Tests of the parent module.

use super::*;
use proptest::prelude::*;

/// RFC 1071, section 3: the sum of 0001 f203 f4f5 f6f7 is ddf2.
#[test]
fn rfc_1071_example() {
    assert_eq!(fold(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7], 0)), 0xddf2);
}

/// RFC 1624, section 4: a word that changes from 5555 to 3285 brings dd2f to 0000.
#[test]
fn rfc_1624_example() {
    assert_eq!(update16(0xdd2f, 0x5555, 0x3285), 0x0000);
}

#[test]
fn a_header_with_a_valid_checksum_sums_to_ones() {
    let header = [
        0x45, 0x00, 0x00, 0x54, 0x59, 0xcd, 0x00, 0x00, 0x40, 0x11, 0x94, 0xae, 0xc0, 0xa8, 0x01, 0x0b, 0xd1,
        0x57, 0xf9, 0x12,
    ];
    assert_eq!(fold(sum(&header, 0)), 0xffff);
}

#[test]
fn an_odd_byte_is_the_upper_half_of_a_word() {
    assert_eq!(sum(&[0x12], 0), 0x1200);
    assert_eq!(fold(sum(&[1, 2, 3, 4, 5, 6, 7, 8, 9], 0)), 0x0102 + 0x0304 + 0x0506 + 0x0708 + 0x0900);
    assert_eq!(sum(&[], 7), 7);
}

#[test]
fn sums_do_not_overflow() {
    let ones = vec![0xff; 65_535];
    assert_eq!(fold(sum(&ones, u32::MAX)), fold(sum(&[0xff, 0x00], 0)));
    assert_eq!(fold(u32::MAX), 0xffff);
}

#[test]
fn pseudo_headers_count_every_field() {
    let words = |list: &[u16]| fold(list.iter().map(|w| u32::from(*w)).sum());
    let four = pseudo4([10, 1, 2, 3], [10, 4, 5, 6], 17, 0x1234);
    assert_eq!(fold(four), words(&[0x0a01, 0x0203, 0x0a04, 0x0506, 17, 0x1234]));
    let (mut src, mut dst) = ([0; 16], [0; 16]);
    (src[0], dst[15]) = (0x20, 0x99);
    assert_eq!(fold(pseudo6(&src, &dst, 58, 0x0001_1234)), words(&[0x2000, 0x0099, 0x0001, 0x1234, 58]));
}

proptest! {
    #[test]
    fn sum_is_the_sum_of_words(bytes in prop::collection::vec(any::<u8>(), 0..300), init in any::<u32>()) {
        let words = bytes.chunks(2).map(|w| u64::from(w[0]) << 8 | u64::from(*w.get(1).unwrap_or(&0)));
        let all = words.sum::<u64>() + u64::from(init);
        // Ones'-complement sums are equal modulo 0xffff; only an empty sum is 0.
        let folded = u64::from(fold(sum(&bytes, init)));
        prop_assert_eq!(folded % 0xffff, all % 0xffff);
        prop_assert_eq!(folded == 0, all == 0);
    }

    #[test]
    fn pieces_of_even_length_add_up(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0..100usize) {
        let (left, right) = bytes.split_at((at * 2).min(bytes.len()));
        prop_assert_eq!(fold(sum(right, sum(left, 0))), fold(sum(&bytes, 0)));
    }

    #[test]
    fn update_equals_recompute(
        mut words in prop::collection::vec(any::<u16>(), 2..40),
        at in any::<prop::sample::Index>(),
        new in any::<u16>(),
    ) {
        let bytes = |words: &[u16]| words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<_>>();
        // A fixed non-zero word avoids a sum of 0, which has two representations in ones' complement.
        words[0] |= 1;
        let at = 1 + at.index(words.len() - 1);
        let (old, before) = (words[at], !fold(sum(&bytes(&words), 0)));
        words[at] = new;
        prop_assert_eq!(update16(before, old, new), !fold(sum(&bytes(&words), 0)));
    }
}
