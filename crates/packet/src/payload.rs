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
mod tests {
    use super::*;
    use crate::build::{Extension, Frame, Icmp, Ip4, Ip6, Net, Tcp, Transport, Udp};
    use crate::parse;

    fn of(frame: &[u8], which: PayloadLayer) -> Option<Vec<u8>> {
        let mut meta = Meta::default();
        assert_eq!(parse(frame, frame.len(), &mut meta), Ok(()));
        payload(frame, &meta, which).map(<[u8]>::to_vec)
    }

    fn ip4() -> Ip4 {
        Ip4 { options: vec![1; 8], ..Ip4::new([10, 0, 0, 1], [10, 0, 0, 2]) }
    }

    fn frame(net: impl Into<Net>, transport: impl Into<Transport>, payload: &[u8]) -> Vec<u8> {
        Frame::new(net, transport).payload(payload).pad_to(100).build()
    }

    #[test]
    fn payloads_begin_behind_their_headers() {
        let tcp = Tcp { options: vec![1; 12], ..Tcp::new(1, 2) };
        let segment = frame(ip4(), tcp.clone(), b"GET /");
        assert_eq!(of(&segment, PayloadLayer::Tcp), Some(b"GET /".to_vec()));
        assert_eq!(of(&segment, PayloadLayer::Ip), Some(segment[42..42 + 37].to_vec()));
        assert_eq!(
            [PayloadLayer::Ip6, PayloadLayer::Udp, PayloadLayer::Icmp].map(|which| of(&segment, which)),
            [const { None }; 3]
        );
        let ip6 = Ip6::new([1; 16], [2; 16]).with([Extension::Plain { number: 0, body: vec![] }]);
        let segment = frame(ip6.clone(), tcp, b"GET /");
        assert_eq!(of(&segment, PayloadLayer::Tcp), Some(b"GET /".to_vec()));
        assert_eq!(
            of(&segment, PayloadLayer::Ip6),
            Some(segment[54..54 + 45].to_vec()),
            "extension headers included"
        );
        assert_eq!(of(&frame(ip4(), Icmp::new(8), b"ping"), PayloadLayer::Icmp), Some(b"ping".to_vec()));
        let echo = frame(ip6, Icmp::new(128), b"ping");
        assert_eq!(
            (of(&echo, PayloadLayer::Icmp6), of(&echo, PayloadLayer::Icmp)),
            (Some(b"ping".to_vec()), None)
        );
    }

    #[test]
    fn empty_payloads_are_none() {
        assert_eq!(of(&frame(ip4(), Tcp::new(1, 2), b""), PayloadLayer::Tcp), None, "padding does not count");
        assert_eq!(of(&frame(ip4(), Udp::new(1, 2), b""), PayloadLayer::Udp), None);
        let bare = frame(ip4(), Transport::Raw(47), b"");
        assert_eq!((of(&bare, PayloadLayer::Ip), of(&bare, PayloadLayer::Tcp)), (None, None));
    }

    #[test]
    fn udp_payload_ends_at_the_udp_length() {
        let mut datagram = frame(ip4(), Udp::new(1, 2), b"abcdef");
        for (length, expected) in [(8, None), (9, Some(b"a".to_vec())), (14, Some(b"abcdef".to_vec()))] {
            datagram[47] = length;
            assert_eq!(of(&datagram, PayloadLayer::Udp), expected);
        }
        datagram[47] = 200;
        assert_eq!(of(&datagram, PayloadLayer::Udp), Some(b"abcdef".to_vec()), "more than IP has");
    }

    #[test]
    fn fragments_have_only_the_network_payload() {
        let later = Ip4 { fragment_offset: 8, ..ip4() };
        let fragment = frame(later, Transport::Raw(6), b"GET /");
        assert_eq!(
            (of(&fragment, PayloadLayer::Ip), of(&fragment, PayloadLayer::Tcp)),
            (Some(b"GET /".to_vec()), None)
        );
    }

    /// The end offset of the longest packet does not fit 16 bits behind an Ethernet header.
    #[test]
    fn the_longest_packet_has_its_whole_payload() {
        let long = Frame::new(ip4(), Udp::new(1, 2)).payload(vec![7; 65_535 - 28 - 8]).build();
        assert_eq!(of(&long, PayloadLayer::Udp).map(|bytes| bytes.len()), Some(65_535 - 28 - 8));
        let mut meta = Meta::default();
        assert_eq!(parse(&long, long.len(), &mut meta), Ok(()));
        assert_eq!(
            payload(&long[..60], &meta, PayloadLayer::Udp).map(<[u8]>::len),
            Some(60 - 50),
            "what is at hand"
        );
    }
}
