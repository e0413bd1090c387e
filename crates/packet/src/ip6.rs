//! IPv6 header and extension headers (RFC 8200).

use crate::loc::Ip6Ext;
use crate::meta::{Kind, Meta, flags};
use crate::transport::{self, HeaderPrefix, ParsedHeaders, TransportHeader};
use crate::{DropReason, bytes, hash};

const FIXED: usize = 40;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;
const MOBILITY: u8 = 135;
const HIP: u8 = 139;
const SHIM6: u8 = 140;
/// Encapsulating security payload: the bytes behind it are encrypted.
const ESP: u8 = 50;
/// Bytes of the ESP index and sequence number (RFC 4303, 2).
const ESP_LEAST: usize = 8;

/// Parses the IPv6 header at `meta.l3_off` into `meta`; `meta.ethertype` and `meta.l3_off` are set by the
/// caller.
///
/// `head`, `frame_len` and the fields left unchanged are as for [`crate::parse_ip4`]. The function walks
/// the hop-by-hop (0), routing (43), fragment (44), authentication (51), destination (60), mobility (135),
/// HIP (139) and shim6 (140) headers in any order. Each must lie inside the payload length, which bounds
/// the walk. `meta.proto` is the last next-header value read.
///
/// If the payload ends inside a header there is no transport header and `meta.l4_off == meta.end`. A later
/// fragment has no transport header; `meta.l4_off` points behind its fragment header. The conditions on the
/// transport header are those of IPv4. A fragment header with offset 0 and no more fragments (RFC 6946)
/// does not make the packet a fragment.
///
/// # Errors
/// Checked in this order; `meta.kind` is 0 after an error:
/// * [`DropReason::Ip6Truncated`]: the frame has fewer than 40 bytes at the offset;
/// * [`DropReason::Ip6Malformed`]: the version is not 6, or the packet is a jumbogram (RFC 2675): payload
///   length 0, a hop-by-hop header announced, and bytes behind the fixed header;
/// * [`DropReason::Ip6Truncated`]: the frame is shorter than the payload length;
/// * [`DropReason::HeaderTooLong`]: an extension header or the transport header continues behind `head`.
#[inline]
pub fn parse_ip6(head: &[u8], frame_len: usize, meta: &mut Meta) -> Result<(), DropReason> {
    if let Some(headers) = parse_plain_ip6(head, usize::from(meta.l3_off), frame_len, meta) {
        meta.flow_hash = headers.flow_hash();
        return Ok(());
    }
    let found = parse_general(head, frame_len, meta);
    if found.is_err() {
        meta.set_no_ip(frame_len);
    }
    found
}

/// Parses the plain case of [`parse_ip6`] without branches: no extension header, a valid TCP or UDP header.
///
/// Returns `None` and writes nothing for any other packet; the caller then uses [`parse_ip6`]. The flow
/// hash in `meta` is set to 0; [`ParsedHeaders::flow_hash`] computes it. `l3` equals `meta.l3_off`; it is
/// an argument so that the caller can pass a constant.
#[inline(always)]
pub fn parse_plain_ip6(
    head: &[u8],
    l3: usize,
    frame_len: usize,
    meta: &mut Meta,
) -> Option<ParsedHeaders<32>> {
    let l4 = l3 + FIXED;
    let (ip, start) = (bytes::at::<FIXED>(head, l3)?, bytes::at::<20>(head, l4)?);
    let payload = usize::from(bytes::be16(ip, 4));
    let end = l4 + payload;
    if !((ip[0] >> 4 == 6) & (end <= frame_len)) {
        return None;
    }
    let start = HeaderPrefix::of(start);
    let kind = start.parse(ip[6], end.min(head.len()) - l4)?;
    let tag = transport::tag(Kind::IP6, kind, ip[6]);
    meta.set_ip(0, l4, end, tag);
    Some(ParsedHeaders {
        addresses: *addresses(ip),
        ports: (start.first as u32).to_le_bytes(),
        tag,
        tcp_flags: start.tcp_flags(kind),
        tcp_ack: start.tcp_ack(),
        l4: l4 as u16,
        ttl: ip[7],
        sum: 0xffff,
    })
}

