//! Payloads: the bytes behind a header.

use crate::bytes;
use crate::meta::{Kind, Meta};

/// Offset of the byte with the TCP data offset.
const DATA_OFFSET_AT: usize = 12;

/// A payload that rules can match on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PayloadLayer {
    /// Behind the IPv4 header and its options.
    Ip,
    /// Behind the fixed IPv6 header: extension headers included.
    Ip6,
    /// Behind the first eight bytes of ICMP.
    Icmp,
    /// Behind the first eight bytes of ICMPv6.
    Icmp6,
    /// Behind the UDP header, up to the end of UDP or IP, whichever is first.
    Udp,
    /// Behind the TCP header and its options.
    Tcp,
}

/// Returns the bytes of a payload as far as they lie in `head`, up to the end of the IP packet.
///
/// Returns `None` if the packet has no such header, or no byte behind it. `head` and `meta` are those of
/// [`crate::parse`]. `head` must hold the whole packet for the payload to be complete.
pub fn payload<'a>(head: &'a [u8], meta: &Meta, which: PayloadLayer) -> Option<&'a [u8]> {
    let (l3, l4) = (usize::from(meta.l3_off), usize::from(meta.l4_off));
    let (header, kind) = match which {
        PayloadLayer::Ip => (meta.kind.l3(), Kind::IP4),
        PayloadLayer::Ip6 => (meta.kind.l3(), Kind::IP6),
        PayloadLayer::Icmp => (meta.kind.l4(), Kind::ICMP),
        PayloadLayer::Icmp6 => (meta.kind.l4(), Kind::ICMP6),
        PayloadLayer::Udp => (meta.kind.l4(), Kind::UDP),
        PayloadLayer::Tcp => (meta.kind.l4(), Kind::TCP),
    };
    if header != kind {
        return None;
    }
    let end = ip_end(head, meta)?;
    let (start, end) = match which {
        PayloadLayer::Ip => (l3 + usize::from(head.get(l3)? & 0x0f) * 4, end),
        PayloadLayer::Ip6 => (l3 + 40, end),
        PayloadLayer::Icmp | PayloadLayer::Icmp6 => (l4 + 8, end),
        PayloadLayer::Udp => {
            (l4 + 8, end.min(l4 + usize::from(u16::from_be_bytes(*bytes::at(head, l4 + 4)?))))
        }
        PayloadLayer::Tcp => (l4 + usize::from(head.get(l4 + DATA_OFFSET_AT)? >> 4) * 4, end),
    };
    head.get(start..end.min(head.len())).filter(|payload| !payload.is_empty())
}

/// End of the IP packet, from the header because `meta.end` saturates.
fn ip_end(head: &[u8], meta: &Meta) -> Option<usize> {
    let l3 = usize::from(meta.l3_off);
    let (length_at, header) = if meta.kind.l3() == Kind::IP4 { (2, 0) } else { (4, 40) };
    let length = u16::from_be_bytes(*bytes::at(head, l3 + length_at)?);
    Some(l3 + header + usize::from(length))
}

#[cfg(test)]
mod tests;
