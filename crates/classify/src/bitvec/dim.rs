//! One dimension of a leaf: a field, and for each of its values the entries that take it.
//!
//! Theory of operation. The ends of the entries' ranges cut the field's values into elementary intervals, within which
//! all values mean the same; each has a row of bits, one for each entry. A bound knows how many ends lie on it: the one
//! that gets its first cuts an interval in two with equal rows, and where the last goes two intervals with equal rows
//! become one. So entries come and go without anything being made anew. Entries that take any value are in no row but in
//! a set of their own, so that most of a leaf's dimensions stay shared with its clones when an entry comes.
//!
//! Rows are made of blocks, and neighbouring intervals between which no entry of a block begins or ends share a row of the
//! block: what the blocks take grows with the number of entries and not with its square, and an entry that comes or goes
//! changes one column of blocks.
//!
//! A value's interval is found by its highest bits, which give the few bounds to search.

use std::hint::select_unpredictable;
use std::sync::Arc;

use mmb_packet::Window;

use super::Packet;
use super::row::{BLOCK, BLOCKS, Block, Lanes, Rows};
use super::takes::Takes;
use crate::pattern::Field;
use crate::ranges::{Ranges, largest};

/// Most intervals.
const MOST_INTERVALS: usize = 4096;

/// Bits of a value that a search starts with: with 11, a thousand bounds spread evenly take a step or two.
const TOP: u32 = 11;

/// See the module's documentation.
#[derive(Clone, Debug)]
pub(super) struct Dim {
    pub field: Field,
    read: Read,
    /// Entries that take any value.
    any: Lanes,
    /// Entries that take packets without the field.
    absent: Lanes,
    table: Arc<Table>,
}

/// How the value is read.
#[derive(Clone, Copy, Debug)]
enum Read {
    /// From the eight bytes at an offset: `bytes >> shift & mask`.
    Word { at: u8, shift: u8, mask: u64 },
    /// As [`Field::value`] does.
    Chunk,
}

/// Where the window's last eight bytes start.
const LAST_WORD: usize = size_of::<Window>() - 8;

/// The interval of packets without the field, and its rows.
const ABSENT: u16 = u16::MAX;
static NO_ROWS: [u16; BLOCKS] = [Rows::EMPTY; BLOCKS];

/// The intervals and their rows.
#[derive(Clone, Debug)]
struct Table {
    width: u8,
    /// By a value's [`TOP`] highest bits: the interval of the first such value; and one more, the last interval.
    by_top: [u16; (1 << TOP) + 1],
    /// Steps of a search among the bounds of values with the same highest bits.
    steps: u32,
    bounds: Bounds,
    /// How many ends lie on each interval's start.
    ends: Vec<u16>,
    /// Each interval's row for each block. Neighbours have the same where, and only where, no entry of the block has an end
    /// between them.
    row_of: Vec<[u16; BLOCKS]>,
    rows: Rows,
}

/// The intervals' starts, ascending from 0; in half the space where the field's width allows.
#[derive(Clone, Debug)]
enum Bounds {
    Narrow(Vec<u64>),
    Wide(Vec<u128>),
}

impl Read {
    fn of(field: &Field) -> Read {
        let first = usize::from(field.chunk) * 128
            + 128usize.saturating_sub(usize::from(field.shift) + usize::from(field.width));
        let at = (first / 8).min(LAST_WORD);
        let above = first - at * 8;
        match 64usize.checked_sub(above + usize::from(field.width)) {
            Some(shift) if field.width > 0 => {
                Read::Word { at: at as u8, shift: shift as u8, mask: largest(field.width) as u64 }
            }
            _ => Read::Chunk,
        }
    }
}

impl Dim {
    /// A dimension without entries.
    pub fn new(field: Field) -> Dim {
        let read = Read::of(&field);
        Dim {
            field,
            read,
            any: Lanes::default(),
            absent: Lanes::default(),
            table: Arc::new(Table::new(field.width)),
        }
    }

