//! IPv4 header (RFC 791).

use crate::meta::{Kind, Meta, flags};
use crate::transport::{self, HeaderPrefix, ParsedHeaders, TransportHeader};
use crate::{DropReason, bytes, hash};

const FIXED: usize = 20;
/// Mask of "more fragments" and the fragment offset.
const FRAGMENT_MASK: u16 = 0x3fff;
/// Mask over the first eight bytes: version, header length, "more fragments" and the fragment offset.
const PLAIN_MASK: u64 = 0xff3f_0000_0000_00ff;
/// Value of the fragment field with "more fragments" set and offset 0.
const MORE: u16 = 0x2000;

/// Parses the IPv4 header at `meta.l3_off` into `meta`; `meta.ethertype` and `meta.l3_off` are set by the
/// caller.
///
/// `head` is the contiguous beginning of the frame, `frame_len` the length of the whole frame in bytes. The
/// function clears the drop reason and leaves the edit list and the output port unchanged.
///
/// The transport nibble of `meta.kind` is set if the fragment offset is 0, the whole fixed header lies
/// inside the IP packet, and its length field is valid. A TCP data offset must be at least 5 words and end
/// inside the packet; a UDP length must be at least 8.
///
/// # Errors
/// Checked in this order; `meta.kind` is 0 after an error:
/// * [`DropReason::Ip4Truncated`]: the frame has fewer than 20 bytes at the offset;
/// * [`DropReason::Ip4Malformed`]: the version is not 4, or the header length is under 20 or over the total
///   length;
/// * [`DropReason::Ip4Truncated`]: the frame is shorter than the total length;
/// * [`DropReason::HeaderTooLong`]: the IP or transport header, with options, continues behind `head`.
#[inline]
pub fn parse_ip4(head: &[u8], frame_len: usize, meta: &mut Meta) -> Result<(), DropReason> {
    if let Some(headers) = parse_plain_ip4(head, usize::from(meta.l3_off), frame_len, meta) {
        meta.flow_hash = headers.flow_hash();
        return Ok(());
    }
    let found = parse_general(head, frame_len, meta);
    if found.is_err() {
        meta.set_no_ip(frame_len);
    }
    found
}

/// Parses the plain case of [`parse_ip4`] without branches: no options, no fragment, a valid TCP or UDP
/// header.
///
/// Returns `None` and writes nothing for any other packet; the caller then uses [`parse_ip4`]. The flow
/// hash in `meta` is set to 0; [`ParsedHeaders::flow_hash`] computes it. `l3` equals `meta.l3_off`; it is
/// an argument so that the caller can pass a constant.
#[inline(always)]
pub fn parse_plain_ip4(
    head: &[u8],
    l3: usize,
    frame_len: usize,
    meta: &mut Meta,
) -> Option<ParsedHeaders<8>> {
    let both = bytes::at::<{ FIXED + 20 }>(head, l3)?;
    let [ip, start]: &[[u8; 20]; 2] = bytemuck::cast_ref(both);
    let ([first, second, addresses], start) = (transport::words(ip), HeaderPrefix::of(start));
    let total = usize::from(u16::from_be((first >> 16) as u16));
    let (l4, end) = (l3 + FIXED, l3 + total);
    if !((first & PLAIN_MASK == 0x45) & (end <= frame_len) & (end >= l4)) {
        return None;
    }
    let proto = (second >> 8) as u8;
    let kind = start.parse(proto, end.min(head.len()) - l4)?;
    let tag = transport::tag(Kind::IP4, kind, proto);
    meta.set_ip(0, l4, end, tag);
    let low = |word: u64| word & 0xffff_ffff;
    Some(ParsedHeaders {
        addresses: addresses.to_le_bytes(),
        ports: (start.first as u32).to_le_bytes(),
        tag,
        tcp_flags: start.tcp_flags(kind),
        tcp_ack: start.tcp_ack(),
        l4: l4 as u16,
        ttl: second as u8,
        sum: low(first) + (first >> 32) + low(second) + low(addresses) + (addresses >> 32),
    })
}

