//! Sequence numbers, which wrap (RFC 9293, 3.4).

/// Whether `a` comes before `b`. Both are less than 2^31 apart.
#[inline(always)]
pub fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// Whether `a` comes after `b`. Both are less than 2^31 apart.
#[inline(always)]
pub fn is_after(a: u32, b: u32) -> bool {
    is_before(b, a)
}
