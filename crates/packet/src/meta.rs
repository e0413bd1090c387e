//! Per-packet metadata: what the one parse of a packet found, carried beside it through the graph.

use std::mem::offset_of;

use bytemuck::{Pod, Zeroable};

/// Which headers a packet carries, in one byte so that a classifier mask can test it: the low nibble is
/// the network layer (0 none, 4, 6), the high nibble the transport layer.
///
/// A transport nibble other than [`Kind::L4_NONE`] promises that the whole fixed header of that transport
/// (TCP 20 bytes, UDP 8, ICMP and ICMPv6 8) lies inside the packet at `Meta::l4_off`; packets whose transport header
/// is cut short and fragments other than the first have `L4_NONE`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Kind(pub u8);

impl Kind {
    /// Mask of the network-layer nibble.
    pub const L3_MASK: u8 = 0x0f;
    /// Mask of the transport-layer nibble.
    pub const L4_MASK: u8 = 0xf0;
    /// IPv4.
    pub const IP4: u8 = 0x04;
    /// IPv6.
    pub const IP6: u8 = 0x06;
    /// No (readable) transport header.
    pub const L4_NONE: u8 = 0x00;
    /// TCP.
    pub const TCP: u8 = 0x10;
    /// UDP.
    pub const UDP: u8 = 0x20;
    /// ICMP (over IPv4).
    pub const ICMP: u8 = 0x30;
    /// ICMPv6 (over IPv6).
    pub const ICMP6: u8 = 0x40;

    /// The network-layer nibble: 0, [`Kind::IP4`] or [`Kind::IP6`].
    pub fn l3(self) -> u8 {
        self.0 & Self::L3_MASK
    }

    /// The transport-layer nibble: [`Kind::L4_NONE`], [`Kind::TCP`], …
    pub fn l4(self) -> u8 {
        self.0 & Self::L4_MASK
    }
}

/// Flag bits of [`Meta::flags`].
pub mod flags {
    /// The packet is a fragment (first, middle or last).
    pub const FRAGMENT: u8 = 1 << 0;
    /// A fragment with an offset other than zero: it carries no transport header.
    pub const LATER_FRAGMENT: u8 = 1 << 1;
    /// An IPv6 routing header with segments left: the pseudo header's destination is not `ip6-daddr` (RFC 8200, 8.1).
    pub const ROUTED: u8 = 1 << 2;
    /// Another worker gave the packet to this one. Never set by a parse.
    pub const HANDED: u8 = 1 << 3;
    /// Its source has been translated, and it is to be translated once more as if it had come from outside, since it is
    /// for an address that stands for somebody inside. Never set by a parse.
    pub const LOOPED: u8 = 1 << 4;
    /// The worker that it was given to had no room for it and gave it back. Never set by a parse.
    pub const REFUSED: u8 = 1 << 5;
    /// The worker that it was given to has nothing to do with it, and gave it back. Never set by a parse.
    pub const ASTRAY: u8 = 1 << 6;
    /// It was made here, about another packet: no rule applies to it, and nobody is told when it goes nowhere. Never set by
    /// a parse.
    pub const OURS: u8 = 1 << 7;
}

/// [`Meta::out_port`] of a packet whose way is the routing's to find.
pub const OUT_ROUTED: u16 = 0xfffe;

/// What rides with every packet (an mbuf dynamic field in the dataplane). Offsets are bytes from the start of the
/// frame. 28 bytes; the size is part of the dataplane's layout and asserted at compile time.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Meta {
    /// Symmetric hash of the 5-tuple: both directions of a flow have the same. Addresses and protocol only
    /// for fragments and for packets without a transport header.
    pub flow_hash: u32,
    /// First entry of the packet's edit list in the worker's arena; behind the edits, the number of its next hop.
    pub edits_at: u32,
    /// Length of that list; 0: nothing to edit.
    pub edits_len: u16,
    /// Network header.
    pub l3_off: u16,
    /// Transport header (after IPv4 options or IPv6 extension headers), or the end of the headers.
    pub l4_off: u16,
    /// End of the IP packet (padding and trailers lie behind it), saturated at 65,535.
    pub end: u16,
    /// Ethertype after VLAN tags, host order.
    pub ethertype: u16,
    /// Output port, as an index of the dataplane's port table, or [`OUT_ROUTED`].
    pub out_port: u16,
    /// Which headers there are.
    pub kind: Kind,
    /// The transport protocol number behind extension headers (IANA protocol numbers).
    pub proto: u8,
    /// Bits of [`flags`].
    pub flags: u8,
    /// Why the packet is dropped, once it is ([`crate::DropReason`] as a number).
    pub drop_reason: u8,
    /// The session that the packet belongs to, as the flow table of its worker numbers them; see `mmb_flow::FlowRef`.
    pub session: u32,
}

impl Meta {
    /// What a parse finds: `tag` has [`Meta::kind`], [`Meta::proto`] and [`Meta::flags`], from the lowest byte on. The drop reason goes
    /// with them, so that all is three stores.
    #[inline(always)]
    pub(crate) fn set_ip(&mut self, flow_hash: u32, l4: usize, end: usize, tag: u32) {
        let [hash, _, _, ends, _, what, _]: &mut [u32; 7] = bytemuck::cast_mut(self);
        *hash = flow_hash;
        *ends = bytemuck::cast([l4 as u16, crate::bytes::saturate(end)]);
        *what = bytemuck::cast(tag.to_le_bytes());
    }

    /// What a parse leaves for a frame that is not (readable) IP: the frame ends where its bytes do.
    pub(crate) fn set_no_ip(&mut self, frame_len: usize) {
        self.flow_hash = 0;
        self.l4_off = self.l3_off;
        self.end = crate::bytes::saturate(frame_len);
        self.kind = Kind(0);
        self.proto = 0;
        self.flags = 0;
        self.drop_reason = 0;
    }
}

const _: () = assert!(size_of::<Meta>() == 28);
// As Meta::set_ip has it.
const _: () =
    assert!(offset_of!(Meta, l4_off) == 12 && offset_of!(Meta, kind) == 20 && offset_of!(Meta, flags) == 22);
