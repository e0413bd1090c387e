//! Header views over bytes: one parse per packet, the canonical window, incremental checksums.
//!
//! Nothing here knows an mbuf, a socket or a clock. A packet is a slice of its first bytes and its length ([`parse`],
//! [`fill_window`], [`checksum`]), or a [`PacketBuf`] where bytes have to be inserted or taken away.
//!
//! The life of a packet here: [`parse_l2`] walks the VLAN tags, [`parse_ip4`] or [`parse_ip6`] finds where the headers
//! stand and writes that into [`Meta`]; [`fill_window`] copies the header fields to the places where the classifier
//! compares them, with an index of TCP options and extension headers for policies that ask about these. What no window
//! holds, [`tcp_options`] and [`payload()`] find. All functions are total: there is no frame, however short or broken,
//! on which they panic.

#![deny(unsafe_code)]

mod buf;
pub mod build;
mod bytes;
pub mod checksum;
mod hash;
mod ip4;
mod ip6;
mod l2;
mod loc;
mod meta;
mod options;
mod payload;
pub mod prefetch;
mod reason;
mod transport;
pub mod window;

pub use buf::{PacketBuf, VecPacket};
pub use hash::{flow_hash4, flow_hash6};
pub use ip4::{parse_ip4, parse_plain_ip4};
pub use ip6::{parse_ip6, parse_plain_ip6};
pub use l2::{ETHERTYPE_IP4, ETHERTYPE_IP6, L2, parse_l2};
pub use loc::{Ip6Ext, Loc, NamedOption};
pub use meta::{Kind, Meta, OUT_ROUTED, StageWord, flags};
pub use options::{TcpOption, TcpOptions, tcp_options};
pub use payload::{PayloadLayer, payload};
pub use reason::DropReason;
pub use transport::ParsedHeaders;
pub use window::{Window, fill_window};

/// Fewest leading bytes of a frame that must be contiguous for [`parse`] and [`fill_window`]: a caller hands over at
/// least this many, or the whole frame if that is shorter. It holds four VLAN tags, the longest IPv4 and TCP headers,
/// and 100 bytes to spare for IPv6 extension headers; what is longer still is refused with
/// [`DropReason::HeaderTooLong`] unless the caller's contiguous part is longer too.
pub const HEAD_BYTES: usize = 256;

/// Parses a frame from its first byte: [`parse_l2`], then [`parse_ip4`] or [`parse_ip6`].
///
/// `head` is the contiguous beginning of the frame, `frame_len` the length of the whole of it, both in bytes. Ok for
/// frames that are not IP: `meta.kind` is 0, both offsets point behind the Ethernet header and its tags, the hash is 0.
/// `meta`'s edit list and output port are left alone, its drop reason is cleared.
///
/// # Errors
/// Those of [`parse_ip4`] and [`parse_ip6`].
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
            Ok(())
        }
    }
}
