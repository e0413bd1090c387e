//! The canonical header window: every fixed-offset field of a packet at one offset, whatever the packet's
//! layout.
//!
//! Theory of operation. The classifier compares `(window & mask) ^ key` on 16-byte chunks. The window is
//! not a copy of the headers in wire order but a canonical arrangement. Ports have the same offset with
//! IPv4 options, IPv6 extension headers or VLAN tags in the packet. The IPv4 5-tuple, the commonest of all
//! masks, fits the first chunk together with the packet's kind and input port, so a 5-tuple rule costs one
//! 16-byte compare.
//!
//! ```text
//! chunk 0   0 ip-saddr  4 ip-daddr   8 transport bytes 0..4 (ports; ICMP type, code, checksum)
//!          12 kind     13 ip-proto / ip6-next              14 input port (big endian)
//! chunk 1  16 ip6-saddr
//! chunk 2  32 ip6-daddr
//! chunk 3  48 transport bytes 4..20 (TCP seq to urgent pointer; UDP length, checksum;
//!             ICMP and ICMPv6 bytes 4..8)
//! chunk 4  64 IPv4 bytes 0..12 or IPv6 bytes 0..8   76 ethertype, 78 output port (big endian)
//! chunk 5  80 timestamp  88 mss  90 window scale (big endian)  91 TCP options present  92 with a value
//!          93 other TCP options present  94 IPv6 extension headers present (16 bits, big endian)
//! ```
//!
//! Bytes that a packet does not have are zero. The last chunk indexes headers without a fixed offset: TCP
//! options ([`NamedOption::bit`]; 0x01: any option) and extension headers ([`Ip6Ext::bit`]). It costs a
//! walk over them and is filled only for policies that match on them.
//!
//! [`NamedOption::bit`]: crate::NamedOption::bit
//! [`Ip6Ext::bit`]: crate::Ip6Ext::bit

use bytemuck::{Pod, Zeroable};

use crate::meta::{Kind, Meta};
use crate::options::OptionIndex;
use crate::transport::PlainHeaders;
use crate::{bytes, ip6};

/// Bytes of the window.
pub const BYTES: usize = 96;
/// Bytes of one chunk, the unit of masks and hashing.
pub const CHUNK: usize = 16;
/// Chunks of the window.
pub const CHUNKS: usize = BYTES / CHUNK;

/// Byte offset of the [`crate::Kind`] byte.
pub const KIND: usize = 12;
/// Byte offset of the input port, big endian.
pub const IN_PORT: usize = 14;
/// Byte offset of the ethertype after VLAN tags, big endian.
pub const ETHERTYPE: usize = 76;
/// Byte offset of the output port, big endian.
pub const OUT_PORT: usize = 78;
/// Byte offset of the timestamp option's value and echo reply, 8 bytes, big endian.
pub const OPTION_TIMESTAMP: usize = 80;
/// Byte offset of the maximum segment size, big endian.
pub const OPTION_MSS: usize = 88;
/// Byte offset of the window scale.
pub const OPTION_WSCALE: usize = 90;
/// Byte offset of the presence bits of TCP options.
pub const OPTIONS_PRESENT: usize = 91;
/// Byte offset of the bits of the TCP options whose value is in the window.
pub const OPTIONS_VALUED: usize = 92;
/// Byte offset of a byte that is 0x01 if there is a TCP option without a name, otherwise zero.
pub const UNNAMED_OPTIONS: usize = 93;
/// Byte offset of the presence bits of IPv6 extension headers, 16 bits, big endian.
pub const IP6_EXTENSIONS: usize = 94;

/// The canonical window of one packet: 96 bytes as six chunks, each a native-endian `u128` over its 16
/// bytes.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Window {
    /// The chunks; byte `i` of the window is byte `i % 16` in memory of `chunk[i / 16]`.
    pub chunk: [u128; CHUNKS],
}

const _: () = assert!(size_of::<Window>() == BYTES);

impl Window {
    /// The window as bytes, in the layout of the module's theory of operation.
    pub fn bytes(&self) -> &[u8; BYTES] {
        bytemuck::cast_ref(self)
    }

    /// The window as mutable bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8; BYTES] {
        bytemuck::cast_mut(self)
    }
}

/// The bytes of a header, or zeros if `head` is too short, which is impossible after a successful parse.
#[inline]
fn load<const N: usize>(head: &[u8], at: usize) -> [u8; N] {
    bytes::at(head, at).copied().unwrap_or([0; N])
}

/// Fills the chunks of `w` whose bits are set in `chunks` (bit `i`: chunk `i`) and leaves the others
/// unchanged.
///
/// `head` and `meta` are those of [`crate::parse`]. Ports are indexes of the dataplane's port table. For an
/// unknown output port the caller passes its own "none" value.
#[inline]
pub fn fill_window(head: &[u8], meta: &Meta, in_port: u16, out_port: u16, chunks: u8, w: &mut Window) {
    if chunks & 1 != 0 {
        w.chunk[0] = first_chunk(head, meta, in_port);
    }
    if chunks & 1 << 5 != 0 {
        w.chunk[5] = OptionIndex::of(head, meta).chunk(ip6::extensions(head, meta));
    }
    if chunks & 0b11110 != 0 {
        fill_others(head, meta, out_port, chunks, w);
    }
}

