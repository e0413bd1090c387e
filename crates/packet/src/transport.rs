//! Transport headers: which protocols the parser reads, and when a header is readable.
//!
//! Theory of operation. All protocols share the same tests; the operands come from a table. The fixed
//! header must lie inside the packet. The header's own length field (TCP data offset, UDP length) must
//! cover the fixed header, and for TCP must not exceed the packet. A packet that fails a test is an error:
//! rules could not read its ports, but its receiver may. Traffic mixes TCP and UDP, so a branch
//! on the protocol number would be mispredicted often. [`HeaderPrefix::parse`] tests both without one.

use std::hint::select_unpredictable;

use crate::meta::Kind;
use crate::{DropReason, bytes, checksum, hash};

/// How to read one transport header. All fields are zero for protocols that the parser does not read.
#[derive(Clone, Copy)]
pub(crate) struct ProtocolRow {
    /// Transport nibble of [`Kind`].
    kind: u8,
    /// Length of the fixed header in bytes.
    fixed: u8,
    /// Offset of the 16-bit word that holds the header's length field.
    length_at: u8,
    /// The length in bytes is `(word >> shr) << shl`.
    shr: u8,
    shl: u8,
    /// Minimum length in bytes.
    least: u8,
    /// Bits of the length that must fit in the packet; 0: no upper bound.
    bounded: u8,
    /// 0xff if the header starts with two ports.
    ports: u8,
}

pub(crate) type Table = [ProtocolRow; 256];

const UNREAD: ProtocolRow = ProtocolRow {
    kind: Kind::L4_NONE,
    fixed: 0,
    length_at: 0,
    shr: 0,
    shl: 0,
    least: 0,
    bounded: 0,
    ports: 0,
};
/// TCP (RFC 9293, 3.1): the data offset is the upper four bits of byte 12, in 32-bit words.
const TCP: ProtocolRow = ProtocolRow {
    kind: Kind::TCP,
    fixed: 20,
    length_at: 12,
    shr: 12,
    shl: 2,
    least: 20,
    bounded: 0x3f,
    ports: 0xff,
};
/// UDP (RFC 768): the length counts the header. It may differ from IP's, so it has no upper bound.
const UDP: ProtocolRow = ProtocolRow {
    kind: Kind::UDP,
    fixed: 8,
    length_at: 4,
    shr: 0,
    shl: 0,
    least: 8,
    bounded: 0,
    ports: 0xff,
};
/// ICMP (RFC 792, RFC 4443): type, code, checksum and four bytes that depend on the type.
const ICMP: ProtocolRow = ProtocolRow { kind: Kind::ICMP, fixed: 8, ..UNREAD };

/// Protocol number of TCP.
const TCP_NUMBER: u8 = 6;

const fn table(icmp: usize, kind: u8) -> Table {
    let mut t = [UNREAD; 256];
    t[6] = TCP;
    t[17] = UDP;
    t[icmp] = ProtocolRow { kind, ..ICMP };
    t
}

/// Rows by protocol number over IPv4.
pub(crate) static OVER_IP4: Table = table(1, Kind::ICMP);
/// Rows by protocol number over IPv6.
pub(crate) static OVER_IP6: Table = table(58, Kind::ICMP6);

/// The transport header of a packet, as far as the parser reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TransportHeader {
    /// Transport nibble; [`Kind::L4_NONE`] if the packet has no readable transport header.
    pub kind: u8,
    /// Source and destination port in wire order; zeros for protocols without ports.
    pub ports: [u8; 4],
}

impl TransportHeader {
    pub(crate) const NONE: TransportHeader = TransportHeader { kind: Kind::L4_NONE, ports: [0; 4] };
}

/// Parses the header of `proto` at offset `at` of a packet that ends at `end` (`at <= end`).
///
/// # Errors
/// * [`DropReason::L4Truncated`]: the header (TCP's with its options) exceeds the packet;
/// * [`DropReason::L4Malformed`]: the header's length field is below the length of the fixed header;
/// * [`DropReason::HeaderTooLong`]: the header lies in the packet but not in `head`.
pub(crate) fn parse_transport(
    table: &Table,
    proto: u8,
    head: &[u8],
    at: usize,
    end: usize,
) -> Result<TransportHeader, DropReason> {
    let row = &table[usize::from(proto)];
    let room = end - at;
    if row.kind == Kind::L4_NONE {
        return Ok(TransportHeader::NONE);
    }
    if room < usize::from(row.fixed) {
        return Err(DropReason::L4Truncated);
    }
    let word = bytes::at::<2>(head, at + usize::from(row.length_at)).ok_or(DropReason::HeaderTooLong)?;
    let length = usize::from(u16::from_be_bytes(*word)) >> row.shr << row.shl;
    let inside = length & usize::from(row.bounded);
    if length < usize::from(row.least) {
        return Err(DropReason::L4Malformed);
    }
    if inside > room {
        return Err(DropReason::L4Truncated);
    }
    let start = bytes::at::<8>(head, at).ok_or(DropReason::HeaderTooLong)?;
    if at + inside > head.len() {
        return Err(DropReason::HeaderTooLong);
    }
    Ok(TransportHeader { kind: row.kind, ports: std::array::from_fn(|i| start[i] & row.ports) })
}

