//! Entries of nodes, and the bitmaps of runs.

/// Flag of entries that refer to a node.
pub(crate) const NODE: u32 = 1 << 31;
/// Bit offset of a node's level in its entry, above the number of the hot block.
pub(super) const LEVEL: u32 = 26;
/// Number of bits that index a node.
pub(crate) const STRIDE: u32 = 6;

/// The entry of a node.
pub(crate) fn entry(level: u32, block: u32) -> u32 {
    NODE | level << LEVEL | block
}

/// Number of a node's hot block.
#[inline(always)]
pub(crate) fn block(entry: u32) -> u32 {
    entry & ((1 << LEVEL) - 1)
}

/// The 64-bit bitmap in a hot block's header.
#[inline(always)]
pub(crate) fn bitmap(first: &[u32; 8]) -> u64 {
    u64::from(first[0]) | u64::from(first[1]) << 32
}

/// The run of a bitmap that contains a slot.
#[inline(always)]
pub(crate) fn rank(bitmap: u64, slot: usize) -> usize {
    // Shifts the slot's bit to the top and the later ones out; bit 0 is always set.
    ((bitmap << (63 - slot)).count_ones() as usize).wrapping_sub(1)
}
