//! Early exclusion of packets that cannot match.

use bytemuck::cast;
use mmb_packet::Window;

use crate::leaf::{ActiveBlocks, PreFilter};
use crate::table::Table;
use crate::vector::{VECTOR, VectorSummary};

/// The result pays only if at most one of this many packets may match.
const MAX_SHARE: usize = 3;

/// Writes the numbers of the packets that may match through these tables and blocks to `out`, and returns how
/// many they are. No other packet can match. None if too many packets may match for this to pay.
pub(crate) fn find_possible_matches(
    windows: &[Window],
    tables: &[Table],
    (leaf, pre_filter): (&ActiveBlocks<'_>, Option<&PreFilter>),
    summary: &VectorSummary,
    out: &mut [u16; VECTOR],
) -> Option<usize> {
    let mut tables = tables.iter().filter(|table| !table.is_excluded(summary)).peekable();
    let in_leaf = |window: &Window| {
        pre_filter.is_none_or(|pre_filter| pre_filter.can_match(window.chunk[0]))
            && leaf.agreeing_lanes(window) != 0
    };
    let any_in_leaf = match pre_filter {
        Some(_) => windows.iter().any(in_leaf),
        None => leaf.can_match_any(windows),
    };
    if !any_in_leaf && tables.peek().is_none() {
        return Some(0);
    }
    let mut maybe = [0u8; VECTOR];
    if any_in_leaf {
        maybe.iter_mut().zip(windows).for_each(|(maybe, window)| *maybe = u8::from(in_leaf(window)));
    }
    for table in tables {
        let (may_contain, all) = (table.filter_reader(), !table.store.spill().is_empty());
        maybe
            .iter_mut()
            .zip(windows)
            .for_each(|(maybe, window)| *maybe |= u8::from(all | may_contain(window)));
    }
    let mut n = 0;
    for (word, eight) in cast::<[u8; VECTOR], [u64; VECTOR / 8]>(maybe).iter().enumerate() {
        let mut bits = eight.to_le();
        while bits != 0 {
            out[n % VECTOR] = word as u16 * 8 + bits.trailing_zeros() as u16 / 8;
            n += 1;
            bits &= bits - 1;
        }
    }
    (n <= windows.len() / MAX_SHARE).then_some(n)
}
