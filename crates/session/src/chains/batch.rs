//! Packets on their way to the chains of their sessions.

use arrayvec::ArrayVec;
use mmb_flow::FlowRef;
use mmb_nf::Packet;
use mmb_packet::Meta;
use mmb_policy::VECTOR;

use super::OUT_HAIRPIN;

/// Returns a packet with outcome [`crate::Next::Chain`] for [`crate::Sessions::process_chain`]. `len`: the
/// length of its frame.
#[inline(always)]
pub fn chain_packet<'a>(head: &'a mut [u8], meta: &'a mut Meta, len: u32, in_port: u16) -> Packet<'a> {
    let flow = FlowRef(meta.session);
    let (direction, session) = (flow.direction(), flow.session());
    Packet { head, tail: None, meta, len, segment_size: 0, in_port, direction, session }
}

/// At most [`VECTOR`] packets for [`crate::Sessions::process_chain`], and what is known of all of them.
#[derive(Debug, Default)]
pub struct ChainBatch<'a> {
    pub(crate) packets: ArrayVec<Packet<'a>, VECTOR>,
    has_edits: bool,
    /// A packet is to be hairpinned behind its chain.
    pub(crate) has_hairpins: bool,
}

impl<'a> ChainBatch<'a> {
    /// Returns an empty batch.
    #[inline(always)]
    pub fn new() -> Self {
        ChainBatch::default()
    }

    /// Adds packets.
    ///
    /// # Panics
    /// If there are more than [`VECTOR`].
    #[inline(always)]
    pub fn extend(&mut self, packets: impl Iterator<Item = Packet<'a>>) {
        let (mut has_edits, mut has_hairpins) = (false, false);
        for packet in packets {
            has_edits |= packet.meta.edits_len != 0;
            has_hairpins |= packet.meta.out_port == OUT_HAIRPIN;
            self.packets.push(packet);
        }
        self.has_edits |= has_edits;
        self.has_hairpins |= has_hairpins;
    }

    /// Returns the number of packets.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether there are no packets.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Whether a packet had edits of rules when it was added.
    #[inline(always)]
    pub fn has_edits(&self) -> bool {
        self.has_edits
    }
}

impl<'a> FromIterator<Packet<'a>> for ChainBatch<'a> {
    fn from_iter<I: IntoIterator<Item = Packet<'a>>>(packets: I) -> Self {
        let mut batch = ChainBatch::new();
        batch.extend(packets.into_iter());
        batch
    }
}
