//! Bits that the packets of a vector have in common.
//!
//! Theory of operation. If no packet has a maximum segment size option, or if all packets go to one subnet,
//! then no packet can match whole tables, entries or bit vectors. The summary allows this to be decided once
//! for all packets.

use mmb_packet::Window;
use mmb_packet::window::CHUNKS;

use crate::pattern::MaskedKey;

/// For each chunk: the bits that are set in all packets, and the bits that are set in any packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VectorSummary([(u128, u128); CHUNKS]);

impl VectorSummary {
    /// The summary of these chunks (a bit set). The first chunk is left out, since packets differ in it.
    pub fn new(windows: &[Window], chunks: u8) -> VectorSummary {
        let mut summary = VectorSummary([(0, u128::MAX); CHUNKS]);
        for (chunk, bits) in summary.0.iter_mut().enumerate().skip(1) {
            if chunks & 1 << chunk != 0 {
                let values = windows.iter().map(|window| window.chunk[chunk]);
                *bits = values.fold((u128::MAX, 0), |(all, any), value| (all & value, any | value));
            }
        }
        summary
    }

    /// Of one chunk: the bits that are set in all packets, and the bits that are set in any packet.
    #[inline]
    pub fn bits(&self, chunk: usize) -> (u128, u128) {
        self.0[chunk % CHUNKS]
    }

    /// The bits that are set in all packets, and those that are set in any. A field's value in a packet is
    /// between its values in these two.
    pub fn ends(&self) -> (Window, Window) {
        (Window { chunk: self.0.map(|(all, _)| all) }, Window { chunk: self.0.map(|(_, any)| any) })
    }

    /// Whether no packet of the vector can satisfy a cover.
    pub fn excludes_cover(&self, cover: &MaskedKey) -> bool {
        let each = self.0.iter().zip(cover.mask().iter().zip(cover.key()));
        each.fold(0, |never, ((all, any), (mask, key))| never | key & !any | mask & !key & all) != 0
    }
}
