//! The packet that an ICMP error quotes.

use mmb_packet::{Kind, Meta, PacketFlags};

use super::delta::Delta;
use super::headers::{Zero, update_checksum};
use crate::{Key, parse_key};

/// A packet quoted by an ICMP error.
#[derive(Clone, Copy, Debug)]
pub struct QuotedPacket {
    /// The key of the quoted packet, as the router saw it. The quoted packet travelled opposite to the error,
    /// so the reverse of this key identifies the error's session and direction.
    pub key: Key,
    /// Offsets of the quoted headers in the error, and the end of the quoted packet.
    pub(super) meta: Meta,
}

impl QuotedPacket {
    /// TCP: the sequence number of the segment.
    pub fn sequence(&self, head: &[u8]) -> Option<u32> {
        let at = usize::from(self.meta.l4_off) + 4;
        (self.meta.kind.l4() == Kind::TCP).then(|| bytes(head, at).map(|seq| u32::from_be_bytes(*seq)))?
    }

    /// Writes the sequence number of a quoted TCP segment into the error with these headers. Corrects the
    /// checksum of the error. Does nothing for other protocols.
    pub fn set_sequence(&self, head: &mut [u8], error: &Meta, sequence: u32) {
        if self.sequence(head).is_some() {
            let delta = Delta::put(head, usize::from(self.meta.l4_off) + 4, sequence.to_be_bytes());
            update_checksum(head, usize::from(error.l4_off) + 2, delta, Zero::Plain);
        }
    }

    /// Returns the MTU of the link that the quoted packet did not fit (RFC 1191, section 4; RFC 8201). None:
    /// the error is another one, or does not tell.
    pub fn link_mtu(&self, head: &[u8], error: &Meta) -> Option<u32> {
        let icmp = bytes::<8>(head, usize::from(error.l4_off))?;
        let mtu = match (error.kind.0, icmp[0], icmp[1]) {
            (IP4_ICMP, 3, 4) => u32::from(u16::from_be_bytes([icmp[6], icmp[7]])),
            (IP6_ICMP, 2, _) => u32::from_be_bytes([icmp[4], icmp[5], icmp[6], icmp[7]]),
            _ => 0,
        };
        (mtu != 0).then_some(mtu)
    }

    /// Returns how many bytes behind the network header that link carries.
    pub fn link_room(&self, head: &[u8], error: &Meta) -> Option<u32> {
        let header = u32::from(self.meta.l4_off.checked_sub(self.meta.l3_off)?);
        self.link_mtu(head, error)?.checked_sub(header)
    }

    /// Whether the length of a UDP datagram is that of its IP packet. True for other protocols and for
    /// fragments.
    pub fn has_matching_length(&self, head: &[u8]) -> bool {
        let (l3, l4) = (usize::from(self.meta.l3_off), usize::from(self.meta.l4_off));
        let payload = match self.meta.kind.0 {
            IP4_UDP if be16(head, l3 + 6).is_some_and(|word| word & MORE_FRAGMENTS == 0) => {
                be16(head, l3 + 2).map(|total| usize::from(total) + l3)
            }
            IP6_UDP if l4 == l3 + 40 => be16(head, l3 + 4).map(|payload| usize::from(payload) + l4),
            _ => return true,
        };
        let length = be16(head, l4 + 4).map(|length| usize::from(length) + l4);
        length.is_some() && payload == length
    }
}

/// Returns the packet that an ICMP error quotes: types 3, 4, 5, 11, 12, or ICMPv6 types 1 to 4.
///
/// `head` is what [`mmb_packet::parse`] read, and `meta` its result. `None` for other packets, and if the
/// quoted packet cannot belong to a session: it lacks part of the network header or of the eight bytes after
/// it (RFC 792), is an ICMP error itself or a later fragment, or the destination of the error is not its
/// source.
pub fn parse_quote(head: &[u8], meta: &Meta) -> Option<QuotedPacket> {
    let l4 = usize::from(meta.l4_off);
    let icmp = bytes::<8>(head, l4)?;
    // Length of the quotation in multi-part messages (RFC 4884, section 4), and its unit in bytes.
    let length = match (meta.kind.0, icmp[0]) {
        (IP4_ICMP, 4 | 5) | (IP6_ICMP, 2 | 4) => 0,
        (IP4_ICMP, 3 | 11 | 12) => usize::from(icmp[5]) * 4,
        (IP6_ICMP, 1 | 3) => usize::from(icmp[4]) * 8,
        _ => return None,
    };
    let at = l4 + 8;
    let end = usize::from(meta.end).min(head.len());
    let end = if length < LEAST_MULTI_PART { end } else { end.min(at + length) };
    let packet = head.get(..end)?;
    let quoted = if meta.kind.l3() == Kind::IP4 { ip4(packet, at)? } else { ip6(packet, at)? };
    let key = parse_key(packet, &quoted).ok()?;
    let goes_to_sender = if meta.kind.l3() == Kind::IP4 {
        bytes::<4>(head, usize::from(meta.l3_off) + 16).is_some_and(|to| key.source.starts_with(to))
    } else {
        bytes::<16>(head, usize::from(meta.l3_off) + 24) == Some(&key.source)
    };
    goes_to_sender.then_some(QuotedPacket { key, meta: quoted })
}