#[inline(always)]
fn addresses(ip: &[u8; FIXED]) -> &[u8; 32] {
    let [_, addresses @ ..]: &[[u8; 8]; 5] = bytemuck::cast_ref(ip);
    bytemuck::cast_ref(addresses)
}

#[inline(never)]
fn parse_general(head: &[u8], frame_len: usize, meta: &mut Meta) -> Result<(), DropReason> {
    let l3 = usize::from(meta.l3_off);
    let Some(ip) = bytes::at::<FIXED>(head, l3) else {
        return Err(if frame_len < l3 + FIXED {
            DropReason::Ip6Truncated
        } else {
            DropReason::HeaderTooLong
        });
    };
    let payload = usize::from(bytes::be16(ip, 4));
    let (start, end) = (l3 + FIXED, l3 + FIXED + payload);
    if ip[0] >> 4 != 6 || (payload == 0 && ip[6] == HOP_BY_HOP && frame_len > start) {
        return Err(DropReason::Ip6Malformed);
    }
    if end > frame_len {
        return Err(DropReason::Ip6Truncated);
    }
    let chain = walk(head, start, end, ip[6])?;
    if u16::try_from(chain.at).is_err() {
        return Err(DropReason::HeaderTooLong);
    }
    let found = if chain.flags & flags::LATER_FRAGMENT == 0 {
        transport::parse_transport(&transport::OVER_IP6, chain.proto, head, chain.at, end)?
    } else {
        TransportHeader::NONE
    };
    let ports = if chain.flags & flags::FRAGMENT == 0 { found.ports } else { [0; 4] };
    let flow_hash = hash::flow_hash6(addresses(ip), ports, chain.proto);
    let tag = transport::tag(Kind::IP6, found.kind, chain.proto) | u32::from(chain.flags) << 16;
    meta.set_ip(flow_hash, chain.at, end, tag);
    Ok(())
}

fn is_extension(next: u8) -> bool {
    matches!(next, HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION | MOBILITY | HIP | SHIM6)
}

/// End of the chain of extension headers.
struct ExtensionChain {
    proto: u8,
    at: usize,
    flags: u8,
    /// [`Ip6Ext::bit`]s of the headers that the walk passed.
    seen: u16,
}

/// Walks the extension headers from offset `at`, where a header of type `proto` begins.
///
/// Every step consumes at least eight bytes of a payload of at most 65,535.
fn walk(head: &[u8], mut at: usize, end: usize, mut proto: u8) -> Result<ExtensionChain, DropReason> {
    let (mut flags, mut seen) = (0, 0);
    while is_extension(proto) {
        if end - at < 8 {
            return Ok(ExtensionChain { proto, at: end, flags, seen });
        }
        let header = bytes::at::<8>(head, at).ok_or(DropReason::HeaderTooLong)?;
        let length = match proto {
            FRAGMENT => 8,
            AUTHENTICATION => (usize::from(header[1]) + 2) * 4,
            _ => (usize::from(header[1]) + 1) * 8,
        };
        if end - at < length {
            return Ok(ExtensionChain { proto, at: end, flags, seen });
        }
        if at + length > head.len() {
            return Err(DropReason::HeaderTooLong);
        }
        flags |= match proto {
            ROUTING if header[3] != 0 => flags::ROUTED,
            FRAGMENT => fragment_flags(bytes::be16(header, 2)),
            _ => 0,
        };
        seen |= extension_bit(proto);
        (proto, at) = (header[0], at + length);
        if flags & flags::LATER_FRAGMENT != 0 {
            break;
        }
    }
    Ok(ExtensionChain { proto, at, flags, seen })
}

/// Returns the [`Ip6Ext::bit`] of an extension header that the walk passes.
fn extension_bit(number: u8) -> u16 {
    let header = match number {
        HOP_BY_HOP => Ip6Ext::HopByHop,
        ROUTING => Ip6Ext::Routing,
        FRAGMENT => Ip6Ext::Fragment,
        AUTHENTICATION => Ip6Ext::Ah,
        DESTINATION => Ip6Ext::DestOpt,
        MOBILITY => Ip6Ext::Mobility,
        HIP => Ip6Ext::Hip,
        _ => Ip6Ext::Shim6,
    };
    header.bit() | Ip6Ext::Any.bit()
}

