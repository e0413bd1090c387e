//! A node as it is changed, and how it lies in memory.
//!
//! Two blocks. The hot one, which lookups read: a header (bitmap, cover, key), then the values of the node's 64 places, each
//! run of equal ones once; a bit of the bitmap says that a run begins. The cold one: a bitmap of the prefixes that end in
//! the node, by their codes (the bits behind the node's key with a one before them), then their values in this order.

use super::arena::Arena;
use super::bits::Bits;

/// Words in a granule of nodes' blocks.
const GRANULE: usize = 8;

/// Where nodes' blocks lie.
pub(crate) type Blocks = Arena<GRANULE>;

/// Set in entries that lead to a node.
pub(crate) const NODE: u32 = 1 << 31;
/// Bits of a node's level above the number of its hot block.
const LEVEL: u32 = 26;
/// The word of the cover.
pub(crate) const COVER: usize = 2;
/// Words in front of the values of a cold block.
const COLD: usize = 4;
/// Bits that a node is indexed by.
pub(crate) const STRIDE: u32 = 6;

/// The entry of a node.
pub(crate) fn entry(level: u32, block: u32) -> u32 {
    NODE | level << LEVEL | block
}

/// The number of a node's hot block.
#[inline(always)]
pub(crate) fn block(entry: u32) -> u32 {
    entry & ((1 << LEVEL) - 1)
}

/// How many bits lead to a node.
#[inline(always)]
pub(crate) fn depth<A: Bits>(entry: u32) -> u32 {
    A::ROOT + STRIDE * (entry >> LEVEL & 31)
}

/// The 64-bit bitmap in a hot block's header.
#[inline(always)]
pub(crate) fn bitmap(first: &[u32; GRANULE]) -> u64 {
    u64::from(first[0]) | u64::from(first[1]) << 32
}

/// Which run of a bitmap a place is in.
#[inline(always)]
pub(crate) fn rank(bitmap: u64, place: usize) -> usize {
    // The bit of the place goes to the top, those behind it fall out; bit 0 is always set.
    ((bitmap << (63 - place)).count_ones() as usize).wrapping_sub(1)
}

/// A node.
#[derive(Debug)]
pub(crate) struct Node<A> {
    /// The bits that lead to it; the others are 0.
    pub key: A,
    pub level: u32,
    /// What the longest prefix leads to that covers all of its parent's place where it stands, and ends in the parent; 0:
    /// none does.
    pub cover: u32,
    /// Places with a node below, and its entry.
    pub parents: u64,
    pub children: [u32; 64],
    /// Prefixes that end here by their codes, and what they lead to.
    pub codes: u128,
    pub hops: [u32; 128],
}

impl<A: Bits> Node<A> {
    pub fn new(key: A, level: u32, cover: u32) -> Self {
        Node { key, level, cover, parents: 0, children: [0; 64], codes: 0, hops: [0; 128] }
    }

    /// The code of a prefix that ends here.
    pub fn code(&self, prefix: A, length: u32) -> usize {
        let depth = A::ROOT + STRIDE * self.level;
        let bits = length - depth;
        1 << bits | prefix.six(depth) >> (STRIDE - bits)
    }

    /// Sets what a prefix leads to; 0: it is no more. Returns what it led to.
    pub fn set_prefix(&mut self, code: usize, hop: u32) -> u32 {
        self.codes = self.codes & !(1 << code) | u128::from(hop != 0) << code;
        std::mem::replace(&mut self.hops[code], hop)
    }

    /// Sets the node below a place; 0: there is none.
    pub fn set_child(&mut self, place: usize, entry: u32) {
        self.parents = self.parents & !(1 << place) | u64::from(entry != 0) << place;
        self.children[place] = entry;
    }

    /// What the longest prefix that ends here leads to, by place; 0: none does.
    pub fn painted(&self) -> [u32; 64] {
        let mut values = [0; 64];
        let mut codes = self.codes;
        while codes != 0 {
            // Longer prefixes have larger codes.
            let code = codes.trailing_zeros();
            codes &= codes - 1;
            let length = code.ilog2();
            let shift = STRIDE - length;
            let start = ((code - (1 << length)) << shift) as usize;
            values[start..start + (1 << shift)].fill(self.hops[code as usize]);
        }
        values
    }

    /// Reads a node.
    pub fn load(hot: &Blocks, cold: &Blocks, level: u32, at: u32, cold_at: u32) -> Self {
        let (first, word) = hot.block(at);
        let mut node = Node::new(A::get(first), level, first[COVER]);
        let bits = bitmap(first);
        let mut starts = bits;
        let mut n = A::HEADER;
        while starts != 0 {
            let value = word(n);
            if value & NODE != 0 {
                node.set_child(starts.trailing_zeros() as usize, value);
            }
            starts &= starts - 1;
            n += 1;
        }
        let (first, word) = cold.block(cold_at);
        node.codes = (0..COLD).fold(0, |codes, n| codes | u128::from(first[n]) << (32 * n));
        let mut codes = node.codes;
        let mut n = COLD;
        while codes != 0 {
            node.hops[codes.trailing_zeros() as usize] = word(n);
            codes &= codes - 1;
            n += 1;
        }
        node
    }

    /// The words of its hot block in `words`, and how many: for `values` of its places, children included.
    pub fn hot(&self, values: &[u32; 64], words: &mut [u32; 80]) -> usize {
        let (mut bits, mut n, mut last) = (1u64, A::HEADER, values[0]);
        words[n] = last;
        for (place, value) in values.iter().enumerate().skip(1) {
            let new = *value != last;
            bits |= u64::from(new) << place;
            n += usize::from(new);
            words[n] = *value;
            last = *value;
        }
        if let Some(header) = words.first_chunk_mut::<GRANULE>() {
            (header[0], header[1], header[COVER]) = (bits as u32, (bits >> 32) as u32, self.cover);
            self.key.put(header);
        }
        n + 1
    }

    /// The words of its cold block.
    pub fn cold(&self, words: &mut [u32; 144]) -> usize {
        (0..COLD).for_each(|n| words[n] = (self.codes >> (32 * n)) as u32);
        let mut codes = self.codes;
        let mut n = COLD;
        while codes != 0 {
            words[n] = self.hops[codes.trailing_zeros() as usize];
            codes &= codes - 1;
            n += 1;
        }
        n
    }

    /// Granules of the hot block at `at`.
    pub fn hot_granules(hot: &Blocks, at: u32) -> usize {
        Blocks::granules(A::HEADER + bitmap(hot.granule(at)).count_ones() as usize)
    }
}

/// Granules of the cold block at `at`.
pub(crate) fn cold_granules(cold: &Blocks, at: u32) -> usize {
    let codes: u32 = cold.granule(at)[..COLD].iter().map(|word| word.count_ones()).sum();
    Blocks::granules(COLD + codes as usize)
}
