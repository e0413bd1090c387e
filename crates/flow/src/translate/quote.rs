//! The packet that an ICMP error quotes.

use mmb_packet::{Kind, Meta, flags};

use crate::{Key, parse_key};

/// A packet in an ICMP error: who sent it, and where it stands.
#[derive(Clone, Copy, Debug)]
pub struct QuotedPacket {
    /// Its key, as it was on the wire of the router that complains. It went the way opposite to the error's: the error
    /// belongs to the session and direction that the reverse of this key finds.
    pub key: Key,
    /// Where its headers stand in the error, and where it ends there.
    pub(super) meta: Meta,
}

/// The packet that an ICMP error quotes: type 3, 4, 5, 11, 12, or ICMPv6 type 1 to 4.
///
/// `head` is what [`mmb_packet::parse`] saw, and `meta` what it found. `None` for other packets, and if the quotation
/// cannot be that of a packet of a session: it has not all of the network header and eight bytes behind it (RFC 792), is
/// an ICMP error itself or a fragment other than the first, or the error goes to somebody else than who sent it.
pub fn parse_quote(head: &[u8], meta: &Meta) -> Option<QuotedPacket> {
    let l4 = usize::from(meta.l4_off);
    let icmp = bytes::<8>(head, l4)?;
    // Where multi-part messages (RFC 4884, section 4) say how long the quotation is, in units of how many bytes.
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
/// Fewest bytes of a quotation whose length is given (RFC 4884, section 4); less is not meant as a length.
const LEAST_MULTI_PART: usize = 128;
/// What a session needs to see of a transport header.
const LEAST: usize = 8;

fn bytes<const N: usize>(head: &[u8], at: usize) -> Option<&[u8; N]> {
    head.get(at..)?.first_chunk()
}

fn be16(head: &[u8], at: usize) -> Option<u16> {
    bytes(head, at).map(|word| u16::from_be_bytes(*word))
}

/// Metadata of the quoted packet; `None` if its transport header should be there and is not.
fn describe(l3: u8, at: usize, proto: u8, l4: usize, end: usize, flags: u8) -> Option<Meta> {
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
    describe(Kind::IP4, at, ip[9], at + header, packet.len().min(at + total), 0)
}

/// Extension headers are walked as [`mmb_packet::parse_ip6`] does it, but in what there is of the packet.
fn ip6(packet: &[u8], at: usize) -> Option<Meta> {
    let ip = bytes::<40>(packet, at)?;
    let end = packet.len().min(at + 40 + usize::from(be16(packet, at + 4)?));
    let (mut proto, mut l4, mut flags) = (ip[6], at + 40, 0);
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
            flags |= flags::ROUTED;
        }
        (proto, l4) = (header[0], l4 + length);
    }
    describe(Kind::IP6, at, proto, l4, end, flags)
}

#[cfg(test)]
mod tests {
    use mmb_packet::build::{Extension, Frame, Icmp, Ip4, Ip6, Transport, Udp};
    use mmb_packet::parse;

    use super::*;

    const SENDER: [u8; 4] = [10, 0, 0, 1];
    const OTHER: [u8; 4] = [10, 0, 0, 2];

    fn four(transport: impl Into<Transport>) -> Vec<u8> {
        Frame::new(Ip4::new(SENDER, OTHER), transport).payload([7; 40]).build()[14..].to_vec()
    }

    fn six(extension: Extension) -> Vec<u8> {
        let ip = Ip6::new([1; 16], [2; 16]).with([extension]);
        Frame::new(ip, Udp::new(1, 2)).payload([7; 40]).build()[14..].to_vec()
    }

    /// The same with one byte changed.
    fn with(mut packet: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
        packet[at] = byte;
        packet
    }

    fn found(frame: Vec<u8>) -> bool {
        let mut meta = Meta::default();
        assert_eq!(parse(&frame, frame.len(), &mut meta), Ok(()));
        parse_quote(&frame, &meta).is_some()
    }

    fn found4(kind: u8, packet: &[u8]) -> bool {
        found(Frame::new(Ip4::new(OTHER, SENDER), Icmp::new(kind)).payload(packet).build())
    }

    fn found6(kind: u8, packet: &[u8]) -> bool {
        found(Frame::new(Ip6::new([2; 16], [1; 16]), Icmp::new(kind)).payload(packet).build())
    }

    #[test]
    fn only_errors_quote() {
        let skipped = Extension::Plain { number: 60, body: vec![0; 6] };
        let (packet, packet6) = (four(Udp::new(1, 2)), six(skipped));
        for kind in 0..=255 {
            assert_eq!(found4(kind, &packet), matches!(kind, 3 | 4 | 5 | 11 | 12), "{kind}");
            assert_eq!(found6(kind, &packet6), matches!(kind, 1..=4), "{kind}");
        }
    }

    #[test]
    fn eight_bytes_of_a_transport_header_are_needed() {
        for (transport, least) in
            [(Transport::from(Udp::new(1, 2)), 28), (Icmp::new(8).into(), 28), (Transport::Raw(47), 20)]
        {
            let packet = four(transport);
            (0..packet.len()).for_each(|length| assert_eq!(found4(3, &packet[..length]), length >= least));
        }
        let packet = six(Extension::Fragment { offset: 0, more: true, id: 1 });
        (0..packet.len()).for_each(|length| assert_eq!(found6(3, &packet[..length]), length >= 56));
        // Behind the packet's own end lies something else.
        let [short, short6] = [with(four(Udp::new(1, 2)), 3, 27), with(packet, 5, 15)];
        assert!(!found4(3, &short) && !found6(3, &short6));
    }

    #[test]
    fn what_cannot_belong_to_a_session_is_not_found() {
        let packet = four(Udp::new(1, 2));
        assert!(!found4(3, &with(packet.clone(), 0, 0x55)), "version 5");
        assert!(!found4(3, &with(packet.clone(), 0, 0x44)), "header of 16 bytes");
        assert!(!found4(3, &with(packet.clone(), 7, 1)), "a later fragment");
        assert!(!found4(3, &with(packet, 15, 9)), "somebody else sent it");
        for kind in [3, 4, 5, 11, 12] {
            assert!(!found4(3, &four(Icmp::new(kind))), "an error about an error");
        }
        let packet = six(Extension::Fragment { offset: 1, more: true, id: 1 });
        assert!(!found6(3, &packet), "a later fragment");
        let packet = six(Extension::Plain { number: 60, body: vec![0; 6] });
        assert!(!found6(3, &with(packet.clone(), 0, 0x45)), "version 4");
        assert!(!found6(3, &with(packet.clone(), 23, 9)), "somebody else sent it");
        assert!(!found6(3, &with(packet, 41, 9)), "an extension header longer than the packet");
    }
}
