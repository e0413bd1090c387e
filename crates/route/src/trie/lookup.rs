//! Lookups, for many addresses at once.
//!
//! Pass by pass: all places of the root; then those whose number stands elsewhere, which have been asked for before the others
//! are written down; then, as long as there are addresses that lead to nodes, the nodes of these, which are
//! asked for in one pass and read in the next. What has come to its end falls out of the list without a branch.

use mmb_packet::prefetch;

use super::codes::Root;
use super::node::{COVER, NODE, bitmap, block, depth, rank};
use super::{Bits, TOPS, Trie};
use crate::hop::NextHopId;

/// Addresses that are looked up together.
const BATCH: usize = 256;

impl<A: Bits> Trie<A> {
    /// What the longest prefix of an address leads to, 0 if there is none.
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

    /// Asks for what a lookup of this address reads first.
    #[inline(always)]
    pub fn prefetch(&self, address: A) {
        self.root.prefetch(address.first(A::ROOT));
    }

    /// The next entry or value on the way of an address through a node, and the node's cover.
    #[inline(always)]
    fn step(&self, entry: u32, address: A) -> (u32, u32) {
        let (first, word) = self.hot.block(block(entry));
        let depth = depth::<A>(entry);
        let value = word(A::HEADER + rank(bitmap(first), address.six(depth)));
        let same = A::get(first).same(address, depth);
        (if same { value } else { 0 }, first[COVER])
    }

    /// The next hop of what was found, or of the shortest prefixes.
    #[inline(always)]
    fn or_top(&self, found: u32, address: A) -> NextHopId {
        let top = self.tops[address.first(A::TOP) % TOPS];
        (if found != 0 { found } else { top }) - 1
    }

    /// The same for many addresses: as many as `hops` has room for, at most.
    #[inline]
    pub fn lookup_batch(&self, addresses: &[A], hops: &mut [NextHopId]) {
        for (addresses, hops) in addresses.chunks(BATCH).zip(hops.chunks_mut(BATCH)) {
            self.some(addresses, hops);
        }
    }

    /// At most a batch.
    fn some(&self, addresses: &[A], hops: &mut [NextHopId]) {
        // Little else happens in the pass that waits for memory, so that as many addresses as can be wait together. Places of
        // those whose number stands elsewhere are noted without a branch.
        let (mut codes, mut open, mut len) = ([0u8; BATCH], [0u8; BATCH], 0);
        for (place, (address, code)) in addresses.iter().zip(&mut codes).enumerate() {
            let counts;
            (*code, counts) = self.root.code(address.first(A::ROOT));
            open[len % BATCH] = place as u8;
            len += usize::from(!counts);
        }
        let open = &open[..len.min(BATCH)];
        for address in open.iter().filter_map(|place| addresses.get(usize::from(*place))) {
            self.root.prefetch_other(address.first(A::ROOT));
        }
        for ((address, hop), code) in addresses.iter().zip(&mut *hops).zip(codes) {
            *hop = self.or_top(self.root.number(code), *address);
        }
        if len > 0 {
            self.descend(addresses, hops, open);
        }
    }

    /// Looks the addresses at some places up whose numbers stand elsewhere.
    #[inline(never)]
    fn descend(&self, addresses: &[A], hops: &mut [NextHopId], all: &[u8]) {
        // Those that lead to nodes: their places, where they are, and what was found on their way.
        let (mut places, mut entries, mut found, mut len) = ([0u8; BATCH], [0; BATCH], [0; BATCH], 0);
        for place in all {
            let at = usize::from(*place);
            let (Some(address), Some(hop)) = (addresses.get(at), hops.get_mut(at)) else { continue };
            let entry = self.root.get(address.first(A::ROOT));
            *hop = self.or_top(entry, *address);
            (places[len % BATCH], entries[len % BATCH]) = (*place, entry);
            len += usize::from(entry & NODE != 0);
        }
        while len > 0 {
            let now = std::mem::take(&mut len).min(BATCH);
            for entry in &entries[..now] {
                prefetch::read(self.hot.granule(block(*entry)));
            }
            for at in 0..now {
                let place = usize::from(places[at]);
                let (Some(address), Some(hop)) = (addresses.get(place), hops.get_mut(place)) else {
                    continue;
                };
                let (value, cover) = self.step(entries[at], *address);
                let best = if cover != 0 { cover } else { found[at] };
                let leads = value & NODE != 0;
                *hop = self.or_top(if leads | (value == 0) { best } else { value }, *address);
                // Never behind `at`, so that nothing is written over that is still to be read.
                (places[len], entries[len], found[len]) = (places[at], value, best);
                len += usize::from(leads);
            }
        }
    }
}
