//! Comparing sixteen entries and writing sixteen hits at once, on machines that can.
//!
//! Theory of operation. What is compiled for 512-bit vectors (AVX-512) may run only where the processor has them, which is
//! found out once for each [`crate::Batch`]: a [`Wide512`] says so. What is here asks
//! [`crate::block::Block`] the same as the code for all machines does, and has to answer the same.

/// That the processor has AVX-512 (F and BW), BMI2 and POPCNT.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wide512(());

impl Wide512 {
    /// None: it has not.
    pub fn detect() -> Option<Wide512> {
        #[cfg(target_arch = "x86_64")]
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("popcnt");
        #[cfg(not(target_arch = "x86_64"))]
        let has = false;
        has.then_some(Wide512(()))
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use append::append;
#[cfg(target_arch = "x86_64")]
pub(crate) use compare::{Chunk, four, give, sixteen};

#[cfg(target_arch = "x86_64")]
mod append;
#[cfg(target_arch = "x86_64")]
mod compare;
