//! What is known of flows that the kernel does not have: of which there have been several samples of late, and with which it has not
//! worked.
//!
//! Packets that another worker has received are another flow here: one that is received, given to the worker that its addresses say, and
//! by that one back to its session's, is watched in vain the first time and with success the second time.

use std::hash::{BuildHasher, RandomState};

use mmb_dpdk::FastKey;

/// Flows that are counted at a time. A power of two.
const CELLS: usize = 1024;
/// Samples of one flow, within [`WINDOW`], that make it one of several packets.
const ENOUGH: u8 = 4;
/// Milliseconds.
const WINDOW: u32 = 1000;

#[derive(Clone, Copy, Default)]
struct Cell {
    /// The flow's hash; two flows with the same are taken for one, which costs one of them some time.
    flow: u64,
    since: u32,
    count: u8,
    /// It is left alone until `since`.
    rests: bool,
}

/// Samples of late by flow, a place for each hash.
pub(super) struct Samples {
    cells: Box<[Cell]>,
    /// Not to be guessed, so that nobody outside can keep a flow of others from its place.
    hasher: RandomState,
}

impl Samples {
    pub fn new() -> Samples {
        Samples { cells: vec![Cell::default(); CELLS].into(), hasher: RandomState::new() }
    }

    fn cell(&mut self, flow: (&FastKey, bool)) -> (&mut Cell, u64) {
        let flow = self.hasher.hash_one(flow);
        (&mut self.cells[flow as usize % CELLS], flow)
    }

    /// Counts a sample of a flow, by its key and whether another worker has received it, and says whether there have been several.
    /// None: the flow is left alone.
    pub fn count(&mut self, flow: (&FastKey, bool), now: u32) -> Option<bool> {
        let (cell, flow) = self.cell(flow);
        if cell.flow == flow && cell.rests && cell.since.wrapping_sub(now).cast_signed() > 0 {
            return None;
        }
        if cell.flow != flow || cell.rests || now.wrapping_sub(cell.since) > WINDOW {
            *cell = Cell { flow, since: now, count: 0, rests: false };
        }
        cell.count = cell.count.saturating_add(1);
        Some(cell.count >= ENOUGH)
    }

    /// Leaves a flow alone for so many milliseconds.
    pub fn rest(&mut self, flow: (&FastKey, bool), now: u32, rest: u32) {
        let (cell, flow) = self.cell(flow);
        *cell = Cell { flow, since: now.wrapping_add(rest), count: 0, rests: true };
    }

    /// Begins anew, with all flows.
    pub fn clear(&mut self) {
        self.cells.fill(Cell::default());
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::key;
    use super::*;

    const REST: u32 = 1000;

    #[test]
    fn the_fourth_sample_of_a_second_is_enough() {
        let mut samples = Samples::new();
        let early = [5, 300, 900, 1004].map(|now| samples.count((&key(1), false), now));
        assert_eq!(early, [Some(false), Some(false), Some(false), Some(true)]);
        // Too slow a flow never gets there.
        assert!((0..50).all(|n| samples.count((&key(2), false), n * 400) == Some(false)));
        // Time that begins anew is no other time.
        let late = [u32::MAX - 9, u32::MAX, 5, 90].map(|now| samples.count((&key(3), false), now));
        assert_eq!(late, [Some(false), Some(false), Some(false), Some(true)]);
    }

    #[test]
    fn what_rests_is_left_alone() {
        let mut samples = Samples::new();
        assert!((0..4).any(|now| samples.count((&key(1), false), now) == Some(true)));
        samples.rest((&key(1), false), 10, REST);
        assert!((11..100).all(|now| samples.count((&key(1), false), now).is_none()));
        assert_eq!(samples.count((&key(1), true), 11), Some(false), "that is another matter");
        assert_eq!(samples.count((&key(1), false), 10 + REST), Some(false));
        assert!((1..4).any(|n| samples.count((&key(1), false), 10 + REST + n) == Some(true)));
    }

    #[test]
    fn all_begin_anew() {
        let mut samples = Samples::new();
        samples.rest((&key(1), false), 10, REST);
        samples.clear();
        assert_eq!(samples.count((&key(1), false), 11), Some(false));
    }
}
