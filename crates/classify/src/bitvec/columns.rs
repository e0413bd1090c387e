//! A few entries against many packets, field by field.
//!
//! Theory of operation. If few entries remain for a vector, then searching the interval of each packet takes
//! longer than comparing. The values of a field in all packets are copied to a column once. Each entry that
//! restricts the field is compared with the column: a subtraction and a comparison for several packets at
//! once, and no branch depends on a packet.

use crate::pattern::{Entry, Field, Ranges, WordReader};
use crate::vector::{LookupPacket, VECTOR};

/// Maximum number of columns.
pub(super) const MAX_COLUMNS: usize = 4;

/// Number of values that are compared together.
const WIDTH: usize = 16;

/// The values of some fields in the packets of a vector, and which packets an entry does not match.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    values: [[u32; VECTOR]; MAX_COLUMNS],
    /// Not 0 for packets that the entry does not match.
    differ: [u32; VECTOR],
}

impl Columns {
    /// Memory for columns.
    pub fn new() -> Columns {
        Columns { values: [[0; VECTOR]; MAX_COLUMNS], differ: [0; VECTOR] }
    }

    /// Fills a column with the values of a field in the packets with indexes `own`.
    #[inline(always)]
    pub fn fill(&mut self, column: usize, reader: WordReader, packets: &[LookupPacket<'_>], own: &[u8]) {
        for (value, at) in self.values[column % MAX_COLUMNS].iter_mut().zip(own) {
            *value = reader.read(packets[usize::from(*at)].window) as u32;
        }
    }

    /// Starts with an entry that matches the first `n` packets.
    #[inline(always)]
    pub fn start_entry(&mut self, n: usize) {
        self.differ[..n].fill(0);
        self.differ[n..n.next_multiple_of(WIDTH)].fill(1);
    }

    /// Excludes the packets, `n` in number, whose value in a column the entry does not accept. All have the
    /// field, which has at most 32 bits. Returns whether a packet is left.
    #[inline(always)]
    pub fn compare(&mut self, column: usize, field: &Field, entry: &Entry, n: usize) -> bool {
        let len = n.next_multiple_of(WIDTH);
        let (values, differ) = (&self.values[column % MAX_COLUMNS][..len], &mut self.differ[..len]);
        let (mask, key) = entry.fixed(field);
        if mask != 0 {
            let (mask, key) = (mask as u32, key as u32);
            differ.iter_mut().zip(values).for_each(|(differ, value)| *differ |= value & mask ^ key);
        }
        entry.ranges_of(field).for_each(|ranges| exclude_gaps(values, ranges, field.width, differ));
        differ.iter().fold(false, |any, differ| any | (*differ == 0))
    }

    /// The indexes, among `n` packets, of those that are left.
    pub fn left(&self, n: usize) -> impl Iterator<Item = usize> + '_ {
        self.differ[..n].iter().enumerate().filter(|(_, differ)| **differ == 0).map(|(at, _)| at)
    }
}

/// Sets `differ` where a value is outside `ranges`.
#[inline(always)]
fn exclude_gaps(values: &[u32], ranges: &Ranges, width: u8, differ: &mut [u32]) {
    for (low, high) in ranges.gaps(width) {
        let (low, span) = (low as u32, (high - low) as u32);
        let each = differ.iter_mut().zip(values);
        each.for_each(|(differ, value)| *differ |= u32::from(value.wrapping_sub(low) <= span));
    }
}