/// Length of a TCP header without options in units of 8 bytes, rounded up: no later fragment of a segment
/// begins before it if the first fragment has the whole header (RFC 3128, 2).
const TCP_BLOCKS: u16 = 3;

/// Checks the offset of a later fragment, in units of 8 bytes.
///
/// # Errors
/// [`DropReason::TinyFragment`] if the fragment begins inside a TCP header.
pub(crate) fn check_later_fragment(proto: u8, offset: u16) -> Result<TransportHeader, DropReason> {
    if proto == TCP_NUMBER && offset < TCP_BLOCKS {
        return Err(DropReason::TinyFragment);
    }
    Ok(TransportHeader::NONE)
}

/// The reason for a first fragment whose headers end with an error: the next fragment may continue them.
pub(crate) fn first_fragment_reason(reason: DropReason) -> DropReason {
    if reason == DropReason::L4Truncated { DropReason::TinyFragment } else { reason }
}

/// Header fields of a plain packet, in registers: TCP or UDP without IP options, extension headers or
/// fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParsedHeaders<const ADDRESSES: usize> {
    /// Source and destination address in wire order.
    pub addresses: [u8; ADDRESSES],
    /// Source and destination port in wire order.
    pub ports: [u8; 4],
    /// [`crate::Meta::kind`] in the lowest byte, the transport protocol in the second.
    ///
    /// It is one number because reading two separately stored bytes together would stall on store
    /// forwarding.
    pub tag: u32,
    /// TCP flags; 0 for UDP.
    pub tcp_flags: u8,
    /// TCP acknowledgement number; unspecified for UDP.
    pub tcp_ack: u32,
    /// Offset of the transport header, as [`crate::Meta::l4_off`]. Over IPv4, the head holds 20 bytes from
    /// there on.
    pub l4: u16,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// Sum of the IPv4 header's 32-bit words in native byte order; 0xffff for IPv6, which has no header
    /// checksum.
    pub(crate) sum: u64,
}

/// Fields of [`ParsedHeaders`] for code that is generic over the version of IP.
pub trait PlainHeaders {
    /// The packet is IPv6.
    const IP6: bool;
    /// Returns source and destination address in wire order.
    fn addresses(&self) -> &[u8];
    /// Returns source and destination port in wire order.
    fn ports(&self) -> [u8; 4];
    /// Returns [`ParsedHeaders::tag`].
    fn tag(&self) -> u32;
    /// Returns the TCP flags; 0 for UDP.
    fn tcp_flags(&self) -> u8;
    /// Returns the TCP acknowledgement number; arbitrary for UDP.
    fn tcp_ack(&self) -> u32;
    /// Returns the offset of the transport header.
    fn l4_off(&self) -> u16;
}

impl<const ADDRESSES: usize> PlainHeaders for ParsedHeaders<ADDRESSES> {
    const IP6: bool = ADDRESSES == 32;

    #[inline(always)]
    fn addresses(&self) -> &[u8] {
        &self.addresses
    }

    #[inline(always)]
    fn ports(&self) -> [u8; 4] {
        self.ports
    }

    #[inline(always)]
    fn tag(&self) -> u32 {
        self.tag
    }

    #[inline(always)]
    fn tcp_flags(&self) -> u8 {
        self.tcp_flags
    }

    #[inline(always)]
    fn tcp_ack(&self) -> u32 {
        self.tcp_ack
    }

    #[inline(always)]
    fn l4_off(&self) -> u16 {
        self.l4
    }
}

impl<const ADDRESSES: usize> ParsedHeaders<ADDRESSES> {
    /// Whether the IPv4 header checksum is valid and the TTL or hop limit is greater than 1.
    #[inline(always)]
    pub fn is_forwardable(&self) -> bool {
        checksum::is_valid(self.sum) & (self.ttl > 1)
    }
}

impl ParsedHeaders<8> {
    /// Computes [`crate::Meta::flow_hash`].
    #[inline(always)]
    pub fn flow_hash(&self) -> u32 {
        hash::flow_hash4(self.addresses, self.ports, (self.tag >> 8) as u8)
    }

    /// Source and destination address.
    #[inline(always)]
    pub fn octets(&self) -> [[u8; 4]; 2] {
        bytemuck::cast(self.addresses)
    }
}

