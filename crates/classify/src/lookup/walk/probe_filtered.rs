//! The passes with filters: for vectors in which most packets have no key in most tables.
//!
//! Theory of operation. For each table, all heads are looked up in the table's filter. This takes no branches
//! and no dependent loads. A few pairs of heads and tables remain, which go through the other passes,
//! together with the heads that may match blocks of the root's leaf.

use mmb_packet::prefetch;

use super::{PAIRS, Scratch, Walk};
#[cfg(target_arch = "x86_64")]
use crate::lookup::avx512;
use crate::lookup::head_hits::HeadHits;
use crate::lookup::walk::DeferredWork;
use crate::table::Table;
use crate::vector::VECTOR;

/// A table's guard is queried if more than one in this many packets passes the filter.
const GUARDED_SHARE: usize = 32;

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
        let n = self.select_heads(&tables, &mut active);
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
    #[allow(unsafe_code)]
    fn query_filters(&self, tables: &mut [u64; VECTOR]) {
        #[cfg(target_arch = "x86_64")]
        if self.avx512.is_some() {
            // SAFETY: an `Avx512` exists only if the processor has the instructions.
            return unsafe { self.query_filters_avx512(tables) };
        }
        for (t, table) in self.tables.iter().enumerate() {
            let (may_contain, mut found) = (table.filter_reader(), 0);
            for (tables, &packet) in tables.iter_mut().zip(self.heads) {
                let may_contain = may_contain(&self.windows[usize::from(packet)]);
                *tables |= u64::from(may_contain) << t;
                found += usize::from(may_contain);
            }
            self.query_guard(t, table, found, tables);
        }
    }

    /// [`Walk::query_filters`] with AVX-512; the caller needs an [`Avx512`](crate::vector::Avx512).
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,bmi2,popcnt")]
    fn query_filters_avx512(&self, tables: &mut [u64; VECTOR]) {
        let mut columns = avx512::ChunkColumns::NONE;
        for (t, table) in self.tables.iter().enumerate() {
            columns.load(table, self.heads.iter().map(|&packet| &self.windows[usize::from(packet)]));
            let found = avx512::query_filter(table, &columns, self.heads.len(), 1 << t, tables);
            self.query_guard(t, table, found, tables);
        }
    }

    /// Clears the bits of a table for heads that its guard excludes, if many heads passed the filter.
    #[inline(always)]
    fn query_guard(&self, t: usize, table: &Table, passed: usize, tables: &mut [u64; VECTOR]) {
        if !table.has_guard() || passed <= self.heads.len() / GUARDED_SHARE {
            return;
        }
        let (mut heads, mut n) = ([0u8; VECTOR], 0);
        for (head, tables) in tables[..self.heads.len()].iter().enumerate() {
            heads[n % VECTOR] = head as u8;
            n += (tables >> t & 1) as usize;
        }
        for head in heads[..n].iter().copied().map(usize::from) {
            tables[head] &= !(u64::from(!table.passes_guard(self.window(head))) << t);
        }
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
