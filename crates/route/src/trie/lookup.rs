//! Lookups of address vectors.
//!
//! Theory of operation. A batch is processed in passes. The first pass reads the root's codes of all
//! addresses. The second prefetches the entries of slots without a valid code. Then the results of valid
//! codes are written. The remaining addresses descend level by level: one pass prefetches their nodes, the
//! next reads them. Finished addresses leave the list without a branch.

use mmb_packet::prefetch;

use super::codes::Root;
use super::entry::{NODE, bitmap, block, rank};
use super::node::{COVER, depth};
use super::{Address, TOPS, Trie};
use crate::hop::NextHopId;

/// Maximum number of addresses per batch.
const BATCH: usize = 256;

impl<A: Address> Trie<A> {
    /// Returns the next hop of the longest matching prefix, or 0.
    #[inline]
    pub fn lookup(&self, address: A) -> NextHopId {
        let mut entry = self.root.get(address.first(A::ROOT));
        let mut best = 0;
        while entry & NODE != 0 {
            let (next, cover) = self.step(entry, address);
            best = if cover != 0 { cover } else { best };
            entry = next;
        }
        self.or_top(if entry != 0 { entry } else { best }, address)
    }

    /// Prefetches the memory that a lookup of this address reads first.
    #[inline(always)]
    pub fn prefetch(&self, address: A) {
        self.root.prefetch(address.first(A::ROOT));
    }

    /// Reads an address's slot of a node: the next entry or value, and the node's cover.
    #[inline(always)]
    fn step(&self, entry: u32, address: A) -> (u32, u32) {
        let (first, word) = self.hot.block(block(entry));
        let depth = depth::<A>(entry);
        let value = word(A::HEADER + rank(bitmap(first), address.stride_bits(depth)));
        let same = A::get(first).has_common_prefix(address, depth);
        (if same { value } else { 0 }, first[COVER])
    }

    /// Converts a value to a next hop; the shortest prefixes apply if the value is 0.
    #[inline(always)]
    fn or_top(&self, found: u32, address: A) -> NextHopId {
        let top = self.tops[address.first(A::TOP) % TOPS];
        (if found != 0 { found } else { top }) - 1
    }

    /// Looks up many addresses, at most `hops.len()`.
    #[inline]
    pub fn lookup_batch(&self, addresses: &[A], hops: &mut [NextHopId]) {
        for (addresses, hops) in addresses.chunks(BATCH).zip(hops.chunks_mut(BATCH)) {
            self.lookup_chunk(addresses, hops);
        }
    }

    /// Looks up at most one batch.
    fn lookup_chunk(&self, addresses: &[A], hops: &mut [NextHopId]) {
        // The loop does little besides loads, so that many cache misses overlap. Slots without a valid code
        // are collected without a branch.
        let (mut codes, mut open, mut len) = ([0u8; BATCH], [0u8; BATCH], 0);
        for (slot, (address, code)) in addresses.iter().zip(&mut codes).enumerate() {
            let counts;
            (*code, counts) = self.root.code(address.first(A::ROOT));
            open[len % BATCH] = slot as u8;
            len += usize::from(!counts);
        }
        let open = &open[..len.min(BATCH)];
        for address in open.iter().filter_map(|slot| addresses.get(usize::from(*slot))) {
            self.root.prefetch_other(address.first(A::ROOT));
        }
        for ((address, hop), code) in addresses.iter().zip(&mut *hops).zip(codes) {
            *hop = self.or_top(self.root.number(code), *address);
        }
        if len > 0 {
            self.descend(addresses, hops, open);
        }
    }

    /// Looks up the addresses at the positions in `all`, whose slots have no valid code.
    #[inline(never)]
    fn descend(&self, addresses: &[A], hops: &mut [NextHopId], all: &[u8]) {
        // Addresses that lead to nodes: position, entry, and best value so far.
        let (mut slots, mut entries, mut found, mut len) = ([0u8; BATCH], [0; BATCH], [0; BATCH], 0);
        for slot in all {
            let at = usize::from(*slot);
            let (Some(address), Some(hop)) = (addresses.get(at), hops.get_mut(at)) else { continue };
            let entry = self.root.get(address.first(A::ROOT));
            *hop = self.or_top(entry, *address);
            (slots[len % BATCH], entries[len % BATCH]) = (*slot, entry);
            len += usize::from(entry & NODE != 0);
        }
        while len > 0 {
            let now = std::mem::take(&mut len).min(BATCH);
            for entry in &entries[..now] {
                prefetch::read(self.hot.granule(block(*entry)));
            }
            for at in 0..now {
                let slot = usize::from(slots[at]);
                let (Some(address), Some(hop)) = (addresses.get(slot), hops.get_mut(slot)) else {
                    continue;
                };
                let (value, cover) = self.step(entries[at], *address);
                let best = if cover != 0 { cover } else { found[at] };
                let leads = value & NODE != 0;
                *hop = self.or_top(if leads | (value == 0) { best } else { value }, *address);
                // `len` never exceeds `at`, so no unread element is overwritten.
                (slots[len], entries[len], found[len]) = (slots[at], value, best);
                len += usize::from(leads);
            }
        }
    }
}
