//! Sets of lanes: one bit for each entry of a partition.

use bytemuck::{Pod, Zeroable, cast_slice};

/// Maximum number of entries in a partition.
pub(super) const LANES: usize = 2048;

/// Number of lanes in a block.
pub(super) const BLOCK: usize = 256;

/// Number of words in a block.
const BLOCK_WORDS: usize = BLOCK / 64;

/// Number of blocks in a [`LaneSet`].
pub(super) const BLOCKS: usize = LANES / BLOCK;

/// A set of 256 lanes.
#[repr(C, align(32))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub(super) struct LaneBlock([u64; BLOCK_WORDS]);

impl LaneBlock {
    /// The empty set.
    pub const EMPTY: LaneBlock = LaneBlock([0; BLOCK_WORDS]);

    /// Keeps the lanes that are in `one` or in `other`.
    #[inline(always)]
    pub fn keep(self, one: &LaneBlock, other: &LaneBlock) -> LaneBlock {
        LaneBlock(std::array::from_fn(|word| self.0[word] & (one.0[word] | other.0[word])))
    }

    /// The union of both sets.
    #[inline(always)]
    pub fn or(self, other: &LaneBlock) -> LaneBlock {
        LaneBlock(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }

    /// The lanes that are in both sets.
    #[inline(always)]
    pub fn and(self, other: &LaneBlock) -> LaneBlock {
        LaneBlock(std::array::from_fn(|word| self.0[word] & other.0[word]))
    }

    /// The lanes that are not in both `one` and `other`.
    #[inline(always)]
    pub fn without_both(self, one: &LaneBlock, other: &LaneBlock) -> LaneBlock {
        LaneBlock(std::array::from_fn(|word| self.0[word] & !(one.0[word] & other.0[word])))
    }

    /// Number of lanes.
    #[inline(always)]
    pub fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether the set is empty.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.0.iter().fold(0, |all, word| all | word) == 0
    }

    fn set(&mut self, lane: usize, on: bool) {
        let word = &mut self.0[lane % BLOCK / 64];
        *word = *word & !(1 << (lane % 64)) | u64::from(on) << (lane % 64);
    }
}

/// A set of lanes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LaneSet([LaneBlock; BLOCKS]);

impl LaneSet {
    pub fn set(&mut self, lane: usize, on: bool) {
        self.0[lane / BLOCK % BLOCKS].set(lane, on);
    }

    /// Whether a lane is in the set.
    #[inline(always)]
    pub fn contains(&self, lane: usize) -> bool {
        self.0[lane / BLOCK % BLOCKS].0[lane % BLOCK / 64] >> (lane % 64) & 1 == 1
    }

    /// All blocks.
    #[inline(always)]
    pub fn blocks(&self) -> &[LaneBlock; BLOCKS] {
        &self.0
    }

    /// All blocks, mutable.
    pub fn blocks_mut(&mut self) -> &mut [LaneBlock; BLOCKS] {
        &mut self.0
    }

    /// Number of lanes in the set that are less than `lane`.
    pub fn count_below(&self, lane: usize) -> usize {
        let words: &[u64] = cast_slice(&self.0);
        let whole = words[..lane / 64].iter().map(|word| word.count_ones() as usize).sum::<usize>();
        whole + (words[lane / 64] & ((1 << (lane % 64)) - 1)).count_ones() as usize
    }

    /// The lowest lane that is not in the set.
    pub fn first_free(&self) -> Option<usize> {
        let mut words = self.0.iter().flat_map(|block| block.0);
        let word = words.position(|word| word != u64::MAX)?;
        let rest = self.0[word / BLOCK_WORDS].0[word % BLOCK_WORDS];
        Some(word * 64 + rest.trailing_ones() as usize)
    }
}

/// The lanes of some blocks, ascending.
#[inline(always)]
pub(super) fn lanes_of(blocks: &[LaneBlock]) -> Ones<'_> {
    Ones::of(cast_slice(blocks))
}

/// The numbers of the bits that are set in some words, ascending. A loop over them is compiled with the
/// instructions of its function; a closure would not always be.
#[derive(Clone, Debug)]
pub(super) struct Ones<'a> {
    words: &'a [u64],
    /// Index of the next word, and the rest of the word before it.
    next: usize,
    bits: u64,
}

impl<'a> Ones<'a> {
    #[inline(always)]
    pub fn of(words: &'a [u64]) -> Ones<'a> {
        Ones { words, next: 0, bits: 0 }
    }
}

impl Iterator for Ones<'_> {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        while self.bits == 0 {
            self.bits = *self.words.get(self.next)?;
            self.next += 1;
        }
        let at = (self.next - 1) * 64 + self.bits.trailing_zeros() as usize;
        self.bits &= self.bits - 1;
        Some(at)
    }
}

/// Rows of one block each, indexed by number.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    rows: Vec<LaneBlock>,
    /// Unused rows.
    free: Vec<u16>,
}

impl Rows {
    /// The row that is always empty.
    pub const EMPTY: u16 = BLOCKS as u16;

    /// One empty row for each block, with the block's number, and [`Rows::EMPTY`].
    pub fn new() -> Rows {
        Rows { rows: vec![LaneBlock::EMPTY; BLOCKS + 1], free: Vec::new() }
    }

    /// All rows, by number.
    #[inline(always)]
    pub fn all(&self) -> &[LaneBlock] {
        &self.rows
    }

    pub fn set(&mut self, row: u16, lane: usize, on: bool) {
        self.rows[usize::from(row)].set(lane, on);
    }

    /// Adds a copy of `row`; returns its number.
    pub fn copy(&mut self, row: u16) -> u16 {
        let copy = self.rows[usize::from(row)];
        if let Some(free) = self.free.pop() {
            self.rows[usize::from(free)] = copy;
            return free;
        }
        self.rows.push(copy);
        (self.rows.len() - 1) as u16
    }

    /// Marks a row as unused.
    pub fn free_row(&mut self, row: u16) {
        self.free.push(row);
    }

    pub fn bytes(&self) -> usize {
        self.rows.capacity() * size_of::<LaneBlock>() + self.free.capacity() * 2
    }
}