/// Does what [`fill_window`] does for a plain packet with these headers. Chunk 0 is always filled.
#[inline(always)]
pub fn fill_plain_window<H: PlainHeaders>(
    headers: &H,
    (head, meta): (&[u8], &Meta),
    in_port: u16,
    out_port: u16,
    chunks: u8,
    w: &mut Window,
) {
    w.chunk[0] = plain_first_chunk(headers, in_port);
    if chunks <= 1 {
        return;
    }
    let offsets = (usize::from(meta.l3_off), usize::from(headers.l4_off()));
    let kind = Kind(headers.tag() as u8 & Kind::L4_MASK | if H::IP6 { Kind::IP6 } else { Kind::IP4 });
    if chunks & 1 << 5 != 0 {
        let extensions = if H::IP6 { ip6::extensions(head, meta) } else { 0 };
        let options = OptionIndex::of_transport(head, offsets.1, kind.l4() == Kind::TCP);
        w.chunk[5] = options.chunk(extensions);
    }
    if chunks & 0b11110 != 0 {
        fill_fixed(head, offsets, kind, (meta.ethertype, out_port), chunks, w);
    }
}

#[inline(always)]
fn plain_first_chunk<H: PlainHeaders>(headers: &H, in_port: u16) -> u128 {
    let addresses = match headers.addresses().first_chunk() {
        Some(both) if !H::IP6 => u64::from_le_bytes(*both),
        _ => 0,
    };
    let (ports, tag) = (u32::from_le_bytes(headers.ports()), headers.tag() & 0xffff);
    let tail = u64::from(ports) | u64::from(tag) << 32 | u64::from(in_port.swap_bytes()) << 48;
    (u128::from(addresses) | u128::from(tail) << 64).to_le()
}

#[inline]
fn first_chunk(head: &[u8], meta: &Meta, in_port: u16) -> u128 {
    let l3 = usize::from(meta.l3_off);
    let (mut addresses, mut proto) = ([0; 8], 0);
    match meta.kind.l3() {
        Kind::IP4 => (addresses, proto) = (load(head, l3 + 12), meta.proto),
        // The field ip6-next is the fixed header's, not the last of the extension headers.
        Kind::IP6 => [proto] = load(head, l3 + 6),
        _ => {}
    }
    let mut transport = [0; 4];
    if meta.kind.l4() != Kind::L4_NONE {
        transport = load(head, usize::from(meta.l4_off));
    }
    let [in_hi, in_lo] = in_port.to_be_bytes();
    let tail: u64 = bytemuck::cast([transport, [meta.kind.0, proto, in_hi, in_lo]]);
    bytemuck::cast([u64::from_ne_bytes(addresses), tail])
}

#[inline(never)]
fn fill_others(head: &[u8], meta: &Meta, out_port: u16, chunks: u8, w: &mut Window) {
    let offsets = (usize::from(meta.l3_off), usize::from(meta.l4_off));
    fill_fixed(head, offsets, meta.kind, (meta.ethertype, out_port), chunks, w);
}

/// Fills the chunks 1 to 4.
#[inline(always)]
fn fill_fixed(
    head: &[u8],
    (l3, l4): (usize, usize),
    kind: Kind,
    link: (u16, u16),
    chunks: u8,
    w: &mut Window,
) {
    let is_ip6 = kind.l3() == Kind::IP6;
    if chunks & 1 << 1 != 0 {
        w.chunk[1] = if is_ip6 { u128::from_ne_bytes(load(head, l3 + 8)) } else { 0 };
    }
    if chunks & 1 << 2 != 0 {
        w.chunk[2] = if is_ip6 { u128::from_ne_bytes(load(head, l3 + 24)) } else { 0 };
    }
    if chunks & 1 << 3 != 0 {
        // Loads more bytes than ICMP or UDP have and masks them: a branch on the protocol would be
        // mispredicted often.
        let more = match bytes::at::<CHUNK>(head, l4 + 4) {
            Some(more) => u128::from_ne_bytes(*more),
            None => four(load(head, l4 + 4)),
        };
        w.chunk[3] = more & MORE_OF[usize::from(kind.0 >> 4)];
    }
    if chunks & 1 << 4 != 0 {
        w.chunk[4] = net_chunk(head, l3, kind, link);
    }
}

/// A chunk of four bytes and zeros.
const fn four([a, b, c, d]: [u8; 4]) -> u128 {
    u128::from_ne_bytes([a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
}

/// By transport nibble: the transport bytes 4..20 that belong to the fixed header.
static MORE_OF: [u128; 16] = {
    let mut masks = [0; 16];
    masks[Kind::TCP as usize >> 4] = u128::MAX;
    masks[Kind::UDP as usize >> 4] = four([0xff; 4]);
    masks[Kind::ICMP as usize >> 4] = four([0xff; 4]);
    masks[Kind::ICMP6 as usize >> 4] = four([0xff; 4]);
    masks
};

#[inline(always)]
fn net_chunk(head: &[u8], l3: usize, kind: Kind, (ethertype, out_port): (u16, u16)) -> u128 {
    let mut ip = [0; 12];
    match kind.l3() {
        Kind::IP4 => ip = load(head, l3),
        Kind::IP6 => ip[..8].copy_from_slice(&load::<8>(head, l3)),
        _ => {}
    }
    let ([a, b], [c, d]) = (ethertype.to_be_bytes(), out_port.to_be_bytes());
    let mut chunk = [0; CHUNK];
    chunk[..12].copy_from_slice(&ip);
    chunk[12..].copy_from_slice(&[a, b, c, d]);
    u128::from_ne_bytes(chunk)
}

#[cfg(test)]
mod tests;