    /// For each packet in `which` its value's interval. With `SURE` all packets have the field.
    #[inline(always)]
    pub fn find<const SURE: bool>(&self, packets: &[Packet<'_>], which: &[u8], intervals: &mut [u16]) {
        let (table, present) = (&*self.table, self.field.present);
        let each = intervals.iter_mut().zip(which.iter().map(|at| packets[usize::from(*at)].window));
        let (Read::Word { at, shift, mask }, Bounds::Narrow(bounds)) = (self.read, &table.bounds) else {
            for (interval, window) in each {
                let value = present.holds(window).then(|| self.field.value(window));
                *interval = value.map_or(ABSENT, |value| table.interval(value) as u16);
            }
            return;
        };
        let (at, below, steps) = (usize::from(at).min(LAST_WORD), table.below_top() & 63, table.steps);
        for (interval, window) in each {
            let bytes = window.bytes()[at..].first_chunk().copied().unwrap_or_default();
            let value = u64::from_be_bytes(bytes) >> (shift & 63) & mask;
            let found = last_upto(bounds, table.few_bounds((value >> below) as usize), steps, value) as u16;
            let is_there = SURE || present.holds(window);
            *interval = if SURE { found } else { select_unpredictable(is_there, found, ABSENT) };
        }
    }

    /// Whether packets that differ in these bits may differ in the dimension.
    pub fn tells_apart(&self, differ: &Window) -> bool {
        let present = self.field.present;
        let byte = differ.bytes().get(usize::from(present.byte)).copied().unwrap_or(0);
        byte & present.mask != 0 || self.field.value(differ) != 0
    }

    /// Leaves of each packet's candidates, `blocks` blocks for each packet, those that take it. The packets that have any
    /// left are moved to the front of `which`; returns how many they are.
    #[inline(always)]
    pub fn filter<const SURE: bool>(
        &self,
        intervals: &[u16],
        which: &mut [u8],
        candidates: &mut [Block],
        blocks: usize,
    ) -> usize {
        let (row_of, rows) = (&self.table.row_of[..], self.table.rows.all());
        let (any, absent) = (self.any.blocks(), self.absent.blocks());
        let mut left = 0;
        for (at, &interval) in intervals.iter().enumerate().take(which.len()) {
            let is_there = SURE || interval != ABSENT;
            let own = &row_of[select_unpredictable(is_there, usize::from(interval), 0)];
            let own = select_unpredictable(is_there, own, &NO_ROWS);
            let others = select_unpredictable(is_there, any, absent);
            let packet = which[at];
            let lanes = &mut candidates[usize::from(packet) * blocks..][..blocks];
            let mut all = Block::EMPTY;
            for ((lanes, row), others) in lanes.iter_mut().zip(own).zip(others) {
                *lanes = lanes.keep(&rows[usize::from(*row)], others);
                all = all.or(lanes);
            }
            which[left] = packet;
            left += usize::from(!all.is_empty());
        }
        left
    }

    /// Whether there are enough intervals left for an entry.
    pub fn has_room(&self, takes: &Takes) -> bool {
        let ranges = takes.values.as_ref().map_or(0, |values| values.iter().count());
        self.table.ends.len() + 2 * ranges <= MOST_INTERVALS
    }

    /// Enters an entry.
    pub fn insert(&mut self, lane: usize, takes: &Takes) {
        self.absent.set(lane, takes.absent);
        self.any.set(lane, takes.values.is_none());
        if let Some(values) = &takes.values
            && !values.is_empty()
        {
            Arc::make_mut(&mut self.table).insert(lane, values);
        }
    }

    /// Undoes [`Dim::insert`].
    pub fn remove(&mut self, lane: usize, takes: &Takes) {
        self.absent.set(lane, false);
        self.any.set(lane, false);
        if let Some(values) = &takes.values
            && !values.is_empty()
        {
            Arc::make_mut(&mut self.table).remove(lane, values);
        }
    }

    /// Whether no entry needs a bound or a row.
    #[cfg(test)]
    pub fn is_trivial(&self) -> bool {
        let none = Lanes::default();
        self.any == none
            && self.absent == none
            && self.table.ends.len() == 1
            && self.table.by_top == [0; (1 << TOP) + 1]
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        let bounds = match &self.table.bounds {
            Bounds::Narrow(bounds) => bounds.capacity() * size_of::<u64>(),
            Bounds::Wide(bounds) => bounds.capacity() * size_of::<u128>(),
        };
        let rows = self.table.ends.capacity() * (2 + size_of::<[u16; BLOCKS]>());
        size_of::<Dim>() + size_of::<Table>() + bounds + rows + self.table.rows.bytes()
    }
}

impl Table {
    fn new(width: u8) -> Table {
        Table {
            width,
            by_top: [0; (1 << TOP) + 1],
            steps: 0,
            bounds: if width <= 64 { Bounds::Narrow(vec![0]) } else { Bounds::Wide(vec![0]) },
            ends: vec![1],
            row_of: vec![std::array::from_fn(|block| block as u16)],
            rows: Rows::new(),
        }
    }

