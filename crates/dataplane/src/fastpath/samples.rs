//! Which flows are worth a place in the kernel: those that one packet of a vector, whichever, is of again and again.

use std::hash::{BuildHasher, RandomState};

use mmb_dpdk::FastKey;

/// Flows that are counted at a time. A power of two.
const CELLS: usize = 1024;
/// Samples of one flow, within [`WINDOW`], that make it worth a look.
const ENOUGH: u8 = 4;
/// Milliseconds.
const WINDOW: u32 = 1000;
/// For how long a flow is left alone with which it has not worked, in milliseconds.
const REST: u32 = 10_000;

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

    fn cell(&mut self, key: &FastKey) -> (&mut Cell, u64) {
        let flow = self.hasher.hash_one(key);
        (&mut self.cells[flow as usize % CELLS], flow)
    }

    /// Counts a sample. True: there have been enough.
    pub fn count(&mut self, key: &FastKey, now: u32) -> bool {
        let (cell, flow) = self.cell(key);
        if cell.flow == flow && cell.rests && cell.since.wrapping_sub(now).cast_signed() > 0 {
            return false;
        }
        if cell.flow != flow || cell.rests || now.wrapping_sub(cell.since) > WINDOW {
            *cell = Cell { flow, since: now, count: 0, rests: false };
        }
        cell.count = cell.count.saturating_add(1);
        cell.count >= ENOUGH
    }

    /// Leaves a flow alone for a while.
    pub fn rest(&mut self, key: &FastKey, now: u32) {
        let (cell, flow) = self.cell(key);
        *cell = Cell { flow, since: now.wrapping_add(REST), count: 0, rests: true };
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

    #[test]
    fn the_fourth_sample_of_a_second_is_enough() {
        let mut samples = Samples::new();
        let early: Vec<bool> = [5, 300, 900, 1004].map(|now| samples.count(&key(1), now)).into();
        assert_eq!(early, [false, false, false, true]);
        // Too slow a flow never gets there.
        assert!((0..50).all(|n| !samples.count(&key(2), n * 400)));
        // Time that begins anew is no other time.
        let late: Vec<bool> = [u32::MAX - 9, u32::MAX, 5, 90].map(|now| samples.count(&key(3), now)).into();
        assert_eq!(late, [false, false, false, true]);
    }

    #[test]
    fn what_rests_is_left_alone() {
        let mut samples = Samples::new();
        assert!((0..4).any(|now| samples.count(&key(1), now)));
        samples.rest(&key(1), 10);
        assert!((11..100).all(|now| !samples.count(&key(1), now)));
        assert!(!samples.count(&key(1), 10 + REST));
        assert!((1..4).any(|n| samples.count(&key(1), 10 + REST + n)));
    }

    #[test]
    fn all_begin_anew() {
        let mut samples = Samples::new();
        samples.rest(&key(1), 10);
        samples.clear();
        assert!((11..15).any(|now| samples.count(&key(1), now)));
    }
}
