//! Cache prefetch hints; the only module of the crate with `unsafe`.

/// Prefetches the cache line of the first byte of `p`. A hint only; nothing is read.
#[inline(always)]
pub fn read<T: ?Sized>(p: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[allow(unsafe_code)]
    // SAFETY: prefetching has no effect visible to the abstract machine and cannot fault; SSE is part of
    // x86_64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(p).cast::<i8>());
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    let _ = p;
}

#[cfg(test)]
mod tests {
    #[test]
    fn takes_sized_and_unsized() {
        super::read(&7u64);
        super::read(&[1u8, 2][..]);
        super::read::<[u8]>(&[]);
    }
}
