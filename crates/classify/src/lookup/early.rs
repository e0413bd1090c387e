//! Early exclusion of packets that cannot match.

use bytemuck::cast;
use mmb_packet::Window;

use crate::leaf::{ActiveBlocks, Block16, PreFilter, first_words};
#[cfg(target_arch = "x86_64")]
use crate::lookup::avx512;
use crate::table::Table;
use crate::vector::{Simd, VECTOR, VectorSummary};

/// The result pays only if at most one of this many packets may match.
const MAX_SHARE: usize = 3;

/// Writes the numbers of the packets that may match through these tables and blocks to `out`, and returns how
/// many they are. No other packet can match. None if too many packets may match for this to pay.
pub(crate) fn find_possible_matches(
    windows: &[Window],
    tables: &[Table],
    (leaf, pre_filter): (&ActiveBlocks<'_>, Option<&PreFilter>),
    (summary, simd): (&VectorSummary, Simd),
    out: &mut [u16; VECTOR],
) -> Option<usize> {
    let mut tables = tables.iter().filter(|table| !table.is_excluded(summary)).peekable();
    let mut maybe = [0u8; VECTOR];
    let any_in_leaf = mark_agreeing(windows, leaf, pre_filter, simd, &mut maybe);
    if !any_in_leaf && tables.peek().is_none() {
        return Some(0);
    }
    for table in tables {
        mark_passing(windows, table, &mut maybe);
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

/// Sets the elements of packets that may have a key of a table. In a function of its own, the compiler keeps
/// all that the loop reads in registers.
#[inline(never)]
fn mark_passing(windows: &[Window], table: &Table, maybe: &mut [u8; VECTOR]) {
    let (may_match, all) = (table.filter_reader(), !table.store.spill().is_empty());
    maybe.iter_mut().zip(windows).for_each(|(maybe, window)| *maybe |= u8::from(all || may_match(window)));
}

/// Sets the elements of packets that agree with an entry of these blocks; returns whether any does. Without a
/// pre-filter it first goes block by block, which is faster if no packet agrees.
#[allow(unsafe_code)]
fn mark_agreeing(
    windows: &[Window],
    leaf: &ActiveBlocks<'_>,
    pre_filter: Option<&PreFilter>,
    simd: Simd,
    maybe: &mut [u8; VECTOR],
) -> bool {
    #[cfg(target_arch = "x86_64")]
    if simd.has_avx512() && leaf.narrow.is_none() && pre_filter.is_none() {
        // SAFETY: the level says that the processor has the instructions.
        return unsafe { mark_agreeing_avx512(windows, leaf, maybe) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = simd;
    mark_with(
        (windows, leaf, pre_filter, maybe),
        |block, window| block.agreeing_lanes(&first_words(window.chunk[0]), window),
        |window| leaf.agreeing_lanes(window),
    )
}

/// [`mark_agreeing`] with AVX-512, for wide blocks without a pre-filter; the caller has the level for it.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
fn mark_agreeing_avx512(windows: &[Window], leaf: &ActiveBlocks<'_>, maybe: &mut [u8; VECTOR]) -> bool {
    let sixteen =
        |block: &Block16, window: &Window| avx512::compare16(block, &avx512::Sixteen::first(window), window);
    let all = |window: &Window| leaf.wide().iter().fold(0, |any, block| any | sixteen(block, window));
    mark_with((windows, leaf, None, maybe), sixteen, all)
}

/// Marks packets with these functions, which compare sixteen entries, and all.
#[inline(always)]
fn mark_with(
    (windows, leaf, pre_filter, maybe): (&[Window], &ActiveBlocks<'_>, Option<&PreFilter>, &mut [u8; VECTOR]),
    sixteen: impl Fn(&Block16, &Window) -> u32,
    all: impl Fn(&Window) -> u32,
) -> bool {
    let passes = |window: &Window| pre_filter.is_none_or(|filter| filter.can_match(window.chunk[0]));
    let any_in_leaf = if pre_filter.is_some() {
        windows.iter().any(|window| passes(window) && all(window) != 0)
    } else {
        let in_block =
            |block: &Block16| windows.iter().fold(0, |any, window| any | sixteen(block, window)) != 0;
        let in_narrow = leaf.narrow.is_some_and(|block| block.can_match_any(windows));
        in_narrow || leaf.wide().iter().any(|block| in_block(block))
    };
    if any_in_leaf {
        for (maybe, window) in maybe.iter_mut().zip(windows) {
            *maybe = u8::from(passes(window) && all(window) != 0);
        }
    }
    any_in_leaf
}
