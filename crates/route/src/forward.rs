//! Edits of forwarded packets: the TTL or hop limit is decremented and the Ethernet addresses are set.
//!
//! Each function has one bounds check and no branch on packet contents, so a loop over packets with
//! different next hops has no mispredictions.

use crate::hop::NextHop;

/// Length of an Ethernet header without tags.
const ETHERNET: usize = 14;
/// Length of both Ethernet addresses.
const ADDRESSES: usize = 12;
/// Offset of the IPv4 TTL behind the Ethernet header.
const TTL: usize = ETHERNET + 8;
/// Offset of the IPv4 header checksum.
const CHECKSUM: usize = ETHERNET + 10;
/// Offset of the IPv6 hop limit.
const HOP_LIMIT: usize = ETHERNET + 7;

/// Forwards an IPv4 packet: decrements its TTL, updates the header checksum (RFC 1624, equation 3) and
/// writes the next hop's Ethernet addresses into the 14 bytes before the IPv4 header.
///
/// `head` begins with the frame; `l3_off` is the offset of its IPv4 header. The caller has verified that
/// the TTL is at least 2 (RFC 1812, 5.3.1); a TTL of 0 becomes 255. The ethertype is unchanged, and an
/// invalid checksum stays invalid. Returns `false`, without a change, if `head` does not contain the
/// headers.
#[inline(always)]
pub fn forward_ip4(head: &mut [u8], l3_off: usize, hop: &NextHop) -> bool {
    let Some(header) = headers::<{ ETHERNET + 20 }>(head, l3_off) else { return false };
    header[..ADDRESSES].copy_from_slice(&hop.header);
    header[TTL] = header[TTL].wrapping_sub(1);
    // Decrementing the TTL subtracts 0x100 from its word, so the checksum gains 0x100. A sum of words that
    // are not all zero is never zero, so there is no second representation of zero to handle.
    let sum = u32::from(u16::from_be_bytes([header[CHECKSUM], header[CHECKSUM + 1]])) + 0x100;
    let csum = (sum + u32::from(sum >= 0xffff)) as u16;
    header[CHECKSUM..CHECKSUM + 2].copy_from_slice(&csum.to_be_bytes());
    true
}

/// Forwards an IPv6 packet: decrements its hop limit (RFC 8200, 3) and writes the next hop's Ethernet
/// addresses into the 14 bytes before the IPv6 header. See [`forward_ip4`] for arguments and result.
#[inline(always)]
pub fn forward_ip6(head: &mut [u8], l3_off: usize, hop: &NextHop) -> bool {
    let Some(header) = headers::<{ ETHERNET + 40 }>(head, l3_off) else { return false };
    header[..ADDRESSES].copy_from_slice(&hop.header);
    header[HOP_LIMIT] = header[HOP_LIMIT].wrapping_sub(1);
    true
}

/// Writes the next hop's Ethernet addresses and changes nothing else; for locally generated packets, whose
/// TTL is new. See [`forward_ip4`] for arguments and result.
#[inline(always)]
pub fn set_ethernet_addresses(head: &mut [u8], l3_off: usize, hop: &NextHop) -> bool {
    let Some(header) = headers::<ETHERNET>(head, l3_off) else { return false };
    header[..ADDRESSES].copy_from_slice(&hop.header);
    true
}

/// The Ethernet header and the bytes behind it, `N` bytes in all.
#[inline(always)]
fn headers<const N: usize>(head: &mut [u8], l3_off: usize) -> Option<&mut [u8; N]> {
    head.get_mut(l3_off.checked_sub(ETHERNET)?..)?.first_chunk_mut()
}

#[cfg(test)]
mod tests;
