//! Lookups, for many addresses at once.
//!
//! Pass by pass: all places of the root; then, as long as there are addresses that lead to nodes, the nodes of these, which
//! are asked for in one pass and read in the next. What has come to its end falls out of the list without a branch. What
//! found nothing is sent to the tops at last.

use mmb_packet::prefetch;

use super::node::{COVER, NODE, bitmap, block, depth, rank};
use super::palette::ELSEWHERE;
use super::{Bits, NOWHERE, Trie};
use crate::hop::HopId;

/// Addresses that are looked up together.
const BATCH: usize = 256;

impl<A: Bits> Trie<A> {
    /// What the longest prefix of an address leads to, 0 if there is none.
    #[inline]
    pub fn lookup(&self, address: A) -> HopId {
        let mut entry = self.root.get(address.first(A::ROOT));
        let mut best = 0;
        while entry & NODE != 0 {
            let (next, cover) = self.step(entry, address);
            best = if cover != 0 { cover } else { best };
            entry = next;
        }
        self.or_top(if entry != 0 { entry } else { best }, address)
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
    fn or_top(&self, found: u32, address: A) -> HopId {
        let top = self.tops.get(address.first(A::TOP)).copied().unwrap_or(NOWHERE);
        (if found != 0 { found } else { top }) - 1
    }

    /// The same for many addresses: as many as `hops` has room for, at most.
    #[inline]
    pub fn lookup_batch(&self, addresses: &[A], hops: &mut [HopId]) {
        for (addresses, hops) in addresses.chunks(BATCH).zip(hops.chunks_mut(BATCH)) {
            self.some(addresses, hops);
        }
    }

    /// At most a batch.
    fn some(&self, addresses: &[A], hops: &mut [HopId]) {
        // Nothing else happens in the pass that waits for memory, so that as many addresses as can be wait together.
        let mut codes = [0u8; BATCH];
        for (address, code) in addresses.iter().zip(&mut codes) {
            *code = self.root.code(address.first(A::ROOT));
        }
        // Places of those whose number stands elsewhere.
        let (mut open, mut len) = ([0u8; BATCH], 0);
        for (place, ((address, hop), code)) in addresses.iter().zip(&mut *hops).zip(codes).enumerate() {
            let value = self.root.number(code);
            *hop = self.or_top(value, *address);
            open[len % BATCH] = place as u8;
            len += usize::from(value == ELSEWHERE);
        }
        if len > 0 {
            self.descend(addresses, hops, &open[..len.min(BATCH)]);
        }
    }

    /// Follows the addresses at some places to their ends.
    #[inline(never)]
    fn descend(&self, addresses: &[A], hops: &mut [HopId], all: &[u8]) {
        // By place in the batch: where an address is, and what was found on its way. Then the places of those on the way.
        let (mut entries, mut found, mut open, mut len) = ([0; BATCH], [0; BATCH], [0u8; BATCH], 0);
        for address in all.iter().filter_map(|place| addresses.get(usize::from(*place))) {
            self.root.prefetch_other(address.first(A::ROOT));
        }
        for place in all.iter().map(|place| usize::from(*place)) {
            let Some(address) = addresses.get(place) else { continue };
            let entry = self.root.get(address.first(A::ROOT));
            let leads = entry & NODE != 0;
            (entries[place], found[place]) = (entry, if leads { 0 } else { entry });
            open[len % BATCH] = place as u8;
            len += usize::from(leads);
        }
        while len > 0 {
            let now = std::mem::take(&mut len).min(BATCH);
            for place in &open[..now] {
                prefetch::read(self.hot.granule(block(entries[usize::from(*place)])));
            }
            for at in 0..now {
                let place = usize::from(open[at]);
                let Some(address) = addresses.get(place) else { continue };
                let (value, cover) = self.step(entries[place], *address);
                let leads = value & NODE != 0;
                let best = if cover != 0 { cover } else { found[place] };
                found[place] = if leads | (value == 0) { best } else { value };
                entries[place] = value;
                open[len % BATCH] = place as u8;
                len += usize::from(leads);
            }
        }
        for place in all.iter().map(|place| usize::from(*place)) {
            if let (Some(hop), Some(address)) = (hops.get_mut(place), addresses.get(place)) {
                *hop = self.or_top(found[place], *address);
            }
        }
    }
}
