//! Fields as runs of bits in a header, one bit at a time. Bit 0 is the most significant bit of the first
//! byte, as in the figures of the RFCs.

/// The value of the `width` bits from `at` on.
pub(crate) fn get(header: &[u8], at: usize, width: usize) -> u128 {
    (at..at + width).fold(0, |value, bit| value << 1 | u128::from(header[bit / 8] >> (7 - bit % 8) & 1))
}

/// Sets the `width` bits from `at` on to the low bits of `value`.
pub(crate) fn set(header: &mut [u8], at: usize, width: usize, value: u128) {
    for i in 0..width {
        let bit = at + i;
        let flag = 1 << (7 - bit % 8);
        if value >> (width - 1 - i) & 1 == 1 {
            header[bit / 8] |= flag;
        } else {
            header[bit / 8] &= !flag;
        }
    }
}
