//! Per-packet metadata: the result of the parse, which accompanies the packet through the graph.

use std::mem::offset_of;

use bitflags::bitflags;
use bytemuck::{Pod, Zeroable};

/// Which headers a packet carries, in one byte so that a classifier mask can test it: the low nibble is
/// the network layer (0 none, 4, 6), the high nibble the transport layer.
///
/// A transport nibble other than [`Kind::L4_NONE`] promises that the whole fixed header of that transport
/// (TCP 20 bytes, UDP 8, ICMP and ICMPv6 8) lies inside the packet at `Meta::l4_off`. Fragments other than
/// the first have `L4_NONE`; so have packets after an error of their transport header.
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

bitflags! {
    /// Flags of [`Meta::flags`].
    #[repr(transparent)]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
    pub struct PacketFlags: u8 {
        /// The packet is a fragment (first, middle or last).
        const FRAGMENT = 1 << 0;
        /// A fragment with an offset other than zero: it carries no transport header.
        const LATER_FRAGMENT = 1 << 1;
        /// An IPv6 routing header with segments left: the pseudo header's destination is not `ip6-daddr` (RFC
        /// 8200, 8.1).
        const ROUTED = 1 << 2;
        /// Another worker gave the packet to this one. Never set by a parse.
        const HANDED = 1 << 3;
        /// Hairpinning: the source has been translated, and the destination is the external address of an
        /// inside host. The packet is looked up again as if it had come from outside. Never set by a parse.
        const LOOPED = 1 << 4;
        /// The worker that got the packet by handoff had no room for its session and returned it. Never set
        /// by a parse.
        const REFUSED = 1 << 5;
        /// The worker that got the packet by handoff does not own its session and returned it. Never set by
        /// a parse.
        const ASTRAY = 1 << 6;
        /// The engine made the packet: no rule applies to it, and it causes no ICMP error. Never set by a
        /// parse.
        const OURS = 1 << 7;
    }
}

/// [`Meta::out_port`] of a packet whose output port a route lookup finds.
pub const OUT_ROUTED: u16 = 0xfffe;

/// One index that a node writes for the node behind it: a union in 32 bits, as `opaque` in VPP's buffers.
///
/// The member follows from the edge that the packet took. Builds with debug assertions keep a tag in the
/// upper bits and panic when a member is read that was not written last; other builds store the index alone.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct StageWord(u32);

/// The tags of [`StageWord`].
#[derive(Clone, Copy)]
#[repr(u32)]
enum StageTag {
    Edits = 1,
    NextHop,
    Ticket,
    Removals,
    Worker,
}

impl StageTag {
    const SHIFT: u32 = 28;
    const INDEX: u32 = if cfg!(debug_assertions) { (1 << Self::SHIFT) - 1 } else { u32::MAX };

    #[inline(always)]
    fn write(self, index: u32) -> StageWord {
        let tag = if cfg!(debug_assertions) { (self as u32) << Self::SHIFT } else { 0 };
        StageWord(index & Self::INDEX | tag)
    }

    #[inline(always)]
    fn read(self, word: StageWord) -> u32 {
        debug_assert_eq!(
            word.0 >> Self::SHIFT,
            self as u32,
            "a member of StageWord that was not written last"
        );
        word.0 & Self::INDEX
    }
}

impl StageWord {
    /// The first entry of an edit list in the worker's arena.
    #[inline(always)]
    pub fn from_edits(first: u32) -> Self {
        StageTag::Edits.write(first)
    }

    /// The number of a next hop (`mmb_route::HopId`).
    #[inline(always)]
    pub fn from_next_hop(id: u32) -> Self {
        StageTag::NextHop.write(id)
    }

    /// The ticket of a fragment that is held.
    #[inline(always)]
    pub fn from_ticket(ticket: u32) -> Self {
        StageTag::Ticket.write(ticket)
    }

    /// How many sessions had been removed when [`Meta::session`] was looked up.
    #[inline(always)]
    pub fn from_removals(removals: u32) -> Self {
        StageTag::Removals.write(removals)
    }

