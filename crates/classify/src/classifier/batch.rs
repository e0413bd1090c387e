//! A batch: a vector of packets, its hits, and the state that a worker keeps between vectors.

use mmb_packet::Window;

use crate::lookup::{AdaptiveState, Columns, DeferredWork, HeadHits, Heads, MatchCache};
use crate::predicate::PredicateResults;
use crate::vector::{Hit, Simd, VECTOR};

/// A vector of packets with its hits. A worker creates one batch and uses it for every vector; memory is
/// allocated only until the buffers have grown to what rules and traffic need.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The packets' windows. The caller fills the first `len` with [`mmb_packet::fill_window`], at least the
    /// chunks in [`crate::Classifier::chunks`].
    pub windows: Box<[Window; VECTOR]>,
    /// Number of windows. Windows beyond [`VECTOR`] are ignored.
    pub len: usize,
    /// All matching rules of all packets, in ascending order of packets, without an order within a packet.
    pub hits: Vec<Hit>,
    /// Hits of heads, before the expansion to all packets.
    pub(crate) head_hits: HeadHits,
    pub(crate) heads: Heads,
    /// The windows in columns.
    pub(crate) columns: Columns,
    pub(crate) deferred: DeferredWork,
    /// Predicates that are true for the packets.
    pub(crate) results: PredicateResults,
    /// Matches of recent packets.
    pub(crate) cache: MatchCache,
    pub(crate) adaptive: AdaptiveState,
    /// The instructions to use.
    pub(crate) simd: Simd,
    /// For the lookup of the elements of named sets. None until it is needed.
    pub(crate) members: Option<Box<Batch>>,
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl Batch {
    /// An empty batch with room for one hit per packet.
    pub fn new() -> Self {
        Batch {
            windows: Box::new([Window::default(); VECTOR]),
            len: 0,
            hits: Vec::with_capacity(VECTOR),
            head_hits: HeadHits::default(),
            heads: Heads::default(),
            columns: Columns::default(),
            deferred: DeferredWork::default(),
            results: PredicateResults::default(),
            cache: MatchCache::default(),
            adaptive: AdaptiveState::default(),
            simd: Simd::detect(),
            members: None,
        }
    }

    /// This batch for portable code only. The hits are the same. For tests and measurements.
    pub fn without_wide_vectors(self) -> Self {
        Batch { simd: Simd::PORTABLE, ..self }
    }
}
