//! The packets of a vector, for the sessions.

use mmb_dpdk::Packet;
use mmb_packet::{Meta, StageWord};
use mmb_route::{NextHop, NextHops};
use mmb_session::Packets;

use crate::engine::node::vector::AHEAD;
use crate::features::route::forward::{forward4, forward6};

/// A vector's packets, and the next hops by which sessions forward them.
pub(super) struct PacketBatch<'a, 'b> {
    pub packets: &'a mut [&'b mut Packet],
    /// None if packets are not routed.
    pub hops: Option<&'a NextHops>,
}

impl PacketBatch<'_, '_> {
    /// Forwards a packet to a next hop by `rewrite`.
    #[inline(always)]
    fn forward(
        &mut self,
        at: usize,
        hop: u16,
        rewrite: impl Fn(&mut [u8], &mut Meta, &NextHop) -> bool,
    ) -> bool {
        let Some(hops) = self.hops else { return false };
        let (head, meta) = self.packets[at].data_and_meta();
        meta.stage = StageWord::from_next_hop(hop.into());
        rewrite(head, meta, hops.get(hop.into()))
    }
}

impl Packets for PacketBatch<'_, '_> {
    #[inline]
    fn len(&self) -> usize {
        self.packets.len()
    }

    #[inline]
    fn head(&self, at: usize) -> &[u8] {
        self.packets[at].data()
    }

    #[inline]
    fn meta(&self, at: usize) -> &Meta {
        self.packets[at].meta()
    }

    #[inline]
    fn head_and_meta(&mut self, at: usize) -> (&mut [u8], &mut Meta) {
        self.packets[at].data_and_meta()
    }

    #[inline]
    fn in_port(&self, at: usize) -> u16 {
        self.packets[at].port()
    }

    #[inline]
    fn bytes(&self, at: usize) -> u32 {
        self.packets[at].pkt_len() as u32
    }

    #[inline(always)]
    fn head_mut(&mut self, at: usize) -> &mut [u8] {
        self.packets[at].data_mut()
    }

    #[inline(always)]
    fn meta_mut(&mut self, at: usize) -> &mut Meta {
        self.packets[at].meta_mut()
    }

    #[inline(always)]
    fn prefetch_meta(&self, at: usize) {
        if let Some(packet) = self.packets.get(at) {
            packet.prefetch_meta();
        }
    }

    #[inline(always)]
    fn can_forward(&self) -> bool {
        self.hops.is_some()
    }

    #[inline(always)]
    fn forward4(&mut self, at: usize, hop: u16) -> bool {
        self.forward(at, hop, forward4)
    }

    #[inline(always)]
    fn forward6(&mut self, at: usize, hop: u16) -> bool {
        self.forward(at, hop, forward6)
    }

    #[inline(always)]
    fn prefetch_forward(&self, at: usize) {
        if let Some(packet) = self.packets.get(at + AHEAD) {
            packet.prefetch_header();
        }
        if let Some(packet) = self.packets.get(at) {
            packet.prefetch_data();
        }
    }

    #[inline(always)]
    fn prefetch_bytes(&self, at: usize) {
        if let Some(packet) = self.packets.get(at + AHEAD) {
            packet.prefetch_buffer_address();
        }
        if let Some(packet) = self.packets.get(at) {
            packet.prefetch_data();
        }
    }

    #[inline(always)]
    fn prefetch(&self, at: usize) {
        if let Some(packet) = self.packets.get(at) {
            packet.prefetch_header();
            packet.prefetch_data();
        }
    }
}
