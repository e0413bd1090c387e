//! Recent samples of flows that the kernel does not have: how many there were, and which flows are suspended.

use std::hash::{BuildHasher, RandomState};

use super::sampled::SampledFlow;

/// Flows that are counted at a time. A power of two.
const CELLS: usize = 1024;
/// Samples within [`WINDOW`] that make a flow frequent.
const FREQUENT: u8 = 4;
/// Milliseconds.
const WINDOW: u32 = 1000;

#[derive(Clone, Copy, Default)]
struct Cell {
    /// The flow's hash. Flows with equal hashes are confused, which delays one of them.
    hash: u64,
    /// The time of the first sample, or the end of the suspension.
    since: u32,
    count: u8,
    is_suspended: bool,
}

/// Recent samples: a direct-mapped cache by hash.
pub(crate) struct SampleCache {
    cells: Box<[Cell]>,
    /// Keyed at random, so that no sender can occupy another flow's cell on purpose.
    hasher: RandomState,
}

impl SampleCache {
    pub fn new() -> SampleCache {
        SampleCache { cells: vec![Cell::default(); CELLS].into(), hasher: RandomState::new() }
    }

    fn cell(&mut self, flow: &SampledFlow) -> (&mut Cell, u64) {
        let hash = self.hasher.hash_one(flow);
        (&mut self.cells[hash as usize % CELLS], hash)
    }

    /// Counts a sample of a flow and returns whether the flow is frequent. None: the flow is suspended.
    pub fn count(&mut self, flow: &SampledFlow, now: u32) -> Option<bool> {
        let (cell, hash) = self.cell(flow);
        if cell.hash == hash && cell.is_suspended && cell.since.wrapping_sub(now).cast_signed() > 0 {
            return None;
        }
        if cell.hash != hash || cell.is_suspended || now.wrapping_sub(cell.since) > WINDOW {
            *cell = Cell { hash, since: now, count: 0, is_suspended: false };
        }
        cell.count = cell.count.saturating_add(1);
        Some(cell.count >= FREQUENT)
    }

    /// Suspends a flow for so many milliseconds.
    pub fn suspend(&mut self, flow: &SampledFlow, now: u32, milliseconds: u32) {
        let (cell, hash) = self.cell(flow);
        *cell = Cell { hash, since: now.wrapping_add(milliseconds), count: 0, is_suspended: true };
    }

    /// Forgets all samples and suspensions.
    pub fn clear(&mut self) {
        self.cells.fill(Cell::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::key;

    const PAUSE: u32 = 1000;

    fn flow(n: u16) -> SampledFlow {
        SampledFlow { key: key(n), handed_off: false }
    }

    #[test]
    fn the_fourth_sample_of_a_second_makes_a_flow_frequent() {
        let mut samples = SampleCache::new();
        let early = [5, 300, 900, 1004].map(|now| samples.count(&flow(1), now));
        assert_eq!(early, [Some(false), Some(false), Some(false), Some(true)]);
        // A slow flow is never frequent.
        assert!((0..50).all(|n| samples.count(&flow(2), n * 400) == Some(false)));
        // The time may wrap.
        let late = [u32::MAX - 9, u32::MAX, 5, 90].map(|now| samples.count(&flow(3), now));
        assert_eq!(late, [Some(false), Some(false), Some(false), Some(true)]);
    }

    #[test]
    fn a_suspended_flow_is_not_sampled() {
        let mut samples = SampleCache::new();
        assert!((0..4).any(|now| samples.count(&flow(1), now) == Some(true)));
        samples.suspend(&flow(1), 10, PAUSE);
        assert!((11..100).all(|now| samples.count(&flow(1), now).is_none()));
        let handed_off = SampledFlow { handed_off: true, ..flow(1) };
        assert_eq!(samples.count(&handed_off, 11), Some(false), "a flow of its own");
        assert_eq!(samples.count(&flow(1), 10 + PAUSE), Some(false));
        assert!((1..4).any(|n| samples.count(&flow(1), 10 + PAUSE + n) == Some(true)));
    }

    #[test]
    fn clearing_ends_suspensions() {
        let mut samples = SampleCache::new();
        samples.suspend(&flow(1), 10, PAUSE);
        samples.clear();
        assert_eq!(samples.count(&flow(1), 11), Some(false));
    }
}