#[inline(never)]
fn parse_general(head: &[u8], frame_len: usize, meta: &mut Meta) -> Result<(), DropReason> {
    let l3 = usize::from(meta.l3_off);
    let Some(ip) = bytes::at::<FIXED>(head, l3) else {
        return Err(if frame_len < l3 + FIXED {
            DropReason::Ip4Truncated
        } else {
            DropReason::HeaderTooLong
        });
    };
    let header = usize::from(ip[0] & 0x0f) * 4;
    let total = usize::from(bytes::be16(ip, 2));
    let (l4, end) = (l3 + header, l3 + total);
    if ip[0] >> 4 != 4 || header < FIXED || total < header {
        return Err(DropReason::Ip4Malformed);
    }
    if end > frame_len {
        return Err(DropReason::Ip4Truncated);
    }
    if l4 > head.len() || u16::try_from(l4).is_err() {
        return Err(DropReason::HeaderTooLong);
    }
    let (found, flags) = match bytes::be16(ip, 6) & FRAGMENT_MASK {
        0 => (transport::parse_transport(&transport::OVER_IP4, ip[9], head, l4, end)?, 0),
        MORE => (transport::parse_transport(&transport::OVER_IP4, ip[9], head, l4, end)?, flags::FRAGMENT),
        _ => (TransportHeader::NONE, flags::FRAGMENT | flags::LATER_FRAGMENT),
    };
    let addresses = transport::words(ip)[2].to_le_bytes();
    let ports = if flags & flags::FRAGMENT == 0 { found.ports } else { [0; 4] };
    let flow_hash = hash::flow_hash4(addresses, ports, ip[9]);
    meta.set_ip(flow_hash, l4, end, transport::tag(Kind::IP4, found.kind, ip[9]) | u32::from(flags) << 16);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{Frame, Icmp, Ip4, Tcp, Udp};
    use crate::{checksum, parse};
    use proptest::prelude::*;

    fn ip() -> Ip4 {
        Ip4::new([10, 0, 0, 1], [10, 0, 0, 2])
    }

    fn outcome(frame: &[u8]) -> Result<(u8, u16, u8), DropReason> {
        let mut m = Meta::default();
        parse(frame, frame.len(), &mut m).map(|()| (m.kind.0, m.l4_off, m.flags))
    }

    /// Returns the frame with one byte changed.
    fn with(mut frame: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
        frame[at] = byte;
        frame
    }

    #[test]
    fn malformed_headers_are_named() {
        let frame = Frame::new(ip(), Udp::new(1, 2)).payload([0; 20]).build();
        assert_eq!(outcome(&with(frame.clone(), 14, 0x55)), Err(DropReason::Ip4Malformed), "version 5");
        assert_eq!(
            outcome(&with(frame.clone(), 14, 0x44)),
            Err(DropReason::Ip4Malformed),
            "4 words of header"
        );
        assert_eq!(outcome(&with(frame.clone(), 17, 19)), Err(DropReason::Ip4Malformed), "total length 19");
        assert_eq!(
            outcome(&with(frame.clone(), 14, 0x4f)),
            Err(DropReason::Ip4Malformed),
            "header over total"
        );
        assert_eq!(outcome(&with(frame.clone(), 16, 1)), Err(DropReason::Ip4Truncated), "total over frame");
        assert_eq!(outcome(&frame[..33]), Err(DropReason::Ip4Truncated), "19 bytes");
        assert_eq!(outcome(&with(frame, 17, 20)), Ok((Kind::IP4, 34, 0)), "header only");
    }

    #[test]
    fn an_error_leaves_no_kind_behind() {
        let frame = Frame::new(ip(), Udp::new(1, 2)).build();
        let mut m = Meta::default();
        assert_eq!(parse(&frame, frame.len(), &mut m), Ok(()));
        assert_eq!(parse(&frame[..40], 40, &mut m), Err(DropReason::Ip4Truncated));
        assert_eq!((m.kind, m.proto, m.flow_hash, m.l4_off, m.end), (Kind(0), 0, 0, 14, 40));
    }

    #[test]
    fn fragments() {
        let piece = |flags, fragment_offset| Ip4 { flags, fragment_offset, ..ip() };
        let first = Frame::new(piece(1, 0), Udp::new(1, 2)).payload([0; 24]).build();
        let later = Frame::new(piece(1, 4), crate::build::Transport::Raw(17)).payload([0; 32]).build();
        let last = Frame::new(piece(0, 8), crate::build::Transport::Raw(17)).payload([0; 9]).build();
        let [whole, reserved] =
            [2, 4].map(|f| Frame::new(piece(f, 0), Udp::new(1, 2)).payload([0; 24]).build());
        let both = flags::FRAGMENT | flags::LATER_FRAGMENT;
        assert_eq!(outcome(&first), Ok((Kind::IP4 | Kind::UDP, 34, flags::FRAGMENT)));
        assert_eq!(outcome(&later), Ok((Kind::IP4, 34, both)));
        assert_eq!(outcome(&last), Ok((Kind::IP4, 34, both)));
        assert_eq!(outcome(&whole), Ok((Kind::IP4 | Kind::UDP, 34, 0)), "don't fragment");
        assert_eq!(outcome(&reserved), Ok((Kind::IP4 | Kind::UDP, 34, 0)), "reserved bit");
        let hash = |frame: &[u8]| {
            let mut m = Meta::default();
            parse(frame, frame.len(), &mut m).map(|()| m.flow_hash)
        };
        assert_eq!(hash(&first), hash(&later), "all fragments of a packet go to one worker");
        assert_eq!(hash(&first), hash(&last));
        assert_ne!(hash(&first), hash(&whole));
    }

    #[test]
    fn a_transport_header_must_be_whole_and_sound() {
        let none = Ok((Kind::IP4, 34, 0));
        let tcp = Frame::new(ip(), Tcp { options: vec![1; 8], ..Tcp::new(1, 2) }).build();
        assert_eq!(outcome(&tcp), Ok((Kind::IP4 | Kind::TCP, 34, 0)));
        assert_eq!(outcome(&with(tcp.clone(), 46, 0x40)), none, "data offset 4");
        assert_eq!(outcome(&with(tcp.clone(), 46, 0x80)), none, "data offset 8 in 28 bytes");
        assert_eq!(outcome(&with(tcp, 17, 39)), none, "19 bytes of TCP");
        let udp = Frame::new(ip(), Udp::new(1, 2)).payload([0; 30]).build();
        assert_eq!(outcome(&with(udp.clone(), 39, 7)), none, "UDP length 7");
        assert_eq!(
            outcome(&with(udp.clone(), 38, 9)),
            Ok((Kind::IP4 | Kind::UDP, 34, 0)),
            "UDP length over IP's"
        );
        assert_eq!(outcome(&with(udp, 17, 27)), none, "7 bytes of UDP");
        let icmp = Frame::new(ip(), Icmp::new(8)).build();
        assert_eq!(outcome(&icmp), Ok((Kind::IP4 | Kind::ICMP, 34, 0)));
        assert_eq!(outcome(&with(icmp.clone(), 17, 27)), none, "7 bytes of ICMP");
        assert_eq!(outcome(&with(icmp, 23, 58)), none, "ICMPv6 over IPv4");
    }

    #[test]
    fn headers_behind_the_head_are_refused() {
        let ip = Ip4 { options: vec![1; 40], ..ip() };
        let frame = Frame::new(ip, Tcp { options: vec![1; 40], ..Tcp::new(1, 2) }).payload([0; 500]).build();
        let mut m = Meta::default();
        for head in 14..14 + 120 {
            assert_eq!(parse(&frame[..head], frame.len(), &mut m), Err(DropReason::HeaderTooLong), "{head}");
        }
        assert_eq!(parse(&frame[..14 + 120], frame.len(), &mut m), Ok(()));
        assert_eq!((m.kind.0, m.l4_off, m.end), (Kind::IP4 | Kind::TCP, 74, 634));
    }

    #[test]
    fn the_end_saturates() {
        let frame = Frame::new(ip(), Udp::new(1, 2)).payload([0; 65_600]).build();
        assert_eq!(frame.len(), 14 + 65_535);
        let mut m = Meta::default();
        assert_eq!(parse(&frame, frame.len(), &mut m), Ok(()));
        assert_eq!((m.kind.0, m.end), (Kind::IP4 | Kind::UDP, u16::MAX));
        m.l3_off = u16::MAX;
        assert_eq!(parse_ip4(&[0x45; 90_000], 90_000, &mut m), Err(DropReason::HeaderTooLong));
    }

    proptest! {
        #[test]
        fn the_plain_parse_agrees_with_the_general_one(
            udp in any::<bool>(),
            payload in 0..40usize,
            hits in prop::collection::vec((14..54usize, any::<u8>()), 0..3),
            head in 34..100usize,
        ) {
            let bare = if udp { Frame::new(ip(), Udp::new(5, 6)) } else { Frame::new(ip(), Tcp::new(5, 6)) };
            let mut frame = bare.payload(vec![0; payload]).pad_to(60).build();
            hits.into_iter().for_each(|(at, byte)| frame[at] = byte);
            let head = &frame[..head.min(frame.len())];
            let mut plain = Meta { l3_off: 14, ..Meta::default() };
            let mut general = plain;
            if let Some(found) = parse_plain_ip4(head, usize::from(plain.l3_off), frame.len(), &mut plain) {
                prop_assert_eq!(parse_general(head, frame.len(), &mut general), Ok(()));
                prop_assert_eq!(std::mem::replace(&mut plain.flow_hash, found.flow_hash()), 0);
                prop_assert_eq!(found.addresses.as_slice(), &frame[26..34]);
                prop_assert!(frame[30..34] == found.destination().to_be_bytes());
                let right = checksum::fold(checksum::sum(&frame[14..34], 0)) == 0xffff;
                prop_assert_eq!(found.is_forwardable(), right && frame[22] > 1);
                transport::tests::agrees(&found, &frame[34..], &general)?;
            }
            prop_assert_eq!(plain, general);
        }
    }
}
