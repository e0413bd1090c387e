//! The passes with filters: for vectors in which most packets have no key in most tables.
//!
//! Theory of operation. For each table, all heads are looked up in the table's filter. This takes no branches
//! and no dependent loads. A few pairs of heads and tables remain, which go through the other passes,
//! together with the heads that may match blocks of the root's leaf.

use mmb_packet::prefetch;

use super::{PAIRS, Scratch, Walk};
use crate::lookup::head_hits::HeadHits;
use crate::lookup::walk::DeferredWork;
use crate::vector::VECTOR;

impl<'a> Walk<'a> {
    /// Adds the hits of all heads to `hits`. Returns the number of candidates.
    pub(super) fn probe_filtered(
        &self,
        scratch: &mut Scratch<'a>,
        deferred: &mut DeferredWork,
        hits: &mut HeadHits,
    ) -> usize {
        let mut tables = [0u64; VECTOR];
        self.query_filters(&mut tables);
        let mut active = [0u16; VECTOR];
        let n = self.heads_to_compare(&tables, &mut active);
        let (mut all, mut pairs, mut first) = (0, 0, 0);
        let mut of = [(0u8, 0u8); PAIRS];
        for (at, &head) in active[..n].iter().enumerate() {
            let mut tables = tables[usize::from(head)];
            if pairs + tables.count_ones() as usize > PAIRS {
                all += self.probe_pairs(&active[first..at], &of[..pairs], scratch, deferred, hits);
                (first, pairs) = (at, 0);
            }
            while tables != 0 {
                of[pairs % PAIRS] = (head as u8, tables.trailing_zeros() as u8);
                pairs += 1;
                tables &= tables - 1;
            }
        }
        all + self.probe_pairs(&active[first..n], &of[..pairs], scratch, deferred, hits)
    }

    /// Sets for each head the bits of the tables that may have its key.
    #[inline(always)]
    fn query_filters(&self, tables: &mut [u64; VECTOR]) {
        for (t, table) in self.tables.iter().enumerate() {
            let may_contain = table.filter_reader();
            for (tables, &packet) in tables.iter_mut().zip(self.heads) {
                *tables |= u64::from(may_contain(&self.windows[usize::from(packet)])) << t;
            }
        }
    }

    /// Collects the heads that may match something; returns their number.
    #[inline(always)]
    fn heads_to_compare(&self, tables: &[u64; VECTOR], active: &mut [u16; VECTOR]) -> usize {
        let mut n = 0;
        let has_leaf = !self.leaf.is_empty();
        for (head, tables) in tables[..self.heads.len()].iter().enumerate() {
            active[n % VECTOR] = head as u16;
            n += usize::from((*tables != 0) | (has_leaf && self.can_match_leaf(self.window(head))));
        }
        n
    }

    /// Runs the other passes for some heads and their pairs with tables. Returns the number of candidates.
    #[inline(always)]
    fn probe_pairs(
        &self,
        heads: &[u16],
        pairs: &[(u8, u8)],
        scratch: &mut Scratch<'a>,
        deferred: &mut DeferredWork,
        hits: &mut HeadHits,
    ) -> usize {
        for (&(head, t), probe) in pairs.iter().zip(&mut scratch.probes) {
            let store = &self.tables[usize::from(t)].store;
            let hash = store.seeds.hash(self.tables[usize::from(t)].key(self.window(head)));
            let group = store.page(hash).group(hash).1;
            prefetch::read(group);
            *probe = (group, hash);
        }
        let (mut agreed, mut found) = ([(0u8, 0u8); PAIRS], 0);
        for (pair, (group, hash)) in scratch.probes[..pairs.len()].iter().enumerate() {
            let lanes = group.find(hash.tag()).bits();
            agreed[found % PAIRS] = (pair as u8, lanes);
            found += usize::from(lanes != 0);
        }
        for (&(pair, lanes), candidate) in agreed[..found].iter().zip(&mut scratch.candidates) {
            let ((head, table), hash) = (pairs[usize::from(pair)], scratch.probes[usize::from(pair)].1);
            *candidate = self.candidate(head.into(), table, lanes, hash);
        }
        self.finish_candidates(heads, found, scratch, deferred, hits);
        found
    }
}
