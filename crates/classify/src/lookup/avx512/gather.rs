//! Loads of eight words at a time from memory that other threads may write, with AVX-512.

use std::arch::asm;
use std::arch::x86_64::*;
use std::sync::atomic::AtomicU64;

/// Words that are loaded by their indexes.
#[derive(Clone, Copy)]
pub(super) struct Words<'a> {
    words: &'a [AtomicU64],
    /// The largest index that is possible, in each lane.
    last: __m512i,
}

/// Stands for no words.
static ZERO: [AtomicU64; 1] = [const { AtomicU64::new(0) }; 1];

impl<'a> Words<'a> {
    /// Words whose number is a power of two, or 0.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,bmi2,popcnt")]
    pub fn new(words: &'a [AtomicU64]) -> Words<'a> {
        let words = if words.is_empty() { &ZERO } else { words };
        Words { words, last: _mm512_set1_epi64(words.len() as i64 - 1) }
    }

    /// The words at these indexes, or at others if there are no such words.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,bmi2,popcnt")]
    #[allow(unsafe_code)]
    pub fn load(&self, indexes: __m512i) -> __m512i {
        let indexes = _mm512_and_si512(indexes, self.last);
        let mut words = _mm512_setzero_si512();
        // SAFETY: each index has only bits of `last`, so it is at most `last`, and the word is within
        // `words`. The instruction reads eight words and changes no memory. It reads aligned words as relaxed
        // loads do, which may happen while others write them; an intrinsic would be an ordinary read, which
        // may not.
        unsafe {
            asm!(
                "kxnorw {all}, {all}, {all}",
                "vpgatherqq {words}{{{all}}}, [{base} + 8*{indexes}]",
                all = out(kreg) _,
                words = inout(zmm_reg) words,
                indexes = in(zmm_reg) indexes,
                base = in(reg) self.words.as_ptr(),
                options(readonly, nostack, preserves_flags),
            );
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use bytemuck::cast;
    use proptest::prelude::*;

    use super::*;
    use crate::vector::Avx512;

    proptest! {
        #[test]
        #[allow(unsafe_code)]
        fn loads_the_words_at_the_indexes(log2 in 0u32..10, indexes: [u64; 8]) {
            if Avx512::detect().is_none() {
                return Ok(());
            }
            let words: Vec<AtomicU64> = (0..1u64 << log2).map(|at| AtomicU64::new(!at)).collect();
            let indexes = indexes.map(|index| index & (words.len() as u64 - 1));
            // SAFETY: the processor has the instructions.
            let loaded = unsafe { Words::new(&words).load(cast(indexes)) };
            prop_assert_eq!(cast::<_, [u64; 8]>(loaded), indexes.map(|index| !index));
        }

        #[test]
        #[allow(unsafe_code)]
        fn no_words_are_zero(indexes: [u64; 8]) {
            if Avx512::detect().is_none() {
                return Ok(());
            }
            // SAFETY: the processor has the instructions.
            let loaded = unsafe { Words::new(&[]).load(cast(indexes)) };
            prop_assert_eq!(cast::<_, [u64; 8]>(loaded), [0; 8]);
        }
    }
}
