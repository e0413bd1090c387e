//! The conditions of entries on one field, in the form that many packets are compared with.
//!
//! Theory of operation. A value stands in the highest bits of a word, so that the number beyond the largest
//! value is 0 again. An entry accepts the values outside some gaps. The values outside one gap are a range,
//! which may go beyond the largest value: one subtraction and one comparison decide. So a range and an
//! inequality are one condition each.

use bytemuck::cast_slice;

use super::lanes::{LaneBlock, LaneSet};
use crate::pattern::{Ranges, largest};

/// Accepts the words for which `last - word <= span`, modulo the number of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    /// For fields of up to 16 bits, both halves are equal.
    pub last: u32,
    pub span: u32,
}

/// Number of bits of the words that a field's values are in. None if the values are too long, or have no bit.
pub(super) fn word_bits(width: u8) -> Option<u8> {
    match width {
        1..=16 => Some(16),
        17..=32 => Some(32),
        _ => None,
    }
}

/// The conditions of the entries that restrict a field.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Conditions {
    /// The lanes of these entries, and a condition of each, in their order.
    lanes: LaneSet,
    first: Vec<Condition>,
    /// Their other conditions, with their lanes, in their order.
    further: Vec<(u16, Condition)>,
}

impl Conditions {
    /// Adds an entry that accepts these values of a field of `width` bits.
    pub fn insert(&mut self, lane: usize, values: &Ranges, width: u8) {
        let Some(bits) = word_bits(width) else { return };
        let mut all = conditions(values, width, bits).into_iter();
        let first = all.next().unwrap_or(Condition { last: u32::MAX, span: u32::MAX });
        self.first.insert(self.lanes.count_below(lane), first);
        self.lanes.set(lane, true);
        let at = self.further.partition_point(|(other, _)| usize::from(*other) < lane);
        self.further.splice(at..at, all.map(|condition| (lane as u16, condition)));
    }

    /// Removes an entry.
    pub fn remove(&mut self, lane: usize) {
        if self.lanes.contains(lane) {
            self.lanes.set(lane, false);
            self.first.remove(self.lanes.count_below(lane));
            self.further.retain(|(other, _)| usize::from(*other) != lane);
        }
    }

    /// Calls `apply` with each condition of an entry in `lanes`, and the number of the entry among them.
    #[inline(always)]
    pub fn for_each(&self, lanes: &[LaneBlock], mut apply: impl FnMut(usize, Condition)) {
        let (own, lanes): (&[u64], &[u64]) = (cast_slice(self.lanes.blocks()), cast_slice(lanes));
        let (mut condition, mut entry) = (0, 0);
        for (own, lanes) in own.iter().zip(lanes) {
            let mut bits = own & lanes;
            while bits != 0 {
                let below = (bits & bits.wrapping_neg()) - 1;
                let condition = condition + (own & below).count_ones() as usize;
                apply(entry + (lanes & below).count_ones() as usize, self.first[condition]);
                bits &= bits - 1;
            }
            condition += own.count_ones() as usize;
            entry += lanes.count_ones() as usize;
        }
        let (mut word, mut entry) = (0, 0);
        for (lane, condition) in &self.further {
            let lane = usize::from(*lane);
            while word < lane / 64 {
                entry += lanes.get(word).map_or(0, |lanes| lanes.count_ones() as usize);
                word += 1;
            }
            let (lanes, bit) = (lanes.get(word).copied().unwrap_or(0), 1 << (lane % 64));
            if lanes & bit != 0 {
                apply(entry + (lanes & (bit - 1)).count_ones() as usize, *condition);
            }
        }
    }

    /// Number of conditions of the entries in `lanes`, or a few more.
    #[inline(always)]
    pub fn count(&self, lanes: &[LaneBlock]) -> usize {
        let each = self.lanes.blocks().iter().zip(lanes);
        each.map(|(own, lanes)| own.and(lanes).len() as usize).sum::<usize>() + self.further.len()
    }

    /// Bytes of memory behind the structure.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.first[..]) + size_of_val(&self.further[..])
    }
}

/// The conditions that accept these values together. Those that accept everything are left out.
fn conditions(values: &Ranges, width: u8, bits: u8) -> Vec<Condition> {
    let below = bits - width;
    let ranges: Vec<(u32, u32)> = values
        .within(width)
        .iter()
        .map(|(low, high)| ((low << below) as u32, (high << below | largest(below)) as u32))
        .collect();
    let mask = largest(bits) as u32;
    let condition = |(first, last): (u32, u32)| {
        let span = last.wrapping_sub(first) & mask;
        if bits == 16 {
            Condition { last: last << 16 | last, span: span << 16 | span }
        } else {
            Condition { last, span }
        }
    };
    if ranges.is_empty() {
        // Two conditions that contradict each other.
        return [(0, 0), (mask, mask)].map(condition).to_vec();
    }
    let next = ranges.iter().cycle().skip(1);
    let all = ranges.iter().zip(next).map(|((_, last), (first, _))| condition((*first, *last)));
    all.filter(|condition| condition.span != u32::MAX).collect()
}
