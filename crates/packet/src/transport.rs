//! The transport header: which protocols are read, and what makes their header readable.
//!
//! Theory of operation. The tests are the same for all protocols and their operands come from a table: the fixed header
//! must lie inside the packet, and the header's own length field (TCP's data offset, UDP's length) must be neither less
//! than the fixed header nor, for TCP, more than the packet. Traffic mixes TCP and UDP, and a branch on the protocol
//! number would be mispredicted on every other packet, so [`find_common`] tests both without one.

use std::hint::select_unpredictable;

use crate::meta::Kind;
use crate::{DropReason, bytes};

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

/// The same for the common case, without a table and with one branch: a sound TCP or UDP header whose first bytes are
/// `start`, of a packet with `room` bytes from there on that are all in the head. `None` says nothing: ask [`find`].
#[inline]
pub(crate) fn find_common(start: &[u8; 20], proto: u8, room: usize) -> Option<Found> {
    let (is_tcp, is_udp) = (proto == 6, proto == 17);
    let data_offset = usize::from(start[12] >> 4) * 4;
    let udp_length = usize::from(bytes::be16(start, 4));
    let length = select_unpredictable(is_udp, udp_length, data_offset);
    let (least, inside) = select_unpredictable(is_udp, (8, 8), (20, data_offset));
    let [ports, ..]: [[u8; 4]; 5] = bytemuck::cast(*start);
    // Kind::UDP is Kind::TCP shifted by one.
    ((is_tcp | is_udp) & (length >= least) & (inside <= room))
        .then_some(Found { kind: Kind::TCP << u8::from(is_udp), ports })
}

const _: () = assert!(Kind::UDP == Kind::TCP << 1);