impl ParsedHeaders<32> {
    /// Computes [`crate::Meta::flow_hash`].
    #[inline(always)]
    pub fn flow_hash(&self) -> u32 {
        hash::flow_hash6(&self.addresses, self.ports, (self.tag >> 8) as u8)
    }

    /// Source address in host byte order.
    #[inline(always)]
    pub fn source(&self) -> u128 {
        let [from, _]: [[u8; 16]; 2] = bytemuck::cast(self.addresses);
        u128::from_be_bytes(from)
    }

    /// Destination address in host byte order.
    #[inline(always)]
    pub fn destination(&self) -> u128 {
        let [_, to]: [[u8; 16]; 2] = bytemuck::cast(self.addresses);
        u128::from_be_bytes(to)
    }
}

/// Builds [`ParsedHeaders::tag`].
#[inline(always)]
pub(crate) fn tag(version: u8, kind: u8, proto: u8) -> u32 {
    u32::from(version | kind) | u32::from(proto) << 8
}

/// The first 16 bytes behind the network header, as two little-endian words.
#[derive(Clone, Copy)]
pub(crate) struct HeaderPrefix {
    /// Ports; then the TCP sequence number, or UDP length and checksum.
    pub first: u64,
    /// TCP acknowledgement number, data offset, flags and window.
    pub second: u64,
}

impl HeaderPrefix {
    #[inline(always)]
    pub fn of(bytes: &[u8; 20]) -> HeaderPrefix {
        let [first, second, _] = words(bytes);
        HeaderPrefix { first, second }
    }

    /// The prefix at an offset of a head that may end within it: the second word is 0 then, so that only a
    /// UDP header is valid. `None`: the head does not even hold the first word.
    #[inline(always)]
    pub fn at(head: &[u8], l4: usize) -> Option<HeaderPrefix> {
        match bytes::at(head, l4) {
            Some(whole) => Some(HeaderPrefix::of(whole)),
            None => Some(HeaderPrefix { first: u64::from_le_bytes(*bytes::at(head, l4)?), second: 0 }),
        }
    }

    /// Returns the transport nibble if a valid TCP or UDP header begins here; it uses one branch and no
    /// table.
    ///
    /// `room` is the number of bytes of the packet from here on; all of them are in the head. `None` means
    /// that the caller has to use [`parse_transport`].
    #[inline(always)]
    pub fn parse(self, proto: u8, room: usize) -> Option<u8> {
        let (is_tcp, is_udp) = (proto == 6, proto == 17);
        let data_offset = (self.second >> 34 & 0x3c) as usize;
        let udp_length = usize::from(u16::from_be((self.first >> 32) as u16));
        let length = select_unpredictable(is_udp, udp_length, data_offset);
        let (least, inside) = select_unpredictable(is_udp, (8, 8), (20, data_offset));
        ((is_tcp | is_udp) & (length >= least) & (inside <= room)).then_some(kind_of(proto))
    }

    /// TCP flags; 0 for other protocols.
    #[inline(always)]
    pub fn tcp_flags(self, kind: u8) -> u8 {
        select_unpredictable(kind == Kind::TCP, (self.second >> 40) as u8, 0)
    }

    #[inline(always)]
    pub fn tcp_ack(self) -> u32 {
        u32::from_be(self.second as u32)
    }
}

/// Transport nibble of TCP (6) and UDP (17), from the bit in which their numbers differ; unspecified for
/// others.
#[inline(always)]
const fn kind_of(proto: u8) -> u8 {
    Kind::TCP + (proto & 0x10)
}

/// Returns bytes 0..8, 8..16 and 12..20 as little-endian numbers.
#[inline(always)]
pub(crate) fn words(bytes: &[u8; 20]) -> [u64; 3] {
    let word = |at: usize| {
        let piece: &[u8; 8] = bytes[at..].first_chunk().unwrap_or(&[0; 8]);
        u64::from_le_bytes(*piece)
    };
    [word(0), word(8), word(12)]
}

const _: () = assert!(kind_of(6) == Kind::TCP && kind_of(17) == Kind::UDP);

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Meta;

    /// Checks the fields against the bytes from the transport header on and against the general parse.
    pub(crate) fn agrees<const N: usize>(
        found: &ParsedHeaders<N>,
        l4: &[u8],
        meta: &Meta,
    ) -> Result<(), TestCaseError> {
        prop_assert_eq!(found.tag.to_le_bytes(), [meta.kind.0, meta.proto, 0, 0]);
        prop_assert_eq!(found.ports.as_slice(), &l4[..4]);
        if meta.kind.l4() == Kind::TCP {
            prop_assert!(l4[8..12] == found.tcp_ack.to_be_bytes() && l4[13] == found.tcp_flags);
        } else {
            prop_assert_eq!(found.tcp_flags, 0);
        }
        Ok(())
    }
}