const IP4_ICMP: u8 = Kind::IP4 | Kind::ICMP;
const IP6_ICMP: u8 = Kind::IP6 | Kind::ICMP6;
const IP4_UDP: u8 = Kind::IP4 | Kind::UDP;
const IP6_UDP: u8 = Kind::IP6 | Kind::UDP;
/// Flag of the fragment offset word (RFC 791, 3.1).
const MORE_FRAGMENTS: u16 = 0x2000;
/// Minimum length of a quotation with a length field (RFC 4884, section 4). Smaller values are not lengths.
const LEAST_MULTI_PART: usize = 128;
/// Bytes of the transport header that a session needs.
const LEAST: usize = 8;

fn bytes<const N: usize>(head: &[u8], at: usize) -> Option<&[u8; N]> {
    head.get(at..)?.first_chunk()
}

fn be16(head: &[u8], at: usize) -> Option<u16> {
    bytes(head, at).map(|word| u16::from_be_bytes(*word))
}

/// Metadata of the quoted packet. `None` if its transport header is missing.
fn describe(l3: u8, at: usize, proto: u8, l4: usize, end: usize, flags: PacketFlags) -> Option<Meta> {
    let transport = match (l3, proto) {
        (_, 6) => Kind::TCP,
        (_, 17) => Kind::UDP,
        (Kind::IP4, 1) => Kind::ICMP,
        (Kind::IP6, 58) => Kind::ICMP6,
        _ => Kind::L4_NONE,
    };
    if l4 > end || (transport != Kind::L4_NONE && l4 + LEAST > end) {
        return None;
    }
    Some(Meta {
        l3_off: u16::try_from(at).ok()?,
        l4_off: u16::try_from(l4).ok()?,
        end: u16::try_from(end).ok()?,
        kind: Kind(l3 | transport),
        proto,
        flags,
        ..Meta::default()
    })
}

fn ip4(packet: &[u8], at: usize) -> Option<Meta> {
    let ip = bytes::<20>(packet, at)?;
    let (header, total) = (usize::from(ip[0] & 0x0f) * 4, usize::from(be16(packet, at + 2)?));
    let is_later = be16(packet, at + 6)? & 0x1fff != 0;
    if ip[0] >> 4 != 4 || header < 20 || is_later {
        return None;
    }
    describe(Kind::IP4, at, ip[9], at + header, packet.len().min(at + total), PacketFlags::empty())
}

/// Walks the extension headers as [`mmb_packet::parse_ip6`] does, within the part that is quoted.
fn ip6(packet: &[u8], at: usize) -> Option<Meta> {
    let ip = bytes::<40>(packet, at)?;
    let end = packet.len().min(at + 40 + usize::from(be16(packet, at + 4)?));
    let (mut proto, mut l4, mut flags) = (ip[6], at + 40, PacketFlags::empty());
    if ip[0] >> 4 != 6 {
        return None;
    }
    while matches!(proto, 0 | 43 | 44 | 51 | 60 | 135 | 139 | 140) {
        let header = bytes::<8>(packet, l4)?;
        let length = match proto {
            44 if be16(packet, l4 + 2)? >> 3 != 0 => return None,
            44 => 8,
            51 => (usize::from(header[1]) + 2) * 4,
            _ => (usize::from(header[1]) + 1) * 8,
        };
        if proto == 43 && header[3] != 0 {
            flags |= PacketFlags::ROUTED;
        }
        (proto, l4) = (header[0], l4 + length);
    }
    describe(Kind::IP6, at, proto, l4, end, flags)
}

#[cfg(test)]
mod tests;
