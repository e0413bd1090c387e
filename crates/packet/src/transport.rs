//! The transport header: which protocols are read, and what makes their header readable.
//!
//! Theory of operation. The tests are the same for all protocols and their operands come from a table: the fixed header
//! must lie inside the packet, and the header's own length field (TCP's data offset, UDP's length) must be neither less
//! than the fixed header nor, for TCP, more than the packet. Traffic mixes TCP and UDP, and a branch on the protocol
//! number would be mispredicted on every other packet, so [`Start::find`] tests both without one.

use std::hint::select_unpredictable;

use crate::meta::Kind;
use crate::{DropReason, bytes, checksum, hash};

/// One row: how to read a transport header. All-zero for protocols that are not read.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    /// Transport nibble of [`Kind`].
    kind: u8,
    /// Bytes of the fixed header.
    fixed: u8,
    /// Offset of the 16-bit word that holds the header's length field.
    length_at: u8,
    /// `(word >> shr) << shl` is that length in bytes …
    shr: u8,
    shl: u8,
    /// … which must be at least so much …
    least: u8,
    /// … and of which these bits must fit in the packet.
    bounded: u8,
    /// 0xff if the header starts with two ports.
    ports: u8,
}

pub(crate) type Table = [Row; 256];

const NOT_READ: Row =
    Row { kind: Kind::L4_NONE, fixed: 0, length_at: 0, shr: 0, shl: 0, least: 0, bounded: 0, ports: 0 };
/// RFC 9293, 3.1: the data offset is the upper four bits of byte 12, in 32-bit words.
const TCP: Row =
    Row { kind: Kind::TCP, fixed: 20, length_at: 12, shr: 12, shl: 2, least: 20, bounded: 0x3f, ports: 0xff };
/// RFC 768: the length counts the header. It may disagree with IP's, so that nothing beyond the header is asked of it.
const UDP: Row =
    Row { kind: Kind::UDP, fixed: 8, length_at: 4, shr: 0, shl: 0, least: 8, bounded: 0, ports: 0xff };
/// RFC 792, RFC 4443: type, code, checksum and four bytes that depend on the type.
const ICMP: Row = Row { kind: Kind::ICMP, fixed: 8, ..NOT_READ };

const fn table(icmp: usize, kind: u8) -> Table {
    let mut t = [NOT_READ; 256];
    t[6] = TCP;
    t[17] = UDP;
    t[icmp] = Row { kind, ..ICMP };
    t
}

/// Rows by protocol number over IPv4.
pub(crate) static OVER_IP4: Table = table(1, Kind::ICMP);
/// Rows by protocol number over IPv6.
pub(crate) static OVER_IP6: Table = table(58, Kind::ICMP6);

/// A transport header that was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Transport nibble; [`Kind::L4_NONE`] if the packet has no readable transport header.
    pub kind: u8,
    /// Source and destination port as on the wire; zeros without ports.
    pub ports: [u8; 4],
}

impl Found {
    pub(crate) const NOTHING: Found = Found { kind: Kind::L4_NONE, ports: [0; 4] };
}

/// Looks for `proto`'s header at offset `at` of a packet that ends at `end` (`at <= end`).
///
/// # Errors
/// [`DropReason::HeaderTooLong`] if the header (TCP's with its options) lies in the packet but not in `head`.
pub(crate) fn find(
    table: &Table,
    proto: u8,
    head: &[u8],
    at: usize,
    end: usize,
) -> Result<Found, DropReason> {
    let row = &table[usize::from(proto)];
    let room = end - at;
    if row.kind == Kind::L4_NONE || room < usize::from(row.fixed) {
        return Ok(Found::NOTHING);
    }
    let word = bytes::at::<2>(head, at + usize::from(row.length_at)).ok_or(DropReason::HeaderTooLong)?;
    let length = usize::from(u16::from_be_bytes(*word)) >> row.shr << row.shl;
    let inside = length & usize::from(row.bounded);
    if length < usize::from(row.least) || inside > room {
        return Ok(Found::NOTHING);
    }
    let start = bytes::at::<8>(head, at).ok_or(DropReason::HeaderTooLong)?;
    if at + inside > head.len() {
        return Err(DropReason::HeaderTooLong);
    }
    Ok(Found { kind: row.kind, ports: std::array::from_fn(|i| start[i] & row.ports) })
}

