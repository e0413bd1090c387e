//! The elementary intervals of a dimension, and their rows of bits.

use std::hint::select_unpredictable;

use super::conditions::Conditions;
use super::lanes::{BLOCK, BLOCKS, Rows};
use crate::pattern::{Ranges, largest};

/// Number of leading bits of a value that start a search. With 11, a thousand evenly spread bounds take one
/// or two steps.
pub(super) const TOP: u32 = 11;

/// The intervals and their rows.
#[derive(Clone, Debug)]
pub(super) struct IntervalTable {
    width: u8,
    /// Indexed by a value's [`TOP`] highest bits: the interval of the first such value. The last element is
    /// the last interval.
    pub by_top: [u16; (1 << TOP) + 1],
    /// Number of search steps among the bounds of values with the same highest bits.
    pub steps: u32,
    pub bounds: Bounds,
    /// Number of range ends on each interval's start.
    pub ends: Vec<u16>,
    /// Row of each interval in each block. Neighbouring intervals share a row exactly if no entry of the
    /// block has an end between them.
    pub row_of: Vec<[u16; BLOCKS]>,
    pub rows: Rows,
    /// What the rows say, as conditions of the entries.
    pub conditions: Conditions,
}

/// The starts of the intervals, ascending from 0. 64 bits each if the field's width allows.
#[derive(Clone, Debug)]
pub(super) enum Bounds {
    Bits64(Vec<u64>),
    Bits128(Vec<u128>),
}

impl IntervalTable {
    pub fn new(width: u8) -> IntervalTable {
        IntervalTable {
            width,
            by_top: [0; (1 << TOP) + 1],
            steps: 0,
            bounds: if width <= 64 { Bounds::Bits64(vec![0]) } else { Bounds::Bits128(vec![0]) },
            ends: vec![1],
            row_of: vec![std::array::from_fn(|block| block as u16)],
            rows: Rows::new(),
            conditions: Conditions::default(),
        }
    }

    /// The first and the last interval for values with these highest bits.
    #[inline(always)]
    pub fn top_bounds(&self, top: usize) -> (usize, usize) {
        let top = top & ((1 << TOP) - 1);
        (self.by_top[top].into(), self.by_top[top + 1].into())
    }

    /// The interval of a value.
    #[inline]
    pub fn interval(&self, value: u128) -> usize {
        let ends = self.top_bounds((value >> self.below_top()) as usize);
        match &self.bounds {
            Bounds::Bits64(bounds) => last_at_most(bounds, ends, self.steps, value as u64),
            Bounds::Bits128(bounds) => last_at_most(bounds, ends, self.steps, value),
        }
    }

    /// Number of bits of a value below its highest [`TOP`] bits.
    #[inline(always)]
    pub fn below_top(&self) -> u32 {
        u32::from(self.width.saturating_sub(TOP as u8))
    }

    pub fn insert(&mut self, lane: usize, values: &Ranges) {
        self.conditions.insert(lane, values, self.width);
        for bound in ends(values) {
            self.add_bound(bound);
            self.split_row(lane / BLOCK, bound);
        }
        self.set(values, lane, true);
    }

    pub fn remove(&mut self, lane: usize, values: &Ranges) {
        self.conditions.remove(lane);
        self.set(values, lane, false);
        for bound in ends(values) {
            self.merge_row(lane / BLOCK, bound);
            self.remove_bound(bound);
        }
    }

    fn set(&mut self, values: &Ranges, lane: usize, on: bool) {
        for (low, high) in values.iter() {
            let mut before = None;
            for interval in self.interval(low)..=self.interval(high) {
                let row = self.row_of[interval][lane / BLOCK];
                if before.replace(row) != Some(row) {
                    self.rows.set(row, lane, on);
                }
            }
        }
    }

    /// Gives the intervals from `bound` on a row of their own in a block, if they share the row before the
    /// bound.
    fn split_row(&mut self, block: usize, bound: u128) {
        let Some((row, interval)) = self.common_row(block, bound) else { return };
        let own = self.rows.copy(row);
        self.replace_row(block, interval, row, own);
    }

