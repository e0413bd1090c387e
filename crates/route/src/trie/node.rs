//! A node in its mutable form and in memory.
//!
//! In memory a node has two blocks. Lookups read the hot block: a header (bitmap, cover, key), then the
//! values of the node's 64 slots. Consecutive equal values are stored once; a set bit of the bitmap starts
//! a new run. The cold block has a bitmap of the prefixes that end in the node, by their codes (the bits
//! behind the node's key with a leading one), then their values in this order.

use super::address::Address;
use super::arena::Arena;
use super::entry::{LEVEL, NODE, STRIDE, bitmap};

/// Words per granule of a node's blocks.
const GRANULE: usize = 8;

/// Arena of node blocks.
pub(crate) type Blocks = Arena<GRANULE>;

/// Index of the cover in a hot block.
pub(crate) const COVER: usize = 2;
/// Words before the values of a cold block.
const COLD: usize = 4;
/// Depth of a node in bits.
#[inline(always)]
pub(crate) fn depth<A: Address>(entry: u32) -> u32 {
    A::ROOT + STRIDE * (entry >> LEVEL & 31)
}

/// A node in its mutable form.
#[derive(Debug)]
pub(crate) struct Node<A> {
    /// The bits that lead to the node; the others are 0.
    pub key: A,
    pub level: u32,
    /// Value of the longest prefix that ends in the parent and covers the parent's whole slot; 0: none.
    pub cover: u32,
    /// Slots with a child node, as a bitmap, and the entries of the children.
    pub parents: u64,
    pub children: [u32; 64],
    /// Prefixes that end in the node, as a bitmap by code, and their values.
    pub codes: u128,
    pub hops: [u32; 128],
}

impl<A: Address> Node<A> {
    pub fn new(key: A, level: u32, cover: u32) -> Self {
        Node { key, level, cover, parents: 0, children: [0; 64], codes: 0, hops: [0; 128] }
    }

    /// Code of a prefix that ends in the node.
    pub fn code(&self, prefix: A, length: u32) -> usize {
        let depth = A::ROOT + STRIDE * self.level;
        let bits = length - depth;
        1 << bits | prefix.stride_bits(depth) >> (STRIDE - bits)
    }

    /// Sets the value of a prefix; 0 removes it. Returns its former value.
    pub fn set_prefix(&mut self, code: usize, hop: u32) -> u32 {
        self.codes = self.codes & !(1 << code) | u128::from(hop != 0) << code;
        std::mem::replace(&mut self.hops[code], hop)
    }

    /// Sets the child node of a slot; 0 removes it.
    pub fn set_child(&mut self, slot: usize, entry: u32) {
        self.parents = self.parents & !(1 << slot) | u64::from(entry != 0) << slot;
        self.children[slot] = entry;
    }

    /// The value of the longest prefix that ends in the node, by slot; 0: none.
    pub fn expanded(&self) -> [u32; 64] {
        let mut values = [0; 64];
        let mut codes = self.codes;
        while codes != 0 {
            // Longer prefixes have greater codes.
            let code = codes.trailing_zeros();
            codes &= codes - 1;
            let length = code.ilog2();
            let shift = STRIDE - length;
            let start = ((code - (1 << length)) << shift) as usize;
            values[start..start + (1 << shift)].fill(self.hops[code as usize]);
        }
        values
    }

    /// Reads a node from memory.
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

    /// Writes the words of the hot block for the values of its slots, children included. Returns their
    /// number.
    pub fn hot(&self, values: &[u32; 64], words: &mut [u32; 80]) -> usize {
        let (mut bits, mut n, mut last) = (1u64, A::HEADER, values[0]);
        words[n] = last;
        for (slot, value) in values.iter().enumerate().skip(1) {
            let new = *value != last;
            bits |= u64::from(new) << slot;
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

    /// Writes the words of the cold block. Returns their number.
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

    /// Number of granules of the hot block `at`.
    pub fn hot_granules(hot: &Blocks, at: u32) -> usize {
        Blocks::granules(A::HEADER + bitmap(hot.granule(at)).count_ones() as usize)
    }
}

/// Number of granules of the cold block `at`.
pub(crate) fn cold_granules(cold: &Blocks, at: u32) -> usize {
    let codes: u32 = cold.granule(at)[..COLD].iter().map(|word| word.count_ones()).sum();
    Blocks::granules(COLD + codes as usize)
}
