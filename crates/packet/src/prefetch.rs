//! Cache prefetch hints; the only module of the crate with `unsafe`.

#[cfg(all(target_arch = "x86_64", not(miri)))]
use std::arch::x86_64::{_MM_HINT_T0 as L1, _MM_HINT_T1 as L2, _mm_prefetch};

#[cfg(any(not(target_arch = "x86_64"), miri))]
const L1: i32 = 0;
#[cfg(any(not(target_arch = "x86_64"), miri))]
const L2: i32 = 0;

/// Prefetches the cache line of the first byte of `p` into the L1 cache. A hint only; nothing is read.
///
/// A processor drops such prefetches if more of them are outstanding than it can keep track of. For more than
/// some ten lines at a time, use [`read_l2`].
#[inline(always)]
pub fn read<T: ?Sized>(p: &T) {
    hint::<L1, T>(p);
}

/// Prefetches the cache line of the first byte of `p` into the L2 cache: one of many lines, which will not
/// all be used soon. A hint only; nothing is read.
#[inline(always)]
pub fn read_l2<T: ?Sized>(p: &T) {
    hint::<L2, T>(p);
}

#[inline(always)]
fn hint<const CACHE: i32, T: ?Sized>(p: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[allow(unsafe_code)]
    // SAFETY: prefetching has no effect visible to the abstract machine and cannot fault; SSE is part of
    // x86_64.
    unsafe {
        _mm_prefetch::<CACHE>(std::ptr::from_ref(p).cast::<i8>());
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
        super::read_l2(&7u64);
    }
}
