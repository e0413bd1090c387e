//! Entries against many packets, field by field.
//!
//! Theory of operation. The values of a field in all packets of a vector are copied to a column. Each
//! remaining entry that restricts the field is compared with the column: a subtraction and a comparison for
//! several packets at a time, and no branch depends on a packet. The packets that an entry accepts in all
//! fields remain in its set.

use bytemuck::{cast_mut, cast_ref};
use mmb_packet::Window;
use wide::{u16x8, u32x4};

use super::conditions::{Condition, Conditions};
use super::lanes::{LANES, LaneBlock, Ones};
use crate::pattern::WordReader;
use crate::vector::VECTOR;

/// Number of packets that are compared at a time: one bit of a word for each.
pub(super) const GROUP: usize = 64;
const GROUPS: usize = VECTOR / GROUP;

/// Words of 16 and of 32 bits of a group of packets.
pub(super) type Narrow = [u16; GROUP];
pub(super) type Wide = [u32; GROUP];

/// Compares words with conditions. It returns a bit for each word, which is set if the condition accepts it.
pub(super) trait Compare {
    fn narrow(&self, words: &Narrow, condition: Condition) -> u64;
    fn wide(&self, words: &Wide, condition: Condition) -> u64;
    /// Measured cost in clock ticks of comparing words of 16 bits. Words of 32 bits cost twice as much.
    fn ticks(&self) -> usize;
}

impl<N: Fn(&Narrow, Condition) -> u64, W: Fn(&Wide, Condition) -> u64> Compare for (N, W, usize) {
    #[inline(always)]
    fn narrow(&self, words: &Narrow, condition: Condition) -> u64 {
        self.0(words, condition)
    }

    #[inline(always)]
    fn wide(&self, words: &Wide, condition: Condition) -> u64 {
        self.1(words, condition)
    }

    #[inline(always)]
    fn ticks(&self) -> usize {
        self.2
    }
}

/// A set of packets of a vector.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PacketSet([u64; GROUPS]);

/// The values of a field in the packets of a vector.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Column([u32; VECTOR]);

/// The values of one field at a time, and the packets that remain for each remaining entry.
#[derive(Clone, Debug)]
pub(super) struct FieldColumns {
    column: Column,
    sets: Vec<PacketSet>,
}

impl PacketSet {
    /// The first `n` packets.
    fn first(n: usize) -> PacketSet {
        let bits = |group: usize| n.saturating_sub(group * GROUP).min(GROUP) as u32;
        PacketSet(std::array::from_fn(|group| u64::MAX.checked_shr(64 - bits(group)).unwrap_or(0)))
    }

    /// Whether the set is empty.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.0.iter().fold(0, |all, bits| all | bits) == 0
    }

    /// The indexes of the packets, ascending.
    #[inline(always)]
    pub fn packets(&self) -> Ones<'_> {
        Ones::of(&self.0)
    }
}

impl FieldColumns {
    /// Memory for columns.
    pub const fn new() -> FieldColumns {
        FieldColumns { column: Column([0; VECTOR]), sets: Vec::new() }
    }

    /// Starts with some entries that accept `n` packets.
    pub fn start(&mut self, entries: usize, n: usize) {
        self.sets.clear();
        self.sets.reserve(LANES);
        self.sets.resize(entries, PacketSet::first(n));
    }

    /// Removes the packets whose value of a field an entry in `lanes` does not accept. All packets have the
    /// field.
    #[inline(always)]
    pub fn apply(
        &mut self,
        (reader, width): (WordReader, u8),
        (conditions, lanes): (&Conditions, &[LaneBlock]),
        windows: &[&Window],
        compare: &impl Compare,
    ) {
        let FieldColumns { column, sets } = self;
        let values = windows.iter().map(|window| reader.read_leading(window));
        let groups = windows.len().div_ceil(GROUP);
        if width <= 16 {
            let words: &mut [u16; 2 * VECTOR] = cast_mut(&mut column.0);
            words.iter_mut().zip(values).for_each(|(word, value)| *word = (value >> 48) as u16);
            let words: &[Narrow; 2 * GROUPS] = cast_ref(&column.0);
            filter(&words[..groups], sets, (conditions, lanes), |words, condition| {
                compare.narrow(words, condition)
            });
        } else {
            column.0.iter_mut().zip(values).for_each(|(word, value)| *word = (value >> 32) as u32);
            let words: &[Wide; GROUPS] = cast_ref(&column.0);
            filter(&words[..groups], sets, (conditions, lanes), |words, condition| {
                compare.wide(words, condition)
            });
        }
    }

    /// The packets that remain for each entry.
    pub fn sets(&self) -> &[PacketSet] {
        &self.sets
    }
}

/// Removes the packets from the sets of the entries in `lanes` that their conditions do not accept.
#[inline(always)]
fn filter<T>(
    words: &[T],
    sets: &mut [PacketSet],
    (conditions, lanes): (&Conditions, &[LaneBlock]),
    compare: impl Fn(&T, Condition) -> u64,
) {
    match words {
        [] => {}
        [a] => conditions.for_each(lanes, |entry, condition| sets[entry].0[0] &= compare(a, condition)),
        [a, b] => conditions.for_each(lanes, |entry, condition| {
            let set = &mut sets[entry].0;
            set[0] &= compare(a, condition);
            set[1] &= compare(b, condition);
        }),
        [a, b, c, rest @ ..] => {
            // Without a fourth group, the sets have no packet of it.
            let d = rest.first().unwrap_or(c);
            conditions.for_each(lanes, |entry, condition| {
                let set = &mut sets[entry].0;
                set[0] &= compare(a, condition);
                set[1] &= compare(b, condition);
                set[2] &= compare(c, condition);
                set[3] &= compare(d, condition);
            });
        }
    }
}

/// Compares words without AVX-512.
pub(super) fn portable() -> impl Compare {
    (compare_narrow, compare_wide, 16)
}

/// Compares words of 16 bits; returns a bit for each, which is set if the condition accepts it.
#[inline(always)]
pub(super) fn compare_narrow(words: &Narrow, condition: Condition) -> u64 {
    let (last, span) = (u16x8::splat(condition.last as u16), u16x8::splat(condition.span as u16));
    let words: &[[u16; 8]; GROUP / 8] = cast_ref(words);
    words.iter().rev().fold(0, |all, words| {
        let distance = last - u16x8::from(*words);
        all << 8 | u64::from(distance.min(span).simd_eq(distance).to_bitmask())
    })
}

/// [`compare_narrow`] for words of 32 bits.
#[inline(always)]
pub(super) fn compare_wide(words: &Wide, condition: Condition) -> u64 {
    let (last, span) = (u32x4::splat(condition.last), u32x4::splat(condition.span));
    let words: &[[u32; 4]; GROUP / 4] = cast_ref(words);
    words.iter().rev().fold(0, |all, words| {
        let distance = last - u32x4::from(*words);
        all << 4 | u64::from(distance.min(span).simd_eq(distance).to_bitmask())
    })
}
