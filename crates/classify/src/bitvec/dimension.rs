//! One dimension of a partition: a field, and for each of its values the entries that accept it.
//!
//! Theory of operation. The ends of the entries' ranges divide the values of the field into elementary
//! intervals. All values within an interval are equivalent. Each interval has a row of bits, one for each
//! entry. Each bound counts the ends that lie on it. The first end on a bound splits an interval into two
//! with equal rows. When the last end is removed, two intervals with equal rows become one. Entries that
//! accept any value are in a separate set, so that most dimensions of a partition stay shared with clones
//! when an entry is added.
//!
//! Rows consist of blocks. Neighbouring intervals share a block's row if no entry of the block begins or ends
//! between them. So memory grows with the number of entries and not with its square, and a change touches one
//! column of blocks.
//!
//! The highest bits of a value select the few bounds to search.

use std::hint::select_unpredictable;
use std::sync::Arc;

use mmb_packet::Window;

use super::accepted::AcceptedValues;
use super::columns::{Compare, FieldColumns};
use super::conditions::word_bits;
use super::intervals::{Bounds, IntervalTable, last_at_most};
use super::lanes::{BLOCKS, LaneBlock, LaneSet, Rows};
use crate::pattern::{Field, WordReader};
use crate::vector::LookupPacket;

/// Maximum number of intervals whose rows are joined to exclude entries for all packets of a vector.
const MAX_UNION: usize = 4;

/// Maximum number of intervals.
const MAX_INTERVALS: usize = 4096;

/// See the module's documentation.
#[derive(Clone, Debug)]
pub(super) struct Dimension {
    pub field: Field,
    /// None if the field is longer than a word.
    reader: Option<WordReader>,
    /// Entries that accept any value.
    accepts_any: LaneSet,
    /// Entries that accept packets without the field.
    absent: LaneSet,
    table: Arc<IntervalTable>,
}

/// The interval number of packets without the field, and its rows.
const ABSENT: u16 = u16::MAX;
static NO_ROWS: [u16; BLOCKS] = [Rows::EMPTY; BLOCKS];

impl Dimension {
    /// A dimension without entries.
    pub fn new(field: Field) -> Dimension {
        Dimension {
            field,
            reader: WordReader::of(&field),
            accepts_any: LaneSet::default(),
            absent: LaneSet::default(),
            table: Arc::new(IntervalTable::new(field.width)),
        }
    }

