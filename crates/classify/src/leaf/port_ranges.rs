//! The two ports of the first chunk as ranges: two 16-bit numbers that are compared at once.

use crate::pattern::{Entry, Field, Test};

/// Bit shifts of the source port and the destination port in the first chunk.
const SHIFTS: [u8; 2] = [48, 32];

/// Bounds on the ports that an entry implies. Values are 16-bit numbers in host byte order, packed as in the
/// window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortRanges {
    /// The lower bounds, inclusive.
    pub low: u32,
    /// The upper bounds, inclusive.
    pub high: u32,
    /// Whether the cover's masks leave gaps between the values: they are not prefixes.
    pub has_gaps: bool,
}

/// Converts packed ports from network to host byte order.
#[inline(always)]
pub(crate) fn host_order(window: u32) -> u32 {
    if cfg!(target_endian = "little") {
        (window & 0x00ff_00ff) << 8 | window >> 8 & 0x00ff_00ff
    } else {
        window
    }
}

impl PortRanges {
    pub fn of(entry: &Entry) -> PortRanges {
        let mut has_gaps = false;
        let mut ends = SHIFTS.map(|shift| {
            let bits = |chunk: u128| (u128::from_be(chunk) >> shift) as u16;
            let (mask, key) = (bits(entry.mask(0)), bits(entry.key(0)));
            has_gaps |= mask.leading_ones() != mask.count_ones();
            (key, key | !mask)
        });
        for (which, (low, high), _) in entry.tests.iter().filter_map(|test| range(test, entry)) {
            ends[which] = (ends[which].0.max(low), ends[which].1.min(high));
        }
        let pack = |[one, other]: [u16; 2]| bytemuck::cast([one, other]);
        let [(low, high), (other_low, other_high)] = ends;
        PortRanges { low: pack([low, other_low]), high: pack([high, other_high]), has_gaps }
    }
}

/// Whether the bounds decide a test.
pub(super) fn is_port_range(test: &Test, entry: &Entry) -> bool {
    range(test, entry).is_some_and(|(_, _, is_all)| is_all)
}

/// Which port a test is about, its lower and upper bound, and whether the test accepts all values between
/// them. None if the test is about something else, or accepts packets without such a port.
fn range(test: &Test, entry: &Entry) -> Option<(usize, (u16, u16), bool)> {
    let Test::InRanges { field: Field { chunk: 0, shift, width: 16, present }, ranges, absent } = test else {
        return None;
    };
    let which = SHIFTS.iter().position(|own| own == shift)?;
    let is_there = entry.cover().and(&present.masked()) == Some(entry.cover());
    let (low, high) = ranges.ends()?;
    let ends = (u16::try_from(low).ok()?, u16::try_from(high.min(u16::MAX.into())).ok()?);
    (is_there || !absent).then_some((which, ends, is_there && ranges.iter().count() == 1))
}

#[cfg(test)]
mod tests;
