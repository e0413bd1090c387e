//! Which vector instructions the processor has, of those that there are kernels for.
//!
//! Theory of operation. Kernels with vectors of 512 bits ([`crate::lookup`]) or 256 bits may run only on
//! processors that have the instructions. This is determined once for each [`crate::Batch`]; a [`Simd`] is
//! the proof. All kernels return exactly what the portable code returns.

/// Sets of instructions, each with all that those before it have.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// What every processor of the architecture has.
    Portable,
    /// AVX2, BMI1, BMI2, LZCNT and POPCNT.
    Avx2,
    /// AVX-512 F, BW and VL.
    Avx512,
}

/// Proof that the processor has the instructions of a level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Simd(Level);

impl Simd {
    /// No proof is needed for these.
    pub const PORTABLE: Simd = Simd(Level::Portable);

    /// The highest level of this processor.
    pub fn detect() -> Simd {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt")
        {
            let has_avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl");
            return Simd(if has_avx512 { Level::Avx512 } else { Level::Avx2 });
        }
        Simd::PORTABLE
    }

    /// The lower one of this level and another.
    #[cfg(test)]
    pub fn at_most(self, level: Level) -> Simd {
        Simd(self.0.min(level))
    }

    /// The level.
    #[inline(always)]
    pub fn level(self) -> Level {
        self.0
    }

    /// Whether the processor has AVX-512.
    #[inline(always)]
    pub fn has_avx512(self) -> bool {
        self.0 == Level::Avx512
    }
}