    /// Finds the interval of each packet in `which`. With `PRESENT`, all packets have the field.
    #[inline(always)]
    pub fn find_intervals<const PRESENT: bool>(
        &self,
        packets: &[LookupPacket<'_>],
        which: &[u8],
        intervals: &mut [u16],
    ) {
        let (table, present) = (&*self.table, self.field.present);
        let each = intervals.iter_mut().zip(which.iter().map(|at| packets[usize::from(*at)].window));
        let (Some(reader), Bounds::Bits64(bounds)) = (self.reader, &table.bounds) else {
            for (interval, window) in each {
                let value = present.holds(window).then(|| self.field.value(window));
                *interval = value.map_or(ABSENT, |value| table.interval(value) as u16);
            }
            return;
        };
        let (below, steps) = (table.below_top() & 63, table.steps);
        for (interval, window) in each {
            let value = reader.read(window);
            let found =
                last_at_most(bounds, table.top_bounds((value >> below) as usize), steps, value) as u16;
            let is_there = PRESENT || present.holds(window);
            *interval = if PRESENT { found } else { select_unpredictable(is_there, found, ABSENT) };
        }
    }

    /// Number of entries among `lanes` that the dimension may exclude for a packet. With `present`, the
    /// packet has the field.
    #[inline(always)]
    pub fn restricted(&self, lanes: &[LaneBlock], present: bool) -> u32 {
        let each = lanes.iter().zip(self.accepts_any.blocks()).zip(self.absent.blocks());
        each.map(|((lanes, any), absent)| {
            let absent = if present { any } else { absent };
            lanes.without_both(any, absent).len()
        })
        .sum()
    }

    /// Number of words of 16 bits that are compared for each packet if the entries in `lanes` are compared
    /// with columns. None if they cannot.
    #[inline(always)]
    pub fn words_to_compare(&self, lanes: &[LaneBlock]) -> Option<usize> {
        let bits = word_bits(self.field.width)?;
        Some(self.table.conditions.count(lanes) * usize::from(bits / 16))
    }

    /// Applies the dimension to the sets of the entries in `lanes`; see [`FieldColumns::apply`].
    #[inline(always)]
    pub fn apply_to_columns(
        &self,
        columns: &mut FieldColumns,
        lanes: &[LaneBlock],
        windows: &[&Window],
        compare: &impl Compare,
    ) {
        if let Some(reader) = self.reader {
            columns.apply((reader, self.field.width), (&self.table.conditions, lanes), windows, compare);
        }
    }

    /// Removes the entries from `lanes` that accept no packet whose bits are between `least` and `most`, if
    /// that is cheap. All these packets have the field, or none has it. Returns whether each such packet
    /// leaves the same entries.
    #[inline(always)]
    pub fn exclude_between(&self, least: &Window, most: &Window, lanes: &mut [LaneBlock]) -> bool {
        if !self.field.present.holds(least) {
            let each = lanes.iter_mut().zip(self.absent.blocks());
            each.for_each(|(lanes, absent)| *lanes = lanes.keep(absent, absent));
            return true;
        }
        let (low, high) = (self.field.value(least), self.field.value(most));
        let first = self.table.interval(low);
        let last = if high == low { first } else { self.table.interval(high) };
        if last - first >= MAX_UNION {
            return false;
        }
        let rows = self.table.rows.all();
        for (block, (lanes, any)) in lanes.iter_mut().zip(self.accepts_any.blocks()).enumerate() {
            let of_block =
                self.table.row_of[first..=last].iter().map(|row_of| rows[usize::from(row_of[block])]);
            *lanes = lanes.keep(&of_block.fold(LaneBlock::EMPTY, |all, row| all.or(&row)), any);
        }
        first == last
    }

    /// Removes the entries that do not accept a packet from its candidates (`blocks` blocks for each packet).
    /// Packets with remaining candidates move to the front of `which`. Returns their number. With `PRESENT`,
    /// all packets have the field.
    #[inline(always)]
    pub fn filter<const PRESENT: bool>(
        &self,
        intervals: &[u16],
        which: &mut [u8],
        candidates: &mut [LaneBlock],
        blocks: usize,
    ) -> usize {
        let (row_of, rows) = (&self.table.row_of[..], self.table.rows.all());
        let (any, absent) = (self.accepts_any.blocks(), self.absent.blocks());
        let mut left = 0;
        for (at, &interval) in intervals.iter().enumerate().take(which.len()) {
            let is_there = PRESENT || interval != ABSENT;
            let own = &row_of[select_unpredictable(is_there, usize::from(interval), 0)];
            let own = select_unpredictable(is_there, own, &NO_ROWS);
            let others = select_unpredictable(is_there, any, absent);
            let packet = which[at];
            let lanes = &mut candidates[usize::from(packet) * blocks..][..blocks];
            let mut all = LaneBlock::EMPTY;
            for ((lanes, row), others) in lanes.iter_mut().zip(own).zip(others) {
                *lanes = lanes.keep(&rows[usize::from(*row)], others);
                all = all.or(lanes);
            }
            which[left] = packet;
            left += usize::from(!all.is_empty());
        }
        left
    }

    /// Whether there are enough free intervals for an entry.
    pub fn has_room(&self, accepted: &AcceptedValues) -> bool {
        let ranges = accepted.values.as_ref().map_or(0, |values| values.iter().count());
        self.table.ends.len() + 2 * ranges <= MAX_INTERVALS
    }

    /// Adds an entry.
    pub fn insert(&mut self, lane: usize, accepted: &AcceptedValues) {
        self.absent.set(lane, accepted.absent);
        self.accepts_any.set(lane, accepted.values.is_none());
        if let Some(values) = &accepted.values {
            Arc::make_mut(&mut self.table).insert(lane, values);
        }
    }

    /// Removes an entry that [`Dimension::insert`] added.
    pub fn remove(&mut self, lane: usize, accepted: &AcceptedValues) {
        self.absent.set(lane, false);
        self.accepts_any.set(lane, false);
        if let Some(values) = &accepted.values {
            Arc::make_mut(&mut self.table).remove(lane, values);
        }
    }

    /// Whether no entry needs a bound or a row.
    #[cfg(test)]
    pub fn is_trivial(&self) -> bool {
        let none = LaneSet::default();
        self.accepts_any == none
            && self.absent == none
            && self.table.ends.len() == 1
            && self.table.conditions == Default::default()
            && self.table.by_top.iter().all(|interval| *interval == 0)
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        let bounds = match &self.table.bounds {
            Bounds::Bits64(bounds) => bounds.capacity() * size_of::<u64>(),
            Bounds::Bits128(bounds) => bounds.capacity() * size_of::<u128>(),
        };
        let rows = self.table.ends.capacity() * (2 + size_of::<[u16; BLOCKS]>());
        size_of::<Dimension>()
            + size_of::<IntervalTable>()
            + bounds
            + rows
            + self.table.rows.bytes()
            + self.table.conditions.bytes()
    }
}
