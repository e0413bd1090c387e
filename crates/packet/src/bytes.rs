//! Bounds-checked fixed-size loads.

/// The `N` bytes at offset `at`, or `None` if the slice ends before them.
#[inline]
pub(crate) fn at<const N: usize>(bytes: &[u8], at: usize) -> Option<&[u8; N]> {
    // The addition wraps only for offsets beyond any packet; `get` then rejects the reversed range.
    bytes.get(at..at.wrapping_add(N))?.first_chunk()
}

/// The big-endian 16-bit number at offset `at` of a header.
#[inline]
pub(crate) fn be16<const N: usize>(header: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([header[at], header[at + 1]])
}

/// Source and destination address of an IPv6 header.
#[inline]
pub(crate) fn ip6_addresses(header: &[u8; 40]) -> ([u8; 16], [u8; 16]) {
    let (mut source, mut destination) = ([0; 16], [0; 16]);
    source.copy_from_slice(&header[8..24]);
    destination.copy_from_slice(&header[24..]);
    (source, destination)
}

/// An offset or length as 16 bits, saturated at 65,535.
#[inline]
pub(crate) fn saturate(n: usize) -> u16 {
    n.min(usize::from(u16::MAX)) as u16
}
