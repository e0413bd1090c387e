//! A bit for each entry of a leaf.

/// Most entries in a leaf.
pub(super) const LANES: usize = 2048;

/// Entries that one block has bits for.
pub(super) const BLOCK: usize = 256;

/// Blocks in a [`Lanes`].
pub(super) const BLOCKS: usize = LANES / BLOCK;

/// 256 bits.
#[repr(align(32))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Block([u64; BLOCK / 64]);

impl Block {
    /// No bit.
    pub const EMPTY: Block = Block([0; BLOCK / 64]);

    /// Those bits that are in `one` or in `other`.
    #[inline(always)]
    pub fn keep(self, one: &Block, other: &Block) -> Block {
        Block(std::array::from_fn(|word| self.0[word] & (one.0[word] | other.0[word])))
    }

    /// Those bits that are in one of both.
    #[inline(always)]
    pub fn or(self, other: &Block) -> Block {
        Block(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }

    /// Whether there is no bit.
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
pub(super) struct Lanes([Block; BLOCKS]);

impl Lanes {
    pub fn set(&mut self, lane: usize, on: bool) {
        self.0[lane / BLOCK % BLOCKS].set(lane, on);
    }

    /// Whether a lane is in it.
    #[inline(always)]
    pub fn contains(&self, lane: usize) -> bool {
        self.0[lane / BLOCK % BLOCKS].0[lane % BLOCK / 64] >> (lane % 64) & 1 == 1
    }

    /// All blocks.
    #[inline(always)]
    pub fn blocks(&self) -> &[Block; BLOCKS] {
        &self.0
    }

    /// The same, to be changed.
    pub fn blocks_mut(&mut self) -> &mut [Block; BLOCKS] {
        &mut self.0
    }

    /// The lowest lane that is not in the set.
    pub fn first_free(&self) -> Option<usize> {
        let mut words = self.0.iter().flat_map(|block| block.0);
        let word = words.position(|word| word != u64::MAX)?;
        let rest = self.0[word * 64 / BLOCK].0[word % (BLOCK / 64)];
        Some(word * 64 + rest.trailing_ones() as usize)
    }
}

/// Calls `visit` with each lane of some blocks, ascending.
#[inline(always)]
pub(super) fn each(blocks: &[Block], mut visit: impl FnMut(usize)) {
    for (at, block) in blocks.iter().enumerate() {
        for (word, bits) in block.0.iter().enumerate() {
            let mut bits = *bits;
            while bits != 0 {
                visit(at * BLOCK + word * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }
}

/// Rows of one block each.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    rows: Vec<Block>,
    /// Rows that are in no use.
    free: Vec<u16>,
}

impl Rows {
    /// The row that is always empty.
    pub const EMPTY: u16 = BLOCKS as u16;

    /// An empty row for each block of a leaf, numbered by blocks, and [`Rows::EMPTY`].
    pub fn new() -> Rows {
        Rows { rows: vec![Block::EMPTY; BLOCKS + 1], free: Vec::new() }
    }

    /// All rows, by number.
    #[inline(always)]
    pub fn all(&self) -> &[Block] {
        &self.rows
    }

    pub fn set(&mut self, row: u16, lane: usize, on: bool) {
        self.rows[usize::from(row)].set(lane, on);
    }

    /// A new row that is equal to `row`.
    pub fn copy(&mut self, row: u16) -> u16 {
        let copy = self.rows[usize::from(row)];
        if let Some(free) = self.free.pop() {
            self.rows[usize::from(free)] = copy;
            return free;
        }
        self.rows.push(copy);
        (self.rows.len() - 1) as u16
    }

    /// Gives a row up.
    pub fn give_up(&mut self, row: u16) {
        self.free.push(row);
    }

    pub fn bytes(&self) -> usize {
        self.rows.capacity() * size_of::<Block>() + self.free.capacity() * 2
    }
}