/// Returns the [`Ip6Ext::bit`]s of the extension headers that the walk of [`parse_ip6`] passed.
///
/// It includes the encapsulating security payload (50) if the walk stopped there with eight bytes or more
/// left. Returns 0 for packets that are not IPv6.
#[inline]
pub(crate) fn extensions(head: &[u8], meta: &Meta) -> u16 {
    let nothing_passed = usize::from(meta.l4_off) == usize::from(meta.l3_off) + FIXED;
    if meta.kind.l3() != Kind::IP6 || (nothing_passed && meta.proto != ESP) {
        0
    } else {
        collect_extensions(head, meta)
    }
}

#[inline(never)]
fn collect_extensions(head: &[u8], meta: &Meta) -> u16 {
    let l3 = usize::from(meta.l3_off);
    let Some(ip) = bytes::at::<FIXED>(head, l3) else { return 0 };
    let start = l3 + FIXED;
    let end = start + usize::from(bytes::be16(ip, 4));
    // The walk succeeds on every packet that `parse_ip6` accepted.
    let Ok(ExtensionChain { proto, at, flags, seen }) = walk(head, start, end, ip[6]) else { return 0 };
    // A later fragment does not begin with a header, whatever its fragment header names.
    let esp = proto == ESP && flags & flags::LATER_FRAGMENT == 0 && end - at >= ESP_LEAST;
    seen | if esp { Ip6Ext::Esp.bit() | Ip6Ext::Any.bit() } else { 0 }
}

