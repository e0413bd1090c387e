//! Header parsing over byte slices: one parse per packet, the canonical window, incremental checksums.
//!
//! The crate knows no mbuf, socket or clock. A packet is a slice of its first bytes plus its length
//! ([`parse`], [`fill_window`], [`checksum`]). Where bytes are inserted or removed it is a [`PacketBuf`].
//!
//! The steps for a packet are:
//!
//! 1. [`parse_l2`] skips the VLAN tags.
//! 2. [`parse_ip4`] or [`parse_ip6`] finds the headers and writes their offsets into [`Meta`].
//! 3. [`fill_window`] copies header fields to the offsets that the classifier compares. It also indexes TCP
//!    options and extension headers for policies that match on them.
//! 4. [`tcp_options`] and [`payload()`] read what the window does not hold.
//!
//! All functions are total: no frame, however short or malformed, makes them panic.

#![deny(unsafe_code)]

mod buf;
pub mod build;
mod bytes;
pub mod checksum;
mod hash;
mod ip4;
mod ip6;
mod l2;
mod large;
mod loc;
mod meta;
mod options;
mod payload;
pub mod prefetch;
mod reason;
mod transport;
pub mod window;

pub use buf::{PacketBuf, TailSegments, VecPacket};
pub use hash::{FlowHashKey, flow_hash4, flow_hash6, set_flow_hash_key};
pub use ip4::{parse_ip4, parse_plain_ip4};
pub use ip6::{parse_ip6, parse_plain_ip6};
pub use l2::{ETHERTYPE_IP4, ETHERTYPE_IP6, L2, is_vlan_tag, parse_l2};
pub use large::{LargeFrame, MergePackets, MergeRole, Merger, SegmentPlace, TcpSegment, Train};
pub use loc::{Ip6Ext, Loc, NamedOption};
pub use meta::{Kind, Meta, OUT_ROUTED, PacketFlags, StageWord};
pub use options::{TcpOption, TcpOptions, option_bit, shift_window, tcp_options};
pub use payload::{PayloadLayer, payload};
pub use reason::DropReason;
pub use transport::{ParsedHeaders, PlainHeaders};
pub use window::{Window, fill_plain_window, fill_window};

/// Minimum number of contiguous leading bytes that [`parse`] and [`fill_window`] need, unless the frame is
/// shorter.
///
/// It holds four VLAN tags, the longest IPv4 and TCP headers, and 100 bytes for IPv6 extension headers.
/// Longer headers fail with [`DropReason::HeaderTooLong`] unless the contiguous part is longer, too.
pub const HEAD_BYTES: usize = 256;

/// Parses a frame from its first byte: [`parse_l2`], then [`parse_ip4`] or [`parse_ip6`].
///
/// `head` is the contiguous beginning of the frame. `frame_len` is the length of the whole frame in bytes.
/// A frame that is not IP is not an error: `meta.kind` and the hash are 0, and both offsets point behind
/// the Ethernet header and its tags. The function clears the drop reason and leaves the edit list and the
/// output port of `meta` unchanged.
///
/// # Errors
/// The errors of [`parse_ip4`] and [`parse_ip6`], and [`DropReason::VlanDepth`] if a fifth VLAN tag may hide
/// a packet.
#[inline]
pub fn parse(head: &[u8], frame_len: usize, meta: &mut Meta) -> Result<(), DropReason> {
    let L2 { ethertype, l3_off } = parse_l2(head);
    meta.ethertype = ethertype;
    meta.l3_off = l3_off;
    match ethertype {
        ETHERTYPE_IP4 => parse_ip4(head, frame_len, meta),
        ETHERTYPE_IP6 => parse_ip6(head, frame_len, meta),
        _ => {
            meta.set_no_ip(frame_len);
            if is_vlan_tag(ethertype) { Err(DropReason::VlanDepth) } else { Ok(()) }
        }
    }
}
