//! Compares the values of a field in 64 packets with a condition, with AVX2.
//!
//! Every function here requires the instructions of [`Level::Avx2`](crate::vector::Level). It returns exactly
//! what the portable code returns.

use std::arch::x86_64::*;

use bytemuck::cast;

use super::columns::{Narrow, Wide};
use super::conditions::Condition;

/// Measured cost in clock ticks of comparing words of 16 bits.
pub(super) const TICKS: usize = 6;

/// Compares words of 16 bits; returns a bit for each, which is set if the condition accepts it.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn compare_narrow(words: &Narrow, condition: Condition) -> u64 {
    let (last, span) = (_mm256_set1_epi32(condition.last as i32), _mm256_set1_epi32(condition.span as i32));
    let accepted = |words| {
        let distance = _mm256_sub_epi16(last, words);
        _mm256_cmpeq_epi16(_mm256_min_epu16(distance, span), distance)
    };
    let [a, b, c, d]: [__m256i; 4] = cast(*words);
    both(
        _mm256_packs_epi16(accepted(a), accepted(b)),
        _mm256_packs_epi16(accepted(c), accepted(d)),
        |words| _mm256_permute4x64_epi64::<0b11_01_10_00>(words),
    )
}

/// [`compare_narrow`] for words of 32 bits.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn compare_wide(words: &Wide, condition: Condition) -> u64 {
    let (last, span) = (_mm256_set1_epi32(condition.last as i32), _mm256_set1_epi32(condition.span as i32));
    let accepted = |words| {
        let distance = _mm256_sub_epi32(last, words);
        _mm256_cmpeq_epi32(_mm256_min_epu32(distance, span), distance)
    };
    let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    let [a, b, c, d, e, f, g, h]: [__m256i; 8] = cast(*words);
    let four = |[a, b, c, d]: [__m256i; 4]| {
        let low = _mm256_packs_epi32(accepted(a), accepted(b));
        _mm256_packs_epi16(low, _mm256_packs_epi32(accepted(c), accepted(d)))
    };
    both(four([a, b, c, d]), four([e, f, g, h]), |words| _mm256_permutevar8x32_epi32(words, order))
}

/// The highest bits of the bytes of two vectors, whose elements `sort` puts in order: packing interleaves
/// the halves of vectors.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn both(low: __m256i, high: __m256i, sort: impl Fn(__m256i) -> __m256i) -> u64 {
    let bits = |bytes| u64::from(_mm256_movemask_epi8(sort(bytes)) as u32);
    bits(low) | bits(high) << 32
}