    /// The number of the worker that the packet is handed to.
    #[inline(always)]
    pub fn from_worker(worker: u16) -> Self {
        StageTag::Worker.write(worker.into())
    }

    /// The first entry of the edit list.
    #[inline(always)]
    pub fn edits(self) -> u32 {
        StageTag::Edits.read(self)
    }

    /// The next hop.
    #[inline(always)]
    pub fn next_hop(self) -> u32 {
        StageTag::NextHop.read(self)
    }

    /// The ticket of a held fragment.
    #[inline(always)]
    pub fn ticket(self) -> u32 {
        StageTag::Ticket.read(self)
    }

    /// Whether no session has been removed since: `removals` is the count of now.
    #[inline(always)]
    pub fn is_removals(self, removals: u32) -> bool {
        self == Self::from_removals(removals)
    }

    /// The worker that the packet is handed to.
    #[inline(always)]
    pub fn worker(self) -> u16 {
        StageTag::Worker.read(self) as u16
    }
}

/// The metadata of a packet (an mbuf dynamic field in the dataplane). Offsets are bytes from the start of the
/// frame. 28 bytes; the size is part of the dataplane's layout and asserted at compile time.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Meta {
    /// Symmetric hash of the 5-tuple: both directions of a flow have the same. Addresses and protocol only
    /// for fragments and for packets without a transport header.
    pub flow_hash: u32,
    /// The index that a node writes for the next one: an edit list, a next hop, …
    pub stage: StageWord,
    /// Entries of the packet's edit list ([`Meta::edits`]); 0: nothing to edit.
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
    /// What a parse found besides headers, and how the packet came here.
    pub flags: PacketFlags,
    /// Why the packet is dropped, once it is ([`crate::DropReason`] as a number).
    pub drop_reason: u8,
    /// The session that the packet belongs to, as the flow table of its worker numbers them; see
    /// `mmb_flow::FlowRef`.
    pub session: u32,
}

impl Meta {
    /// Sets the entries of the worker's arena that edit the packet.
    #[inline(always)]
    pub fn set_edits(&mut self, first: u32, len: u16) {
        self.stage = StageWord::from_edits(first);
        self.edits_len = len;
    }

    /// The packet's entries in the worker's arena of edits.
    #[inline(always)]
    pub fn edits(&self) -> std::ops::Range<usize> {
        // Without edits, the word may hold another member.
        let is_unset = cfg!(debug_assertions) && self.edits_len == 0;
        let first = if is_unset { 0 } else { self.stage.edits() as usize };
        first..first + usize::from(self.edits_len)
    }

    /// Writes the result of a parse in three stores. `tag` holds [`Meta::kind`], [`Meta::proto`],
    /// [`Meta::flags`] and the drop reason, from the lowest byte on.
    #[inline(always)]
    pub(crate) fn set_ip(&mut self, flow_hash: u32, l4: usize, end: usize, tag: u32) {
        let [hash, _, _, ends, _, what, _]: &mut [u32; 7] = bytemuck::cast_mut(self);
        *hash = flow_hash;
        *ends = bytemuck::cast([l4 as u16, crate::bytes::saturate(end)]);
        *what = bytemuck::cast(tag.to_le_bytes());
    }

    /// Writes the result of a parse of a frame that is not (readable) IP: it ends where its bytes end.
    pub(crate) fn set_no_ip(&mut self, frame_len: usize) {
        self.flow_hash = 0;
        self.l4_off = self.l3_off;
        self.end = crate::bytes::saturate(frame_len);
        self.kind = Kind(0);
        self.proto = 0;
        self.flags = PacketFlags::empty();
        self.drop_reason = 0;
    }
}

const _: () = assert!(size_of::<Meta>() == 28);
// As Meta::set_ip has it.
const _: () =
    assert!(offset_of!(Meta, l4_off) == 12 && offset_of!(Meta, kind) == 20 && offset_of!(Meta, flags) == 22);
