//! Ethernet header and VLAN tags.

use crate::bytes;

/// Ethertype of IPv4.
pub const ETHERTYPE_IP4: u16 = 0x0800;
/// Ethertype of IPv6.
pub const ETHERTYPE_IP6: u16 = 0x86dd;

/// Maximum number of VLAN tags that the parser skips.
const MAX_TAGS: usize = 4;
const TYPE_OFF: usize = 12;
const HEADER: u16 = 14;
const TAG: u16 = 4;

/// The end of the Ethernet header and its tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct L2 {
    /// Ethertype, host order; 0 if the frame ends before it. A value below 0x600 is an IEEE 802.3 length.
    pub ethertype: u16,
    /// Offset of the network header in bytes; never past the frame's end.
    pub l3_off: u16,
}

/// Parses the Ethernet header and up to four VLAN tags (IEEE 802.1Q 0x8100, 802.1ad 0x88a8, 0x9100 of older
/// switches).
///
/// A frame that is too short yields ethertype 0, that is, not IP. A frame with more tags yields the ethertype
/// of a tag ([`is_vlan_tag`]).
#[inline]
pub fn parse_l2(frame: &[u8]) -> L2 {
    match bytes::at::<2>(frame, TYPE_OFF) {
        Some(&[0x08, 0x00]) => L2 { ethertype: ETHERTYPE_IP4, l3_off: HEADER },
        Some(&[hi, lo]) => behind_tags(frame, u16::from_be_bytes([hi, lo])),
        None => L2 { ethertype: 0, l3_off: bytes::saturate(frame.len()) },
    }
}

/// Whether an ethertype is that of a VLAN tag.
#[inline]
pub fn is_vlan_tag(ethertype: u16) -> bool {
    matches!(ethertype, 0x8100 | 0x88a8 | 0x9100)
}

fn behind_tags(frame: &[u8], first: u16) -> L2 {
    let (mut ethertype, mut l3_off) = (first, HEADER);
    for _ in 0..MAX_TAGS {
        if !is_vlan_tag(ethertype) {
            break;
        }
        let Some(&[_, _, hi, lo]) = bytes::at(frame, usize::from(l3_off)) else {
            return L2 { ethertype: 0, l3_off };
        };
        ethertype = u16::from_be_bytes([hi, lo]);
        l3_off += TAG;
    }
    L2 { ethertype, l3_off }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(types: &[u16]) -> Vec<u8> {
        let mut f = vec![0xee; 12];
        for (i, t) in types.iter().enumerate() {
            if i > 0 {
                f.extend([0x20, 0x05]);
            }
            f.extend(t.to_be_bytes());
        }
        f
    }

    #[test]
    fn tags_are_looked_behind() {
        assert_eq!(parse_l2(&frame(&[0x0800])), L2 { ethertype: 0x0800, l3_off: 14 });
        assert_eq!(parse_l2(&frame(&[0x86dd])), L2 { ethertype: 0x86dd, l3_off: 14 });
        assert_eq!(parse_l2(&frame(&[0x0806])), L2 { ethertype: 0x0806, l3_off: 14 });
        assert_eq!(parse_l2(&frame(&[0x8100, 0x0800])), L2 { ethertype: 0x0800, l3_off: 18 });
        assert_eq!(parse_l2(&frame(&[0x88a8, 0x8100, 0x86dd])), L2 { ethertype: 0x86dd, l3_off: 22 });
        assert_eq!(
            parse_l2(&frame(&[0x9100, 0x9100, 0x8100, 0x8100, 0x0800])),
            L2 { ethertype: 0x0800, l3_off: 30 }
        );
    }

    #[test]
    fn five_tags_are_too_many() {
        let f = frame(&[0x8100, 0x8100, 0x8100, 0x8100, 0x8100, 0x0800]);
        assert_eq!(parse_l2(&f), L2 { ethertype: 0x8100, l3_off: 30 });
        let mut meta = crate::Meta::default();
        assert_eq!(crate::parse(&f, f.len(), &mut meta), Err(crate::DropReason::VlanDepth));
        assert_eq!((meta.kind, meta.l3_off, meta.end), (crate::Kind(0), 30, f.len() as u16));
    }

    #[test]
    fn short_frames_have_no_ethertype() {
        let f = frame(&[0x8100, 0x8100, 0x0800]);
        for n in 0..f.len() {
            let l2 = parse_l2(&f[..n]);
            assert_eq!(l2.ethertype, 0, "{n} bytes");
            assert!(usize::from(l2.l3_off) <= n);
        }
    }

    #[test]
    fn a_length_is_not_a_protocol() {
        assert_eq!(parse_l2(&frame(&[0x0026])).ethertype, 0x0026);
    }
}
