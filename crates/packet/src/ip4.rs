//! IPv4 header (RFC 791).

use crate::meta::{Kind, Meta, PacketFlags};
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
/// The transport nibble of `meta.kind` is set if the fragment offset is 0 and the protocol is TCP, UDP or
/// ICMP. The whole fixed header must lie inside the IP packet. A TCP data offset must be at least 5 words and
/// end inside the packet; a UDP length must be at least 8.
///
/// # Errors
/// Checked in this order; `meta.kind` is 0 after an error of the network header:
/// * [`DropReason::Ip4Truncated`]: the frame has fewer than 20 bytes at the offset;
/// * [`DropReason::Ip4Malformed`]: the version is not 4, or the header length is under 20 or over the total
///   length;
/// * [`DropReason::Ip4Truncated`]: the frame is shorter than the total length;
/// * [`DropReason::HeaderTooLong`]: the IP or transport header, with options, continues behind `head`.
///
/// After the following errors, `meta` describes a packet without a transport header
/// ([`DropReason::is_transport_error`]):
/// * [`DropReason::L4Truncated`]: the packet is not a fragment, and ends inside its transport header;
/// * [`DropReason::L4Malformed`]: the transport header's length field is below the minimum;
/// * [`DropReason::TinyFragment`]: a first fragment ends inside the transport header, or a later fragment of
///   TCP begins inside of it (RFC 1858, 3; RFC 3128, 2).
#[inline]
pub fn parse_ip4(head: &[u8], frame_len: usize, meta: &mut Meta) -> Result<(), DropReason> {
    if let Some(headers) = parse_plain_ip4(head, usize::from(meta.l3_off), frame_len, meta) {
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
    let parse_transport = || transport::parse_transport(&transport::OVER_IP4, ip[9], head, l4, end);
    let (found, flags) = match bytes::be16(ip, 6) & FRAGMENT_MASK {
        0 => (parse_transport(), PacketFlags::empty()),
        MORE => (parse_transport().map_err(transport::first_fragment_reason), PacketFlags::FRAGMENT),
        control => (
            transport::check_later_fragment(ip[9], control & !MORE),
            PacketFlags::FRAGMENT | PacketFlags::LATER_FRAGMENT,
        ),
    };
    if found == Err(DropReason::HeaderTooLong) {
        return Err(DropReason::HeaderTooLong);
    }
    let transport = found.unwrap_or(TransportHeader::NONE);
    let addresses = transport::words(ip)[2].to_le_bytes();
    let ports = if !flags.contains(PacketFlags::FRAGMENT) { transport.ports } else { [0; 4] };
    let flow_hash = hash::flow_hash4(addresses, ports, ip[9]);
    let tag = transport::tag(Kind::IP4, transport.kind, ip[9]) | u32::from(flags.bits()) << 16;
    meta.set_ip(flow_hash, l4, end, tag);
    found.map(|_| ())
}

#[cfg(test)]
mod tests;
