//! IPv6 header and extension headers (RFC 8200).

use crate::loc::Ip6Ext;
use crate::meta::{Kind, Meta, PacketFlags};
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
/// A later fragment has no transport header; `meta.l4_off` points behind its fragment header. The conditions
/// on the transport header are those of IPv4. A fragment header with offset 0 and no more fragments (RFC
/// 6946) does not make the packet a fragment.
///
/// # Errors
/// Checked in this order; `meta.kind` is 0 after an error of the network header:
/// * [`DropReason::Ip6Truncated`]: the frame has fewer than 40 bytes at the offset;
/// * [`DropReason::Ip6Malformed`]: the version is not 6, or the packet is a jumbogram (RFC 2675): payload
///   length 0, a hop-by-hop header announced, and bytes behind the fixed header;
/// * [`DropReason::Ip6Truncated`]: the frame is shorter than the payload length;
/// * [`DropReason::HeaderTooLong`]: an extension header or the transport header continues behind `head`.
///
/// After the following errors, `meta` describes a packet without a transport header
/// ([`DropReason::is_transport_error`]). If the payload ends inside an extension header, `meta.l4_off ==
/// meta.end`:
/// * [`DropReason::L4Truncated`]: the packet is not a fragment, and ends inside an extension header or the
///   transport header;
/// * [`DropReason::L4Malformed`]: the transport header's length field is below the minimum (a UDP length of 0
///   is for jumbograms only), or there is a second fragment header (RFC 8200, 4.1);
/// * [`DropReason::TinyFragment`]: a first fragment ends inside these headers (RFC 7112, 5), or a later
///   fragment of TCP begins inside the TCP header.
#[inline]
pub fn parse_ip6(head: &[u8], frame_len: usize, meta: &mut Meta) -> Result<(), DropReason> {
    if let Some(headers) = parse_plain_ip6(head, usize::from(meta.l3_off), frame_len, meta) {
        meta.flow_hash = headers.flow_hash();
        return Ok(());
    }
    let found = parse_general(head, frame_len, meta);
    if let Err(reason) = found
        && !reason.is_transport_error()
    {
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
    // The shortest frames of UDP end 8 bytes behind the network header.
    let (ip, start) = (bytes::at::<FIXED>(head, l3)?, HeaderPrefix::at(head, l4)?);
    let payload = usize::from(bytes::be16(ip, 4));
    let end = l4 + payload;
    if !((ip[0] >> 4 == 6) & (end <= frame_len)) {
        return None;
    }
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
    let found = match chain.end {
        ChainEnd::Header => {
            transport::parse_transport(&transport::OVER_IP6, chain.proto, head, chain.at, end)
        }
        ChainEnd::LaterFragment(offset) if is_extension(chain.proto) && offset < CHAIN_BLOCKS => {
            Err(DropReason::TinyFragment)
        }
        ChainEnd::LaterFragment(offset) => transport::check_later_fragment(chain.proto, offset),
        ChainEnd::Truncated => Err(DropReason::L4Truncated),
        ChainEnd::SecondFragmentHeader => Err(DropReason::L4Malformed),
    };
    if found == Err(DropReason::HeaderTooLong) {
        return Err(DropReason::HeaderTooLong);
    }
    let transport = found.unwrap_or(TransportHeader::NONE);
    let is_fragment = chain.flags.contains(PacketFlags::FRAGMENT);
    let ports = if is_fragment { [0; 4] } else { transport.ports };
    let flow_hash = hash::flow_hash6(addresses(ip), ports, chain.proto);
    let tag = transport::tag(Kind::IP6, transport.kind, chain.proto) | u32::from(chain.flags.bits()) << 16;
    meta.set_ip(flow_hash, chain.at, end, tag);
    found.map(|_| ()).map_err(|reason| match is_fragment {
        true => transport::first_fragment_reason(reason),
        false => reason,
    })
}

/// Offset, in units of 8 bytes, below which a later fragment may overlap extension headers and the transport
/// header behind them, which the first fragment has (RFC 7112, 5). No sender needs it: a link has an MTU of
/// 1,280 bytes or more (RFC 8200, 5).
const CHAIN_BLOCKS: u16 = 1024 / 8;

fn is_extension(next: u8) -> bool {
    matches!(next, HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION | MOBILITY | HIP | SHIM6)
}

/// What lies behind the chain of extension headers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ChainEnd {
    /// Another header, or nothing.
    Header,
    /// Data of a later fragment with this offset, in units of 8 bytes.
    LaterFragment(u16),
    /// The packet ends inside an extension header.
    Truncated,
    /// A second fragment header.
    SecondFragmentHeader,
}