    /// The intervals in which values with these highest bits are: from the first to the last.
    #[inline(always)]
    fn few_bounds(&self, top: usize) -> (usize, usize) {
        let top = top & ((1 << TOP) - 1);
        (self.by_top[top].into(), self.by_top[top + 1].into())
    }

    /// The interval of a value.
    #[inline]
    fn interval(&self, value: u128) -> usize {
        let ends = self.few_bounds((value >> self.below_top()) as usize);
        match &self.bounds {
            Bounds::Narrow(bounds) => last_upto(bounds, ends, self.steps, value as u64),
            Bounds::Wide(bounds) => last_upto(bounds, ends, self.steps, value),
        }
    }

    /// Bits of a value below its highest.
    #[inline(always)]
    fn below_top(&self) -> u32 {
        u32::from(self.width.saturating_sub(TOP as u8))
    }

    fn insert(&mut self, lane: usize, values: &Ranges) {
        for bound in ends(values) {
            self.add_end(bound);
            self.part(lane / BLOCK, bound);
        }
        self.set(values, lane, true);
    }

    fn remove(&mut self, lane: usize, values: &Ranges) {
        self.set(values, lane, false);
        for bound in ends(values) {
            self.join(lane / BLOCK, bound);
            self.take_end(bound);
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

    /// Gives the intervals from `bound` on a row of their own of a block, if they have the one of those before.
    fn part(&mut self, block: usize, bound: u128) {
        let Some((row, interval)) = self.shared_row(block, bound) else { return };
        let own = self.rows.copy(row);
        self.hand_over(block, interval, row, own);
    }

    /// Lets the intervals from `bound` on have the row of those before of a block, if the rows are equal.
    fn join(&mut self, block: usize, bound: u128) {
        if !self.cuts(bound) {
            return;
        }
        let interval = self.interval(bound);
        let (left, right) = (self.row_of[interval - 1][block], self.row_of[interval][block]);
        if left != right && self.rows.all()[usize::from(left)] == self.rows.all()[usize::from(right)] {
            self.hand_over(block, interval, right, left);
            self.rows.give_up(right);
        }
    }

    /// The row that the intervals before and behind `bound` share of a block, and the interval behind.
    fn shared_row(&self, block: usize, bound: u128) -> Option<(u16, usize)> {
        if !self.cuts(bound) {
            return None;
        }
        let interval = self.interval(bound);
        let (left, right) = (self.row_of[interval - 1][block], self.row_of[interval][block]);
        (left == right).then_some((right, interval))
    }

    /// Replaces a block's row by another in the run of intervals that have it from `interval` on.
    fn hand_over(&mut self, block: usize, interval: usize, row: u16, other: u16) {
        for rows in self.row_of[interval..].iter_mut().take_while(|rows| rows[block] == row) {
            rows[block] = other;
        }
    }

    /// Whether intervals can begin at `bound`: 0 is where the first does, and what is behind the last value is none.
    fn cuts(&self, bound: u128) -> bool {
        bound != 0 && bound <= largest(self.width)
    }

    fn add_end(&mut self, bound: u128) {
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

    fn take_end(&mut self, bound: u128) {
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

    /// Corrects `by_top` for an interval more or less that begins at `bound`.
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
            Bounds::Narrow(bounds) => bounds.get(at).map(|bound| (*bound).into()),
            Bounds::Wide(bounds) => bounds.get(at).copied(),
        }
    }

    fn insert(&mut self, at: usize, bound: u128) {
        match self {
            Bounds::Narrow(bounds) => bounds.insert(at, bound as u64),
            Bounds::Wide(bounds) => bounds.insert(at, bound),
        }
    }

    fn remove(&mut self, at: usize) {
        match self {
            Bounds::Narrow(bounds) => drop(bounds.drain(at..=at)),
            Bounds::Wide(bounds) => drop(bounds.drain(at..=at)),
        }
    }
}

/// Where ranges begin, and where what is behind them does.
fn ends(values: &Ranges) -> impl Iterator<Item = u128> + '_ {
    values.iter().flat_map(|(low, high)| [low, high.wrapping_add(1)])
}

/// The last of `bounds[first..=last]` that is not above `value`; the first is not. After `steps` steps, enough for any
/// first and last of a table: a loop whose end depends on the packet would be mispredicted.
#[inline(always)]
fn last_upto<T: Copy + PartialOrd>(
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