/// What the parse of a common packet has in hand, for those who want it at once: TCP or UDP behind a network header without
/// options or extension headers, not a fragment, all sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParsedHeaders<const ADDRESSES: usize> {
    /// Source and destination address as on the wire.
    pub addresses: [u8; ADDRESSES],
    /// Source and destination port as on the wire.
    pub ports: [u8; 4],
    /// Kind, as in [`crate::Meta::kind`], and transport protocol, in the lowest two bytes: as one number, since two bytes that
    /// are stored one by one and read together make the processor wait.
    pub tag: u32,
    /// TCP's flags; 0 if it is UDP.
    pub tcp_flags: u8,
    /// TCP's acknowledgement number; arbitrary if it is UDP.
    pub tcp_ack: u32,
    /// Where the transport header begins, as [`crate::Meta::l4_off`]. 20 bytes from there are in the head.
    pub l4: u16,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// The 32-bit words of a header with a checksum added up as they lie in memory; all ones of one without.
    pub(crate) sum: u64,
}

impl<const ADDRESSES: usize> ParsedHeaders<ADDRESSES> {
    /// Whether the header's checksum is right, if it has any, and the packet may go a hop further.
    #[inline(always)]
    pub fn is_forwardable(&self) -> bool {
        checksum::is_valid(self.sum) & (self.ttl > 1)
    }
}

impl ParsedHeaders<8> {
    /// As [`crate::Meta::flow_hash`].
    #[inline(always)]
    pub fn flow_hash(&self) -> u32 {
        hash::flow_hash4(self.addresses, self.ports, (self.tag >> 8) as u8)
    }

    /// The destination.
    #[inline(always)]
    pub fn destination(&self) -> u32 {
        let [_, to]: [[u8; 4]; 2] = bytemuck::cast(self.addresses);
        u32::from_be_bytes(to)
    }
}

impl ParsedHeaders<32> {
    /// As [`crate::Meta::flow_hash`].
    #[inline(always)]
    pub fn flow_hash(&self) -> u32 {
        hash::flow_hash6(&self.addresses, self.ports, (self.tag >> 8) as u8)
    }

    /// The destination.
    #[inline(always)]
    pub fn destination(&self) -> u128 {
        let [_, to]: [[u8; 16]; 2] = bytemuck::cast(self.addresses);
        u128::from_be_bytes(to)
    }
}

/// As [`ParsedHeaders::tag`].
#[inline(always)]
pub(crate) fn tag(version: u8, kind: u8, proto: u8) -> u32 {
    u32::from(version | kind) | u32::from(proto) << 8
}

/// The first 20 bytes behind the network header as two pieces.
#[derive(Clone, Copy)]
pub(crate) struct Start {
    /// Ports; then TCP's sequence number, or UDP's length and checksum.
    pub first: u64,
    /// TCP's acknowledgement number, data offset, flags and window.
    pub second: u64,
}

impl Start {
    #[inline(always)]
    pub fn of(bytes: &[u8; 20]) -> Start {
        let [first, second, _] = words(bytes);
        Start { first, second }
    }

    /// The same as [`find`] for the common case, without a table and with one branch: the transport nibble, if a sound TCP or
    /// UDP header begins here, of a packet with `room` bytes from here on that are all in the head. `None` says nothing: ask
    /// [`find`].
    #[inline(always)]
    pub fn find(self, proto: u8, room: usize) -> Option<u8> {
        let (is_tcp, is_udp) = (proto == 6, proto == 17);
        let data_offset = (self.second >> 34 & 0x3c) as usize;
        let udp_length = usize::from(u16::from_be((self.first >> 32) as u16));
        let length = select_unpredictable(is_udp, udp_length, data_offset);
        let (least, inside) = select_unpredictable(is_udp, (8, 8), (20, data_offset));
        ((is_tcp | is_udp) & (length >= least) & (inside <= room)).then_some(kind_of(proto))
    }

    /// TCP's flags; 0 of other protocols.
    #[inline(always)]
    pub fn tcp_flags(self, kind: u8) -> u8 {
        select_unpredictable(kind == Kind::TCP, (self.second >> 40) as u8, 0)
    }

    #[inline(always)]
    pub fn tcp_ack(self) -> u32 {
        u32::from_be(self.second as u32)
    }
}

/// The transport nibble of TCP and UDP, by the bit that tells their numbers apart; of others, anything.
#[inline(always)]
const fn kind_of(proto: u8) -> u8 {
    Kind::TCP + (proto & 0x10)
}

/// Bytes 0 to 7, 8 to 15 and 12 to 19 as numbers, the first byte least significant.
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

    /// What is in hand of a packet is what its bytes from the transport header on say, and what the whole parse finds.
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
