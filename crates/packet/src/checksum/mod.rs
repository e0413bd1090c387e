//! The Internet checksum: full (RFC 1071), incremental (RFC 1624), and pseudo headers.
//!
//! Sums are ones'-complement sums of big-endian 16-bit words in 32 bits, with the carries not yet folded.
//! The field in a packet is the complement of the folded sum: `!fold(sum(bytes, pseudo4(..)))`.

mod partial;

pub use partial::{complete_from, complete_partial, is_tcp_valid};
pub(crate) use partial::{is_valid_in_pieces, sum_pieces};

/// 32-bit words that [`sum`] adds at a time.
const LANES: usize = 8;

/// Adds the 16-bit words of `bytes` to `init`.
///
/// An odd last byte counts as the upper half of a word (RFC 1071), so only the last piece of a packet may
/// have an odd length. The result is at most `init + 0xffff`; an end-around carry prevents an overflow.
pub fn sum(bytes: &[u8], init: u32) -> u32 {
    // Sums do not depend on the byte order if it is the same throughout (RFC 1071, 2.B). The words are
    // therefore added in native order, and the result is swapped once. The compiler makes vectors of the
    // lanes, which do not overflow: each has the sum of fewer than 2³² words.
    let native = |word: &[u8; 4]| u64::from(u32::from_ne_bytes(*word));
    let mut lanes = [0; LANES];
    let (blocks, rest) = bytes.as_chunks::<{ 4 * LANES }>();
    for block in blocks {
        let words: [u32; LANES] = bytemuck::cast(*block);
        for (n, lane) in lanes.iter_mut().enumerate() {
            *lane += u64::from(words[n]);
        }
    }
    let (words, rest) = rest.as_chunks();
    let mut tail = [0; 4];
    tail[..rest.len()].copy_from_slice(rest);
    let total = lanes.iter().sum::<u64>() + words.iter().map(native).sum::<u64>() + native(&tail);
    let (all, carry) = init.overflowing_add(u32::from(u16::from_be(fold64(total))));
    all.wrapping_add(u32::from(carry))
}

fn fold64(n: u64) -> u16 {
    let (low, carry) = (n as u32).overflowing_add((n >> 32) as u32);
    fold(low.wrapping_add(u32::from(carry)))
}

/// Folds the carries: the sum in 16 bits, not complemented.
#[inline]
pub fn fold(sum: u32) -> u16 {
    let once = (sum >> 16) + (sum & 0xffff);
    ((once >> 16) + once) as u16
}

/// Whether a header's checksum is valid, given the sum of its 32-bit words in native byte order.
///
/// The sum of a valid header is a multiple of 0xffff in any byte order. The words must not all be zero.
#[inline(always)]
pub fn is_valid(sum: u64) -> bool {
    sum.is_multiple_of(0xffff)
}

/// Folds a sum of at most 35 bits of native-order 32-bit words into 16 bits, for a comparison with 0xffff.
#[inline(always)]
pub fn fold_native_words(sum: u64) -> u64 {
    // The steps reduce 35 bits to 33, to 32 and a carry, to 17, to 16.
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    (sum >> 16) + (sum & 0xffff)
}

/// Returns the checksum field after a covered 16-bit word changed from `old` to `new` (RFC 1624, equation
/// 3).
///
/// All arguments have the same byte order. An invalid checksum stays invalid by the same difference. The
/// caller handles a result of 0 where it means "no checksum" (UDP).
#[inline]
pub fn update16(csum: u16, old: u16, new: u16) -> u16 {
    !fold(u32::from(!csum) + u32::from(!old) + u32::from(new))
}

/// Sum of the IPv4 pseudo header (RFC 9293, 3.1; RFC 768). `len` counts the transport header and the
/// payload.
pub fn pseudo4(src: [u8; 4], dst: [u8; 4], proto: u8, len: u16) -> u32 {
    sum(&dst, sum(&src, u32::from(proto) + u32::from(len)))
}

/// Sum of the IPv6 pseudo header (RFC 8200, 8.1). `dst` is the final destination, `proto` the transport
/// protocol; `len` counts the transport header and the payload.
pub fn pseudo6(src: &[u8; 16], dst: &[u8; 16], proto: u8, len: u32) -> u32 {
    sum(dst, sum(src, u32::from(proto) + (len >> 16) + (len & 0xffff)))
}

#[cfg(test)]
mod tests;
