//! What a worker needs to find the rules that match, and to apply their edits.

use mmb_policy::Batch;
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

use crate::engine::node::vector::WholeVector;

/// Bytes of the longest IP packet with its link header and tags. A longer frame makes the buffer grow once.
pub(crate) const FRAME_BYTES: usize = 65_536 + 128;

/// Buffers of rule matching.
pub(crate) struct RuleScratch {
    /// Header windows of a vector, and the rules that match.
    batch: Box<Batch>,
    /// The vector whose windows are filled for `classify`, if nothing has used `batch` since.
    filled: Option<WholeVector>,
    /// Edit lists of this walk's packets: rule slots in rule order.
    pub edits: Vec<u32>,
    /// One packet of several buffers in one piece, for rules that look at bytes.
    pub frame: Vec<u8>,
    random: SmallRng,
}

impl RuleScratch {
    pub fn new(seed: u64) -> RuleScratch {
        RuleScratch {
            batch: Box::default(),
            filled: None,
            edits: Vec::with_capacity(1024),
            frame: Vec::with_capacity(FRAME_BYTES),
            random: SmallRng::seed_from_u64(seed),
        }
    }

    /// The parts that the ingress hook of `classify` fills.
    #[inline(always)]
    pub fn hook_parts(&mut self) -> (&mut Batch, &mut Option<WholeVector>) {
        (&mut self.batch, &mut self.filled)
    }

    /// The vector whose windows are filled.
    #[inline(always)]
    pub fn take_filled(&mut self) -> Option<WholeVector> {
        self.filled.take()
    }

    /// The parts that a lookup uses: the batch, the buffer for packets of several buffers, and the edit
    /// lists. The lookup may write the windows, so that they no longer count as filled.
    #[inline(always)]
    pub fn lookup_parts(&mut self) -> (&mut Batch, &mut Vec<u8>, &mut Vec<u32>) {
        self.filled = None;
        (&mut self.batch, &mut self.frame, &mut self.edits)
    }

    /// The parts that a decision uses: the batch, the edit lists, and random numbers for `drop P`.
    pub fn decision_parts(&mut self) -> (&mut Batch, &mut Vec<u32>, impl FnMut() -> u32) {
        let RuleScratch { batch, edits, random, .. } = self;
        (batch, edits, || random.next_u32())
    }
}
