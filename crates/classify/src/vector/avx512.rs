//! Whether the processor supports the AVX-512 kernels.
//!
//! Theory of operation. The kernels for 512-bit vectors ([`crate::lookup`]) may run only on processors that
//! have AVX-512. This is determined once for each [`crate::Batch`]; an [`Avx512`] is the proof. The kernels
//! return exactly what the portable code returns.

/// Proof that the processor has AVX-512 (F, BW and VL), BMI2 and POPCNT.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// The proof, or None if an instruction set is missing.
    pub fn detect() -> Option<Avx512> {
        #[cfg(target_arch = "x86_64")]
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("popcnt");
        #[cfg(not(target_arch = "x86_64"))]
        let has = false;
        has.then_some(Avx512(()))
    }
}
