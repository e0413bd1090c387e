//! Recent samples of flows that the kernel does not have: how many there were, and which flows are suspended.

use std::hash::BuildHasher;

use foldhash::quality::RandomState;

use super::sampled::SampledFlow;

/// Flows that are counted at a time. A power of two.
const CELLS: usize = 1024;
/// Samples within [`WINDOW`] that make a flow frequent.
const FREQUENT: u8 = 4;
/// Milliseconds.
const WINDOW: u32 = 1000;
/// Refusals of a flow that do not suspend it, if their reason may pass: the packets of a handshake that a
/// function makes with both ends.
const FORGIVEN: u8 = 3;

#[derive(Clone, Copy, Default)]
struct Cell {
    /// The flow's hash. Flows with equal hashes are confused, which delays one of them.
    hash: u64,
    /// The time of the first sample, or the end of the suspension.
    since: u32,
    count: u8,
    refusals: u8,
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
        SampleCache { cells: vec![Cell::default(); CELLS].into(), hasher: RandomState::default() }
    }

    fn cell(&mut self, flow: &SampledFlow) -> (&mut Cell, u64) {
        let hash = self.hasher.hash_one(flow);
        (&mut self.cells[hash as usize % CELLS], hash)
    }

    /// Counts a sample of a flow and returns whether the flow is frequent. A large frame (`is_large`) is
    /// enough for that. None: the flow is suspended.
    pub fn count(&mut self, flow: &SampledFlow, is_large: bool, now: u32) -> Option<bool> {
        let (cell, hash) = self.cell(flow);
        if cell.hash == hash && cell.is_suspended && cell.since.wrapping_sub(now).cast_signed() > 0 {
            return None;
        }
        if cell.hash != hash || cell.is_suspended || now.wrapping_sub(cell.since) > WINDOW {
            let refusals = if cell.hash == hash { cell.refusals } else { 0 };
            *cell = Cell { hash, since: now, refusals, ..Cell::default() };
        }
        cell.count = cell.count.saturating_add(if is_large { FREQUENT } else { 1 });
        Some(cell.count >= FREQUENT)
    }

    /// Suspends a flow for so many milliseconds. `may_pass`: its first refusals do not suspend it.
    pub fn refuse(&mut self, flow: &SampledFlow, now: u32, (milliseconds, may_pass): (u32, bool)) {
        let (cell, hash) = self.cell(flow);
        if cell.hash != hash {
            *cell = Cell { hash, since: now, ..Cell::default() };
        }
        cell.refusals = cell.refusals.saturating_add(1);
        if !may_pass || cell.refusals > FORGIVEN {
            (cell.since, cell.count, cell.is_suspended) = (now.wrapping_add(milliseconds), 0, true);
        }
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
        let early = [5, 300, 900, 1004].map(|now| samples.count(&flow(1), false, now));
        assert_eq!(early, [Some(false), Some(false), Some(false), Some(true)]);
        // A slow flow is never frequent.
        assert!((0..50).all(|n| samples.count(&flow(2), false, n * 400) == Some(false)));
        // The time may wrap.
        let late = [u32::MAX - 9, u32::MAX, 5, 90].map(|now| samples.count(&flow(3), false, now));
        assert_eq!(late, [Some(false), Some(false), Some(false), Some(true)]);
        // A large frame is several packets.
        assert_eq!(samples.count(&flow(4), true, 5), Some(true));
    }

    #[test]
    fn a_suspended_flow_is_not_sampled() {
        let mut samples = SampleCache::new();
        assert!((0..4).any(|now| samples.count(&flow(1), false, now) == Some(true)));
        samples.refuse(&flow(1), 10, (PAUSE, false));
        assert!((11..100).all(|now| samples.count(&flow(1), false, now).is_none()));
        let handed_off = SampledFlow { handed_off: true, ..flow(1) };
        assert_eq!(samples.count(&handed_off, false, 11), Some(false), "a flow of its own");
        assert_eq!(samples.count(&flow(1), false, 10 + PAUSE), Some(false));
        assert!((1..4).any(|n| samples.count(&flow(1), false, 10 + PAUSE + n) == Some(true)));
    }

    #[test]
    fn the_first_refusals_are_forgiven_if_their_reason_may_pass() {
        let mut samples = SampleCache::new();
        for now in 0..u32::from(FORGIVEN) {
            assert!(samples.count(&flow(1), false, now).is_some());
            samples.refuse(&flow(1), now, (PAUSE, true));
        }
        assert!(samples.count(&flow(1), false, 10).is_some());
        samples.refuse(&flow(1), 10, (PAUSE, true));
        assert!(samples.count(&flow(1), false, 11).is_none());
        // Then each one counts.
        assert!(samples.count(&flow(1), false, 10 + PAUSE).is_some());
        samples.refuse(&flow(1), 11 + PAUSE, (PAUSE, true));
        assert!(samples.count(&flow(1), false, 12 + PAUSE).is_none());
    }

    #[test]
    fn clearing_ends_suspensions() {
        let mut samples = SampleCache::new();
        samples.refuse(&flow(1), 10, (PAUSE, false));
        samples.clear();
        assert_eq!(samples.count(&flow(1), false, 11), Some(false));
    }
}
