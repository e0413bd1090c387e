//! What the packets of a vector have in common.
//!
//! Theory of operation. If no packet has a maximum segment size option, or if all packets go to one subnet,
//! then no packet can match whole tables, entries or bit vectors. The summary allows this to be decided once
//! for all packets.

use mmb_packet::Window;
use mmb_packet::window::CHUNKS;

use crate::pattern::MaskedKey;

/// A set of packet kinds: bit `kind_bit(kind)` for each.
pub(crate) type KindSet = u32;

/// The bit in a [`KindSet`] for a window's [`KIND`](mmb_packet::window::KIND) byte. Every
/// [`mmb_packet::Kind`] has a bit of its own.
#[inline(always)]
pub(crate) fn kind_bit(kind: u8) -> KindSet {
    1 << ((kind >> 3 & 0x1e) | (kind >> 1 & 1))
}

/// The summary of a vector.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VectorSummary {
    /// For each chunk: the bits that are set in all packets, and the bits that are set in any packet.
    bits: [(u128, u128); CHUNKS],
    /// The kinds of the packets, if known.
    pub kinds: Option<KindSet>,
    /// Number of packets with the same first chunk as the packet before them, if known.
    pub repeats: Option<usize>,
}

impl VectorSummary {
    /// The summary of any packets.
    pub const UNKNOWN: VectorSummary =
        VectorSummary { bits: [(0, u128::MAX); CHUNKS], kinds: None, repeats: None };

    /// The summary of windows and of `chunks` (a bit set). The bits of the first chunk are left out, since
    /// packets differ in it.
    pub fn new(windows: &[Window], chunks: u8) -> VectorSummary {
        let mut summary = VectorSummary::UNKNOWN;
        for (chunk, bits) in summary.bits.iter_mut().enumerate().skip(1) {
            if chunks & 1 << chunk != 0 {
                let values = windows.iter().map(|window| window.chunk[chunk]);
                *bits = values.fold((u128::MAX, 0), |(all, any), value| (all & value, any | value));
            }
        }
        summary
    }

    /// Sets the bits of a chunk.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub fn set_bits(&mut self, chunk: usize, ends: (u128, u128)) {
        self.bits[chunk % CHUNKS] = ends;
    }

    /// Of one chunk: the bits that are set in all packets, and the bits that are set in any packet.
    #[inline]
    pub fn bits(&self, chunk: usize) -> (u128, u128) {
        self.bits[chunk % CHUNKS]
    }

    /// The bits that are set in all packets, and those that are set in any. A field's value in a packet is
    /// between its values in these two.
    pub fn ends(&self) -> (Window, Window) {
        (Window { chunk: self.bits.map(|(all, _)| all) }, Window { chunk: self.bits.map(|(_, any)| any) })
    }

    /// Whether no packet of the vector can satisfy a cover.
    pub fn excludes_cover(&self, cover: &MaskedKey) -> bool {
        let each = self.bits.iter().zip(cover.mask().iter().zip(cover.key()));
        each.fold(0, |never, ((all, any), (mask, key))| never | key & !any | mask & !key & all) != 0
    }
}
