//! Bounds-checked fixed-size loads.

/// The `N` bytes at offset `at`, if they are all there.
#[inline]
pub(crate) fn at<const N: usize>(bytes: &[u8], at: usize) -> Option<&[u8; N]> {
    // Wraps only for offsets that no packet has; `get` then finds the range reversed.
    bytes.get(at..at.wrapping_add(N))?.first_chunk()
}

/// Two bytes of a header as a number, most significant first.
#[inline]
pub(crate) fn be16<const N: usize>(header: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([header[at], header[at + 1]])
}

/// Source and destination of an IPv6 header.
#[inline]
pub(crate) fn ip6_addresses(header: &[u8; 40]) -> ([u8; 16], [u8; 16]) {
    let (mut source, mut destination) = ([0; 16], [0; 16]);
    source.copy_from_slice(&header[8..24]);
    destination.copy_from_slice(&header[24..]);
    (source, destination)
}

/// An offset or length as metadata carries it: saturated at 65,535.
#[inline]
pub(crate) fn saturate(n: usize) -> u16 {
    n.min(usize::from(u16::MAX)) as u16
}