/// Returns the flags for the fragment header's word of offset (13 bits), two reserved bits and "more
/// fragments".
fn fragment_flags(word: u16) -> u8 {
    match (word >> 3, word & 1) {
        (0, 0) => 0,
        (0, _) => flags::FRAGMENT,
        _ => flags::FRAGMENT | flags::LATER_FRAGMENT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{Extension, Frame, Icmp, Ip6, Tcp, Transport, Udp};
    use crate::parse;
    use proptest::prelude::*;

    fn ip() -> Ip6 {
        Ip6::new([0x2001, 2, 0, 0, 0, 0, 0, 1], [0x2001, 2, 0, 0, 0, 0, 0, 2])
    }

    fn plain(number: u8, len: usize) -> Extension {
        Extension::Plain { number, body: vec![0; len - 2] }
    }

    fn outcome(frame: &[u8]) -> Result<(u8, u8, u16, u8), DropReason> {
        let mut m = Meta::default();
        parse(frame, frame.len(), &mut m).map(|()| (m.kind.0, m.proto, m.l4_off, m.flags))
    }

    fn with(mut frame: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
        frame[at] = byte;
        frame
    }

    const UDP: u8 = Kind::IP6 | Kind::UDP;

    #[test]
    fn malformed_headers_are_named() {
        let frame = Frame::new(ip(), Udp::new(1, 2)).payload([0; 20]).build();
        assert_eq!(outcome(&frame), Ok((UDP, 17, 54, 0)));
        assert_eq!(outcome(&with(frame.clone(), 14, 0x50)), Err(DropReason::Ip6Malformed));
        assert_eq!(outcome(&with(frame.clone(), 18, 1)), Err(DropReason::Ip6Truncated));
        assert_eq!(outcome(&frame[..53]), Err(DropReason::Ip6Truncated));
        assert_eq!(outcome(&with(frame, 20, 1)), Ok((Kind::IP6, 1, 54, 0)), "ICMP over IPv6");
    }

    /// RFC 2675: payload length 0; a hop-by-hop header holds the real length.
    #[test]
    fn jumbograms_are_refused() {
        let jumbo = Extension::Plain { number: 0, body: vec![0xc2, 4, 0, 1, 0, 0] };
        let mut frame = Frame::new(ip().with([jumbo]), Udp::new(1, 2)).payload([0; 20]).build();
        frame[18..20].fill(0);
        assert_eq!(outcome(&frame), Err(DropReason::Ip6Malformed));
        assert_eq!(outcome(&frame[..54]), Ok((Kind::IP6, 0, 54, 0)), "no bytes behind the header");
        assert_eq!(outcome(&with(frame, 20, 59)), Ok((Kind::IP6, 59, 54, 0)), "padding");
    }

    #[test]
    fn every_extension_header_is_walked() {
        for number in [0, 60, 135, 139, 140] {
            let frame = Frame::new(ip().with([plain(number, 24)]), Udp::new(1, 2)).build();
            assert_eq!(outcome(&frame), Ok((UDP, 17, 78, 0)), "{number}");
        }
        let chain = [
            plain(0, 8),
            plain(60, 16),
            Extension::Routing { kind: 2, segments_left: 0, addresses: vec![[7; 16].into()] },
            Extension::Fragment { offset: 0, more: false, id: 1 },
            Extension::Authentication { spi: 1, sequence: 1 },
            plain(60, 2040),
        ];
        let frame = Frame::new(ip().with(chain), Tcp::new(1, 2)).build();
        let l4 = 54 + 8 + 16 + 24 + 8 + 24 + 2040;
        assert_eq!(outcome(&frame), Ok((Kind::IP6 | Kind::TCP, 6, l4, 0)));
    }

    #[test]
    fn what_is_no_extension_header_ends_the_chain() {
        for number in [50, 59, 41, 47, 253] {
            let frame = Frame::new(ip().with([plain(0, 8)]), Transport::Raw(number)).payload([0; 40]).build();
            assert_eq!(outcome(&frame), Ok((Kind::IP6, number, 62, 0)));
        }
    }

    #[test]
    fn a_chain_that_runs_out_has_no_transport() {
        let frame = Frame::new(ip().with([plain(0, 8), plain(60, 16)]), Icmp::new(128)).build();
        for (payload, (proto, l4)) in
            [(1, (0, 55)), (7, (0, 61)), (8, (60, 62)), (15, (60, 69)), (23, (60, 77))]
        {
            assert_eq!(
                outcome(&with(frame.clone(), 19, payload)),
                Ok((Kind::IP6, proto, l4, 0)),
                "{payload}"
            );
        }
        assert_eq!(outcome(&with(frame.clone(), 19, 31)), Ok((Kind::IP6, 58, 78, 0)), "7 bytes of ICMPv6");
        assert_eq!(outcome(&frame), Ok((Kind::IP6 | Kind::ICMP6, 58, 78, 0)));
    }

    #[test]
    fn fragments() {
        let piece = |offset, more| ip().with([Extension::Fragment { offset, more, id: 9 }]);
        let first = Frame::new(piece(0, true), Udp::new(1, 2)).payload([0; 8]).build();
        let atomic = Frame::new(piece(0, false), Udp::new(1, 2)).payload([0; 8]).build();
        let [later, last] =
            [true, false].map(|m| Frame::new(piece(2, m), Transport::Raw(17)).payload([0; 8]).build());
        let both = flags::FRAGMENT | flags::LATER_FRAGMENT;
        assert_eq!(outcome(&first), Ok((UDP, 17, 62, flags::FRAGMENT)));
        assert_eq!(outcome(&atomic), Ok((UDP, 17, 62, 0)));
        assert_eq!(outcome(&later), Ok((Kind::IP6, 17, 62, both)));
        assert_eq!(outcome(&last), Ok((Kind::IP6, 17, 62, both)));
        let destination = Frame::new(piece(2, true), Transport::Raw(60)).payload([0; 8]).build();
        assert_eq!(outcome(&destination), Ok((Kind::IP6, 60, 62, both)), "not walked in a later fragment");
    }

    fn seen(frame: &[u8]) -> u16 {
        let mut m = Meta::default();
        assert_eq!(parse(frame, frame.len(), &mut m), Ok(()));
        extensions(frame, &m)
    }

    #[test]
    fn extension_headers_are_seen_if_they_are_whole() {
        let none = Frame::new(ip(), Udp::new(1, 2)).build();
        assert_eq!(seen(&none), 0);
        assert_eq!(seen(&Frame::new(crate::build::Ip4::new([1; 4], [2; 4]), Transport::Raw(50)).build()), 0);
        for (i, number) in [0, 43, 44, 51, 60, 135, 139, 140].into_iter().enumerate() {
            let bit = [0x8000, 0x4000, 0x2000, 0x0800, 0x0400, 0x0200, 0x0100, 0x0080][i];
            let frame = Frame::new(ip(), Transport::Raw(number)).payload([17, 0, 0, 0, 0, 0, 0, 0]).build();
            assert_eq!(seen(&frame), bit | 0x0040, "{number}");
            assert_eq!(seen(&with(frame, 19, 7)), 0, "{number} cut short");
        }
        let chain = [plain(0, 8), plain(60, 16)];
        let frame = Frame::new(ip().with(chain), Udp::new(1, 2)).build();
        assert_eq!(seen(&frame), 0x8440);
        assert_eq!(seen(&with(frame, 19, 23)), 0x8040, "the second is cut short");
    }

    #[test]
    fn esp_is_seen_with_its_first_eight_bytes() {
        let esp = |payload: usize| {
            Frame::new(ip().with([plain(60, 8)]), Transport::Raw(50)).payload(vec![0; payload]).build()
        };
        assert_eq!((seen(&esp(7)), seen(&esp(8))), (0x0440, 0x1440));
        assert_eq!(seen(&Frame::new(ip(), Transport::Raw(50)).payload([0; 8]).build()), 0x1040);
        let later = ip().with([Extension::Fragment { offset: 2, more: false, id: 9 }]);
        assert_eq!(seen(&Frame::new(later, Transport::Raw(50)).payload([0; 8]).build()), 0x2040);
    }

    #[test]
    fn segments_left_make_a_packet_routed() {
        let hop =
            |segments_left| Extension::Routing { kind: 4, segments_left, addresses: vec![[7; 16].into()] };
        let [there, on_its_way] = [0, 1].map(|n| Frame::new(ip().with([hop(n)]), Udp::new(1, 2)).build());
        assert_eq!(outcome(&there), Ok((UDP, 17, 78, 0)));
        assert_eq!(outcome(&on_its_way), Ok((UDP, 17, 78, flags::ROUTED)));
    }

    #[test]
    fn headers_behind_the_head_are_refused() {
        let chain = [plain(0, 200), plain(60, 200)];
        let frame = Frame::new(ip().with(chain), Tcp { options: vec![1; 4], ..Tcp::new(1, 2) }).build();
        let mut m = Meta::default();
        for head in 14..frame.len() {
            assert_eq!(parse(&frame[..head], frame.len(), &mut m), Err(DropReason::HeaderTooLong), "{head}");
        }
    }

    #[test]
    fn offsets_past_64k_are_refused() {
        let long = vec![plain(60, 2048); 32];
        let mut frame = Frame::new(ip(), Transport::Raw(60)).payload([0; 65_535]).build();
        let bytes = Frame::new(ip().with(long), Transport::Raw(60)).build();
        frame[54..54 + 31 * 2048].copy_from_slice(&bytes[54..54 + 31 * 2048]);
        frame[54 + 31 * 2048..][..2].copy_from_slice(&[59, 253]);
        assert_eq!(outcome(&frame), Err(DropReason::HeaderTooLong));
    }

    proptest! {
        #[test]
        fn the_plain_parse_agrees_with_the_general_one(
            udp in any::<bool>(),
            payload in 0..40usize,
            hits in prop::collection::vec((14..74usize, any::<u8>()), 0..3),
            head in 54..120usize,
        ) {
            let bare = if udp { Frame::new(ip(), Udp::new(5, 6)) } else { Frame::new(ip(), Tcp::new(5, 6)) };
            let mut frame = bare.payload(vec![0; payload]).pad_to(74).build();
            hits.into_iter().for_each(|(at, byte)| frame[at] = byte);
            let head = &frame[..head.min(frame.len())];
            let mut plain = Meta { l3_off: 14, ..Meta::default() };
            let mut general = plain;
            if let Some(found) = parse_plain_ip6(head, usize::from(plain.l3_off), frame.len(), &mut plain) {
                prop_assert_eq!(parse_general(head, frame.len(), &mut general), Ok(()));
                prop_assert_eq!(std::mem::replace(&mut plain.flow_hash, found.flow_hash()), 0);
                prop_assert_eq!(found.addresses.as_slice(), &frame[22..54]);
                prop_assert!(frame[38..54] == found.destination().to_be_bytes());
                prop_assert_eq!(found.is_forwardable(), frame[21] > 1);
                transport::tests::agrees(&found, &frame[54..], &general)?;
            }
            prop_assert_eq!(plain, general);
        }
    }
}
