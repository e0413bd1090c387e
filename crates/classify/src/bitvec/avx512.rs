//! Compares the values of a field in 64 packets with a condition, with AVX-512.
//!
//! Every function here requires the instructions of [`Level::Avx512`](crate::vector::Level). It returns
//! exactly what the portable code returns.

use std::arch::x86_64::*;

use bytemuck::cast;

use super::columns::{Narrow, Wide};
use super::conditions::Condition;

/// Measured cost in clock ticks of comparing words of 16 bits.
pub(super) const TICKS: usize = 2;

/// Compares words of 16 bits; returns a bit for each, which is set if the condition accepts it.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
pub(super) fn compare_narrow(words: &Narrow, condition: Condition) -> u64 {
    let (last, span) = (_mm512_set1_epi32(condition.last as i32), _mm512_set1_epi32(condition.span as i32));
    let accepted = |words| _mm512_cmple_epu16_mask(_mm512_sub_epi16(last, words), span);
    let [low, high]: [__m512i; 2] = cast(*words);
    u64::from(accepted(low)) | u64::from(accepted(high)) << 32
}

/// [`compare_narrow`] for words of 32 bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
pub(super) fn compare_wide(words: &Wide, condition: Condition) -> u64 {
    let (last, span) = (_mm512_set1_epi32(condition.last as i32), _mm512_set1_epi32(condition.span as i32));
    let accepted = |words| u64::from(_mm512_cmple_epu32_mask(_mm512_sub_epi32(last, words), span));
    let [a, b, c, d]: [__m512i; 4] = cast(*words);
    accepted(a) | accepted(b) << 16 | accepted(c) << 32 | accepted(d) << 48
}
