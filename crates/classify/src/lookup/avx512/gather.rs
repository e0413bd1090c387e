//! Loads of eight words at a time from memory that other threads may write, with AVX-512.
//!
//! Theory of operation. One instruction gathers eight words. On AMD's processors (Zen 5) it takes longer than
//! eight loads, so there the words are loaded one by one. Few words are copied to registers first.

use std::arch::asm;
use std::arch::x86_64::*;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::cast;

/// Whether this is a processor of AMD.
static IS_AMD: LazyLock<bool> = LazyLock::new(|| {
    let CpuidResult { ebx, ecx, edx, .. } = __cpuid(0);
    cast::<[u32; 3], [u8; 12]>([ebx, edx, ecx]) == *b"AuthenticAMD"
});

/// Words that are loaded by their indexes.
#[derive(Clone, Copy)]
pub(super) struct Words<'a> {
    words: &'a [AtomicU64],
    /// The largest index that is possible, in each lane.
    last: __m512i,
    /// Gathering takes longer than loading the words one by one.
    one_by_one: bool,
    /// All words, if they are few.
    copy: Option<[__m512i; 2]>,
}

/// Number of words that two registers hold.
const FEW: usize = 16;

/// Stands for no words.
static ZERO: [AtomicU64; 1] = [const { AtomicU64::new(0) }; 1];

impl<'a> Words<'a> {
    /// Words whose number is a power of two, or 0.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
    pub fn new(words: &'a [AtomicU64]) -> Words<'a> {
        let words = if words.is_empty() { &ZERO } else { words };
        let copy = (words.len() <= FEW).then(|| {
            let mut copy = [0; FEW];
            copy.iter_mut().zip(words).for_each(|(copy, word)| *copy = word.load(Ordering::Relaxed));
            cast(copy)
        });
        Words { words, last: _mm512_set1_epi64(words.len() as i64 - 1), one_by_one: *IS_AMD, copy }
    }

    /// The words at these indexes, or at others if there are no such words.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
    pub fn load(&self, indexes: __m512i) -> __m512i {
        let indexes = _mm512_and_si512(indexes, self.last);
        if let Some([first, second]) = self.copy {
            return _mm512_permutex2var_epi64(first, indexes, second);
        }
        if self.one_by_one { self.load_each(indexes) } else { self.gather(indexes) }
    }

    /// The words at these indexes; 0 for an index that is too large.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
    fn load_each(&self, indexes: __m512i) -> __m512i {
        let word =
            |at: u64| self.words.get(at as usize).map_or(0, |word| word.load(Ordering::Relaxed)) as i64;
        // One by one: `map` is not always inlined into functions with other instructions.
        let [a, b, c, d, e, f, g, h]: [u64; 8] = cast(indexes);
        _mm512_set_epi64(word(h), word(g), word(f), word(e), word(d), word(c), word(b), word(a))
    }

    /// The words at these indexes, which have only bits of `last`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
    #[allow(unsafe_code)]
    fn gather(&self, indexes: __m512i) -> __m512i {
        let mut words = _mm512_setzero_si512();
        // SAFETY: `load` leaves each index only bits of `last`, so it is at most `last`, and the word is
        // within `words`. The instruction reads eight words and changes no memory. It reads aligned words as
        // relaxed loads do, which may happen while others write them; an intrinsic would be an ordinary read,
        // which may not.
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
    use crate::vector::Simd;

    proptest! {
        #[test]
        #[allow(unsafe_code)]
        fn loads_the_words_at_the_indexes(log2 in 0u32..10, indexes: [u64; 8]) {
            if !Simd::detect().has_avx512() {
                return Ok(());
            }
            let words: Vec<AtomicU64> = (0..1u64 << log2).map(|at| AtomicU64::new(!at)).collect();
            let indexes = indexes.map(|index| index & (words.len() as u64 - 1));
            for one_by_one in [false, true] {
                // SAFETY: the processor has the instructions.
                let loaded = unsafe { Words { one_by_one, ..Words::new(&words) }.load(cast(indexes)) };
                prop_assert_eq!(cast::<_, [u64; 8]>(loaded), indexes.map(|index| !index));
            }
        }

        #[test]
        #[allow(unsafe_code)]
        fn no_words_are_zero(indexes: [u64; 8]) {
            if !Simd::detect().has_avx512() {
                return Ok(());
            }
            // SAFETY: the processor has the instructions.
            let loaded = unsafe { Words::new(&[]).load(cast(indexes)) };
            prop_assert_eq!(cast::<_, [u64; 8]>(loaded), [0; 8]);
        }
    }
}