/// The chain of extension headers.
struct ExtensionChain {
    proto: u8,
    at: usize,
    flags: PacketFlags,
    /// [`Ip6Ext::bit`]s of the headers that the walk passed.
    seen: u16,
    end: ChainEnd,
}

/// Walks the extension headers from offset `at`, where a header of type `proto` begins.
///
/// Every step consumes at least eight bytes of a payload of at most 65,535.
fn walk(head: &[u8], mut at: usize, end: usize, mut proto: u8) -> Result<ExtensionChain, DropReason> {
    let (mut flags, mut seen) = (PacketFlags::empty(), 0);
    while is_extension(proto) {
        if end - at < 8 {
            return Ok(ExtensionChain { proto, at: end, flags, seen, end: ChainEnd::Truncated });
        }
        if proto == FRAGMENT && seen & Ip6Ext::Fragment.bit() != 0 {
            return Ok(ExtensionChain { proto, at, flags, seen, end: ChainEnd::SecondFragmentHeader });
        }
        let header = bytes::at::<8>(head, at).ok_or(DropReason::HeaderTooLong)?;
        let length = match proto {
            FRAGMENT => 8,
            AUTHENTICATION => (usize::from(header[1]) + 2) * 4,
            _ => (usize::from(header[1]) + 1) * 8,
        };
        if end - at < length {
            return Ok(ExtensionChain { proto, at: end, flags, seen, end: ChainEnd::Truncated });
        }
        if at + length > head.len() {
            return Err(DropReason::HeaderTooLong);
        }
        flags |= match proto {
            ROUTING if header[3] != 0 => PacketFlags::ROUTED,
            FRAGMENT => fragment_flags(bytes::be16(header, 2)),
            _ => PacketFlags::empty(),
        };
        seen |= extension_bit(proto);
        (proto, at) = (header[0], at + length);
        if flags.contains(PacketFlags::LATER_FRAGMENT) {
            let offset = bytes::be16(header, 2) >> 3;
            return Ok(ExtensionChain { proto, at, flags, seen, end: ChainEnd::LaterFragment(offset) });
        }
    }
    Ok(ExtensionChain { proto, at, flags, seen, end: ChainEnd::Header })
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
    let Ok(chain) = walk(head, start, end, ip[6]) else { return 0 };
    let ExtensionChain { proto, at, seen, .. } = chain;
    // A later fragment does not begin with a header, whatever its fragment header names.
    let esp = proto == ESP && chain.end == ChainEnd::Header && end - at >= ESP_LEAST;
    seen | if esp { Ip6Ext::Esp.bit() | Ip6Ext::Any.bit() } else { 0 }
}

/// Returns the flags for the fragment header's word of offset (13 bits), two reserved bits and "more
/// fragments".
fn fragment_flags(word: u16) -> PacketFlags {
    match (word >> 3, word & 1) {
        (0, 0) => PacketFlags::empty(),
        (0, _) => PacketFlags::FRAGMENT,
        _ => PacketFlags::FRAGMENT | PacketFlags::LATER_FRAGMENT,
    }
}

#[cfg(test)]
mod tests;