    /// Gives the intervals from `bound` on the row before the bound, if both rows of the block are equal.
    fn merge_row(&mut self, block: usize, bound: u128) {
        if !self.cuts(bound) {
            return;
        }
        let interval = self.interval(bound);
        let (left, right) = (self.row_of[interval - 1][block], self.row_of[interval][block]);
        if left != right && self.rows.all()[usize::from(left)] == self.rows.all()[usize::from(right)] {
            self.replace_row(block, interval, right, left);
            self.rows.free_row(right);
        }
    }

    /// The row of a block that the intervals on both sides of `bound` share, and the interval behind the
    /// bound.
    fn common_row(&self, block: usize, bound: u128) -> Option<(u16, usize)> {
        if !self.cuts(bound) {
            return None;
        }
        let interval = self.interval(bound);
        let (left, right) = (self.row_of[interval - 1][block], self.row_of[interval][block]);
        (left == right).then_some((right, interval))
    }

    /// Replaces a block's row by another in the run of intervals that starts at `interval`.
    fn replace_row(&mut self, block: usize, interval: usize, row: u16, other: u16) {
        for rows in self.row_of[interval..].iter_mut().take_while(|rows| rows[block] == row) {
            rows[block] = other;
        }
    }

    /// Whether an interval can begin at `bound`. This excludes 0 and values beyond the field's width.
    fn cuts(&self, bound: u128) -> bool {
        bound != 0 && bound <= largest(self.width)
    }

    fn add_bound(&mut self, bound: u128) {
        if !self.cuts(bound) {
            return;
        }
        let before = self.interval(bound);
        if self.bounds.get(before) == Some(bound) {
            self.ends[before] += 1;
            return;
        }
        self.bounds.insert(before + 1, bound);
        self.ends.insert(before + 1, 1);
        self.row_of.insert(before + 1, self.row_of[before]);
        self.shift_from(bound, 1);
    }

    fn remove_bound(&mut self, bound: u128) {
        if !self.cuts(bound) {
            return;
        }
        let interval = self.interval(bound);
        self.ends[interval] -= 1;
        if self.ends[interval] == 0 {
            self.bounds.remove(interval);
            self.ends.remove(interval);
            self.row_of.remove(interval);
            self.shift_from(bound, -1);
        }
    }

    /// Updates `by_top` after an interval that begins at `bound` was added or removed.
    fn shift_from(&mut self, bound: u128, by: i16) {
        let below = self.below_top();
        let first = (bound >> below) as usize + usize::from(bound & largest(below as u8) != 0);
        for interval in &mut self.by_top[first..] {
            *interval = interval.wrapping_add_signed(by);
        }
        let longest = self.by_top.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
        self.steps = u16::BITS - longest.leading_zeros();
    }
}

impl Bounds {
    fn get(&self, at: usize) -> Option<u128> {
        match self {
            Bounds::Bits64(bounds) => bounds.get(at).map(|bound| (*bound).into()),
            Bounds::Bits128(bounds) => bounds.get(at).copied(),
        }
    }

    fn insert(&mut self, at: usize, bound: u128) {
        match self {
            Bounds::Bits64(bounds) => bounds.insert(at, bound as u64),
            Bounds::Bits128(bounds) => bounds.insert(at, bound),
        }
    }

    fn remove(&mut self, at: usize) {
        match self {
            Bounds::Bits64(bounds) => drop(bounds.drain(at..=at)),
            Bounds::Bits128(bounds) => drop(bounds.drain(at..=at)),
        }
    }
}

/// The starts of the ranges, and the first values behind them.
fn ends(values: &Ranges) -> impl Iterator<Item = u128> + '_ {
    values.iter().flat_map(|(low, high)| [low, high.wrapping_add(1)])
}

/// Index of the last of `bounds[first..=last]` that is at most `value`; the first is. It takes `steps` steps,
/// which is enough for any range of a table. A loop whose end depends on the packet would be mispredicted.
#[inline(always)]
pub(super) fn last_at_most<T: Copy + PartialOrd>(
    bounds: &[T],
    (first, last): (usize, usize),
    steps: u32,
    value: T,
) -> usize {
    let (mut at, mut len) = (first, last + 1 - first);
    for _ in 0..steps {
        let half = len / 2;
        at = select_unpredictable(bounds[at + half] <= value, at + half, at);
        len -= half;
    }
    at
}
