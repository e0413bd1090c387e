//! What the headers of a fragment say: its datagram, and its part of it.

use mmb_packet::{Kind, Meta, PacketFlags};

/// What identifies a datagram: the fields that its fragments share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct DatagramKey {
    pub source: [u8; 16],
    pub destination: [u8; 16],
    pub id: [u8; 4],
    /// IP version, and [`PacketFlags::LOOPED`] of a packet that is looked up again.
    pub version: u8,
    /// Over IPv4 the protocol.
    pub proto: u8,
}

/// The part of a datagram that a fragment carries, in units of 8 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    pub start: u16,
    /// End, rounded up.
    pub end: u16,
    /// No more fragments follow.
    pub is_last: bool,
}

/// A fragment of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    pub(super) datagram: DatagramKey,
    /// None if no receiver can reassemble the fragment: it is empty, not a multiple of 8 bytes long although
    /// more follow, or ends beyond the maximum length of a packet.
    pub(super) extent: Option<Extent>,
}

/// Maximum length of a reassembled packet without its header, in bytes.
const MAX_LENGTH: usize = 65_535;
/// "More fragments" of IPv4, and its fragment offset.
const MORE: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;
/// Numbers of IPv6 extension headers.
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
/// Bytes of the fixed IPv6 header.
const FIXED: usize = 40;

impl Fragment {
    /// Reads the headers of a fragment. None if the packet is not a fragment.
    pub fn of(head: &[u8], meta: &Meta) -> Option<Fragment> {
        if !meta.flags.contains(PacketFlags::FRAGMENT) {
            return None;
        }
        let ip = head.get(usize::from(meta.l3_off)..)?;
        let version = meta.kind.l3() | (meta.flags & PacketFlags::LOOPED).bits();
        let mut datagram = DatagramKey { version, ..DatagramKey::default() };
        if meta.kind.l3() == Kind::IP4 {
            let fixed: &[u8; 20] = ip.first_chunk()?;
            datagram.source[..4].copy_from_slice(&fixed[12..16]);
            datagram.destination[..4].copy_from_slice(&fixed[16..20]);
            datagram.id[..2].copy_from_slice(&fixed[4..6]);
            datagram.proto = fixed[9];
            let (total, control) = (be16(fixed, 2), be16(fixed, 6));
            let length = usize::from(total).checked_sub(usize::from(fixed[0] & 15) * 4)?;
            return Some(Fragment {
                datagram,
                extent: Extent::new(control & OFFSET, length, control & MORE != 0),
            });
        }
        let fixed: &[u8; FIXED] = ip.first_chunk()?;
        datagram.source.copy_from_slice(&fixed[8..24]);
        datagram.destination.copy_from_slice(&fixed[24..40]);
        let (header, at) = fragment_header6(ip)?;
        datagram.id.copy_from_slice(&header[4..]);
        let control = be16(header, 2);
        let length = (FIXED + usize::from(be16(fixed, 4))).checked_sub(at)?;
        Some(Fragment { datagram, extent: Extent::new(control >> 3, length, control & 1 != 0) })
    }
}

impl Extent {
    /// `length`: bytes of the fragment's data.
    fn new(start: u16, length: usize, more: bool) -> Option<Extent> {
        let is_impossible = length == 0
            || (more && !length.is_multiple_of(8))
            || usize::from(start) * 8 + length > MAX_LENGTH;
        let end = start + length.div_ceil(8) as u16;
        (!is_impossible).then_some(Extent { start, end, is_last: !more })
    }
}

fn be16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The fragment header of a parsed IPv6 packet, and the offset behind it. Each step of the walk advances.
fn fragment_header6(ip: &[u8]) -> Option<(&[u8; 8], usize)> {
    let (mut next, mut at) = (*ip.get(6)?, FIXED);
    loop {
        let header: &[u8; 8] = ip.get(at..)?.first_chunk()?;
        let length = usize::from(header[1]);
        at += match next {
            FRAGMENT => return Some((header, at + 8)),
            AUTHENTICATION => (length + 2) * 4,
            _ => (length + 1) * 8,
        };
        next = header[0];
    }
}
