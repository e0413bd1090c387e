//! The windows of a vector in columns.
//!
//! Theory of operation. Most steps of a lookup read one chunk of all packets. Columns have that chunk side by
//! side, so that kernels handle several packets with one instruction. Only AVX-512 gains from that.

use mmb_packet::Window;
use mmb_packet::window::CHUNKS;

#[cfg(target_arch = "x86_64")]
use super::avx512;
use crate::leaf::PreFilter;
use crate::vector::{Simd, VECTOR, VectorSummary};

/// Number of packets that kernels handle together.
pub(crate) const LANES: usize = 8;

/// Length of a column: [`LANES`] elements can be read from any packet on.
const ROOM: usize = VECTOR + LANES;

/// Columns of chunks; reused for each vector.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
#[derive(Clone, Debug)]
pub(crate) struct Columns(pub Box<[ChunkColumns; CHUNKS]>);

/// One chunk of all packets: its first eight bytes, and its last. Elements behind the last packet are
/// undefined.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
#[repr(align(64))]
#[derive(Clone, Debug)]
pub(crate) struct ChunkColumns {
    pub lower: [u64; ROOM],
    pub upper: [u64; ROOM],
}

impl Default for Columns {
    fn default() -> Self {
        Columns(Box::new([const { ChunkColumns { lower: [0; ROOM], upper: [0; ROOM] } }; CHUNKS]))
    }
}

impl Columns {
    /// The columns of a chunk.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn chunk(&self, chunk: usize) -> &ChunkColumns {
        &self.0[chunk % CHUNKS]
    }

    /// Reads `chunks` (a bit set) of windows, if AVX-512 is available. Returns the windows' summary.
    #[allow(unsafe_code)]
    pub fn load(&mut self, windows: &[Window], chunks: u8, simd: Simd) -> VectorSummary {
        #[cfg(target_arch = "x86_64")]
        if simd.has_avx512() && !windows.is_empty() {
            let eight = |first: usize| match windows[first..].first_chunk() {
                Some([a, b, c, d, e, f, g, h]) => [a, b, c, d, e, f, g, h],
                None => std::array::from_fn(|packet| &windows[(first + packet).min(windows.len() - 1)]),
            };
            // SAFETY: the level says that the processor has the instructions.
            return unsafe { avx512::load(self, windows.len(), eight, chunks) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = simd;
        VectorSummary::new(windows, chunks)
    }

    /// Collects those of the first `n` packets that a filter does not exclude; returns their number. Without
    /// AVX-512 it counts all.
    #[allow(unsafe_code)]
    pub fn query_pre_filter(
        &self,
        filter: &PreFilter,
        n: usize,
        simd: Simd,
        packets: &mut [u16; VECTOR],
    ) -> usize {
        #[cfg(target_arch = "x86_64")]
        if simd.has_avx512() {
            // SAFETY: the level says that the processor has the instructions.
            return unsafe { avx512::query_pre_filter(filter, self.chunk(0), n, packets) };
        }
        let _ = (filter, packets, simd);
        n
    }

    /// Replaces the windows by those of `heads`.
    #[allow(unsafe_code)]
    pub fn select(&mut self, heads: &[u16], windows: &[Window], chunks: u8, simd: Simd) {
        #[cfg(target_arch = "x86_64")]
        if simd.has_avx512() && !heads.is_empty() {
            let window = |head: usize| &windows[usize::from(heads[head.min(heads.len() - 1)])];
            let eight = |first: usize| std::array::from_fn(|head| window(first + head));
            // SAFETY: the level says that the processor has the instructions.
            unsafe { avx512::load(self, heads.len(), eight, chunks) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (heads, windows, chunks, simd);
    }
}
