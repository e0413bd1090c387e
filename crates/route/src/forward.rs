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
mod tests {
    use mmb_packet::build::{Frame, Ip4, Ip6, Udp};
    use mmb_packet::checksum::{fold, sum};
    use proptest::prelude::*;

    use super::*;

    const HOP: NextHop = NextHop {
        header: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
        interface: 0,
        first: 0,
        members: 0,
        port: 0,
        mtu: 0,
        kind: crate::NextHopKind::Forward,
        gateway: None,
        neighbor_stale: false,
    };

    proptest! {
        #[test]
        fn ip4_equals_the_builders_frame(src: [u8; 4], dst: [u8; 4], ttl in 1u8.., id: u16, tos: u8) {
            let ip = |ttl| Ip4 { ttl, id, tos, ..Ip4::new(src, dst) };
            let mut frame = Frame::new(ip(ttl), Udp::new(1, 2)).build();
            let after = Frame::new(ip(ttl - 1), Udp::new(1, 2)).build();
            prop_assert!(forward_ip4(&mut frame, 14, &HOP));
            prop_assert_eq!(&frame[..12], &HOP.header[..]);
            prop_assert_eq!(&frame[12..], &after[12..]);
        }

        #[test]
        fn an_invalid_checksum_keeps_its_difference(header: [u8; 20]) {
            prop_assume!(header[8] > 0 && header[0] > 0);
            let mut frame = [&[0; 14][..], &header].concat();
            forward_ip4(&mut frame, 14, &HOP);
            prop_assert_eq!(fold(sum(&frame[14..], 0)) % 0xffff, fold(sum(&header, 0)) % 0xffff);
        }
    }

    /// For every possible header checksum, the update equals a recomputation.
    #[test]
    fn every_checksum() {
        for id in 0..=u16::MAX {
            let ip = |ttl| Ip4 { ttl, id, ..Ip4::new([10, 0, 0, 1], [192, 0, 2, 9]) };
            let mut frame = Frame::new(ip(64), Udp::new(1, 2)).build();
            forward_ip4(&mut frame, 14, &HOP);
            assert_eq!(frame[14..34], Frame::new(ip(63), Udp::new(1, 2)).build()[14..34], "id {id}");
        }
    }

    #[test]
    fn ip6_hop_limit_is_decremented() {
        let ip = |hop_limit| Ip6 { hop_limit, ..Ip6::new([1; 16], [2; 16]) };
        let mut frame = Frame::new(ip(255), Udp::new(1, 2)).build();
        assert!(forward_ip6(&mut frame, 14, &HOP));
        assert_eq!(frame[12..], Frame::new(ip(254), Udp::new(1, 2)).build()[12..]);
        assert_eq!(frame[..12], HOP.header);
        let before = frame.clone();
        assert!(set_ethernet_addresses(&mut frame, 14, &NextHop::default()));
        assert_eq!((&frame[..12], &frame[12..]), (&[0; 12][..], &before[12..]));
    }

    #[test]
    fn short_frames_are_unchanged() {
        let mut short = [7; 33];
        assert!(!forward_ip4(&mut short, 14, &HOP) && !forward_ip4(&mut short, 13, &HOP));
        assert!(!forward_ip6(&mut [7; 53], 14, &HOP) && !forward_ip4(&mut short, usize::MAX, &HOP));
        assert_eq!(short, [7; 33]);
        assert!(forward_ip4(&mut [7; 34], 14, &HOP) && forward_ip6(&mut [7; 54], 14, &HOP));
    }
}
