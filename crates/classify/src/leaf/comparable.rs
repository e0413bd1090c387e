//! An entry in the form in which blocks compare it.

use super::block::FEW_VALUES;
use super::port_ranges::{PortRanges, is_port_range};
use crate::pattern::{Entry, MaskedKey, Test, WordReader, largest};
use mmb_packet::window::CHUNKS;

/// A range of a field's values: `value - low <= span`, modulo 2³². A range that excludes values goes beyond
/// the largest number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FieldRange {
    pub reader: WordReader,
    pub low: u32,
    pub span: u32,
}

/// What comparing an entry in a block takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// The words of the first chunk.
    FirstChunk,
    /// These, and ranges of fields.
    Ranges,
    /// Words of further chunks, or a check in full.
    FurtherChunks,
}

impl Effort {
    pub fn of(entry: &Entry) -> Effort {
        Comparable::new(entry).effort()
    }
}

/// The conditions of an entry; see the module's documentation.
pub(crate) struct Comparable {
    /// The cover without the bits that ranges imply.
    pub cover: MaskedKey,
    pub ports: PortRanges,
    /// Ranges of fields, and whether each is one of `ports`.
    ranges: Vec<(FieldRange, bool)>,
    /// Whether the entry has tests beyond these.
    has_other_tests: bool,
}

impl Comparable {
    pub fn new(entry: &Entry) -> Comparable {
        let mut cover = entry.cover();
        let (mut ranges, mut has_other_tests) = (Vec::new(), false);
        for test in &entry.tests {
            match FieldRange::of(test, &entry.cover()) {
                Some(range) => {
                    cover = without_implied_bits(&cover, test, &range);
                    ranges.push((range, is_port_range(test, entry)));
                }
                None => has_other_tests = true,
            }
        }
        Comparable { cover, ports: PortRanges::of(entry), ranges, has_other_tests }
    }

    /// The chunk by which the entry is compared: the first, unless the entry has hardly any condition on it.
    /// Entries with ranges are compared by it, too, so that one block has all of them; but few packets have
    /// options.
    pub fn chunk(&self) -> u8 {
        let bits = |chunk: &usize| self.cover.mask()[*chunk].count_ones();
        let is_about_options = self.cover.mask()[CHUNKS - 1] != 0;
        if self.cover.mask()[0] & !FEW_VALUES != 0
            || self.cover.chunks() & !1 == 0
            || !self.ranges.is_empty() && !is_about_options
        {
            return 0;
        }
        (1..CHUNKS).max_by_key(bits).map_or(0, |chunk| chunk as u8)
    }

    /// The ranges that comparing the words of this chunk does not cover.
    pub fn further_ranges(&self, compared: usize) -> Vec<FieldRange> {
        let further = self.ranges.iter().filter(|(_, is_of_ports)| compared != 0 || !is_of_ports);
        further.map(|(range, _)| *range).collect()
    }

    /// What comparing the entry in a block takes.
    pub fn effort(&self) -> Effort {
        let chunk = self.chunk().into();
        if self.cover.chunks() & !1 != 0 || self.needs_check(chunk) {
            Effort::FurtherChunks
        } else if self.further_ranges(chunk).is_empty() {
            Effort::FirstChunk
        } else {
            Effort::Ranges
        }
    }

    /// Whether the entry must be checked in full after its words and ranges in a block about a chunk.
    pub fn needs_check(&self, compared: usize) -> bool {
        self.has_other_tests || compared == 0 && self.ports.has_gaps
    }
}

impl FieldRange {
    /// The range of a test. None if it is not one range, if the field has more than 32 bits, or if `cover`
    /// does not require the field.
    fn of(test: &Test, cover: &MaskedKey) -> Option<FieldRange> {
        let Test::InRanges { field, ranges, .. } = test else { return None };
        let reader = WordReader::of(field).filter(|_| field.width <= 32)?;
        if cover.and(&field.present.masked()) != Some(*cover) {
            return None;
        }
        let mut ranges = ranges.iter();
        let (low, high) = match (ranges.next(), ranges.next(), ranges.next()) {
            (Some(range), None, None) => range,
            (Some((0, before)), Some((behind, end)), None) if end >= largest(field.width) => (behind, before),
            _ => return None,
        };
        let low = u32::try_from(low).ok()?;
        let high = u32::try_from(high).unwrap_or(u32::MAX);
        Some(FieldRange { reader, low, span: high.wrapping_sub(low) })
    }
}

/// A cover without the leading bits of the test's field that its range implies.
fn without_implied_bits(cover: &MaskedKey, test: &Test, range: &FieldRange) -> MaskedKey {
    let Test::InRanges { field, .. } = test else { return *cover };
    let (low, high) = (range.low, range.low.wrapping_add(range.span));
    if low > high || u128::from(high) > largest(field.width) {
        return *cover;
    }
    let common = field.common_mask((low.into(), high.into()));
    let (mask, key) = field.fixed(cover);
    if (u128::from(low) ^ key) & mask & common != 0 {
        return *cover;
    }
    field.without(cover, common)
}
