//! The passes with filters: for vectors in which most packets have no key in most tables.
//!
//! Theory of operation. For each table, all heads are looked up in the table's filter. This takes no branches
//! and no dependent loads. A few pairs of heads and tables remain, which go through the other passes.

use super::{PAIRS, Probe, Scratch, Walk, find_portable};
use crate::leaf::first_chunk_words;
#[cfg(target_arch = "x86_64")]
use crate::lookup::avx512;
use crate::lookup::head_hits::HeadHits;
use crate::lookup::passed_heads::PassedHeads;
use crate::lookup::walk::DeferredWork;
use crate::table::{Hash, Table};
use crate::vector::{HitSink, VECTOR};

/// So many pairs cost less one by one than the space for the passes.
const MAX_SINGLE_PAIRS: usize = 8;

impl<'a> Walk<'a> {
    /// Adds the hits of all heads to `hits`. `any` is one of the tables. Returns the number of candidates.
    pub(super) fn probe_filtered(
        &self,
        any: &'a Table,
        deferred: &mut DeferredWork,
        hits: &mut HeadHits,
    ) -> usize {
        let mut tables = [0u64; VECTOR];
        self.query_filters(&mut deferred.passed, &mut tables);
        let mut active = [0u16; VECTOR];
        let n = self.select_heads(&tables, &mut active);
        let pairs_of = |head: &u16| tables[usize::from(*head)].count_ones() as usize;
        let all_pairs = active[..n].iter().map(pairs_of).sum();
        if all_pairs <= MAX_SINGLE_PAIRS {
            self.probe_one_by_one(&active[..n], &tables, hits);
            return all_pairs;
        }
        let scratch = &mut Scratch::new(any);
        let (mut all, mut pairs) = (0, 0);
        let mut of = [(0u8, 0u8); PAIRS];
        for &head in &active[..n] {
            deferred.words[usize::from(head) % VECTOR] = first_chunk_words(self.window(head).chunk[0]);
            let mut tables = tables[usize::from(head)];
            if pairs + tables.count_ones() as usize > PAIRS {
                all += self.probe_pairs(&of[..pairs], scratch, deferred, hits);
                pairs = 0;
            }
            while tables != 0 {
                of[pairs % PAIRS] = (head as u8, tables.trailing_zeros() as u8);
                pairs += 1;
                tables &= tables - 1;
            }
        }
        all += self.probe_pairs(&of[..pairs], scratch, deferred, hits);
        self.visit_groups(&scratch.visits, hits);
        all
    }

    /// Looks up some heads in their tables one by one.
    #[inline(never)]
    fn probe_one_by_one(&self, heads: &[u16], tables: &[u64; VECTOR], hits: &mut HeadHits) {
        for &head in heads {
            let (packet, sink) = (self.packet(head), &mut HitSink::new(&mut hits.unordered, head));
            let mut tables = tables[usize::from(head)];
            while tables != 0 {
                let table = self.tables[tables.trailing_zeros() as usize];
                table.visit_lanes(0, packet.window, packet.facts, sink);
                tables &= tables - 1;
            }
        }
    }

    /// Collects the heads that may have keys in some of the `tables`; returns their number.
    #[allow(unsafe_code)]
    fn select_heads(&self, tables: &[u64; VECTOR], active: &mut [u16; VECTOR]) -> usize {
        let tables = &tables[..self.heads.len().min(VECTOR)];
        #[cfg(target_arch = "x86_64")]
        if self.simd.has_avx512() {
            // SAFETY: the level says that the processor has the instructions.
            return unsafe { avx512::collect_heads(tables, active) };
        }
        let mut n = 0;
        for (head, tables) in tables.iter().enumerate() {
            active[n % VECTOR] = head as u16;
            n += usize::from(*tables != 0);
        }
        n
    }

    /// Sets for each head the bits of the tables that may have its key.
    #[inline(always)]
    #[allow(unsafe_code)]
    fn query_filters(&self, passed: &mut PassedHeads, tables: &mut [u64; VECTOR]) {
        #[cfg(target_arch = "x86_64")]
        if self.simd.has_avx512() {
            // SAFETY: the level says that the processor has the instructions.
            return unsafe { self.query_filters_avx512(passed, tables) };
        }
        for (t, table) in self.tables.iter().enumerate() {
            if let Some(hash) = table.only_hash(self.summary) {
                passed.set_all(self.heads.len(), hash);
            } else {
                self.query_filter(table, passed);
            }
            if let Some(guard) = table.guard_reader() {
                let n = passed.len();
                passed.clear();
                for at in 0..n {
                    let keyed = passed.keyed(at);
                    let (head, hash) = (usize::from(keyed as u8), Hash(keyed));
                    passed.push_if(guard.may_match(hash, self.window(head)), head, hash);
                }
            }
            passed.heads().for_each(|head| tables[usize::from(head)] |= 1 << t);
        }
    }

    /// Replaces `passed` by the heads whose key a table may have.
    fn query_filter(&self, table: &Table, passed: &mut PassedHeads) {
        let (seeds, filter) = (table.store.hashing.seeds, table.store.filter.reader());
        passed.clear();
        for head in 0..self.heads.len() {
            let hash = seeds.hash(table.key(self.window(head)));
            passed.push_if(filter.may_contain(hash), head, hash);
        }
    }

    /// [`Walk::query_filters`] with AVX-512; the caller has the level for it.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
    fn query_filters_avx512(&self, passed: &mut PassedHeads, tables: &mut [u64; VECTOR]) {
        for (t, table) in self.tables.iter().enumerate() {
            if let Some(hash) = table.only_hash(self.summary) {
                passed.set_all(self.heads.len(), hash);
            } else {
                avx512::query_filter(table, self.columns.chunk(table.chunk), self.heads.len(), passed);
            }
            if let Some(guard) = table.guard_reader() {
                passed.set_compared(|head| guard.compared(&self.window(head).chunk));
                avx512::query_guard(&guard, passed);
            }
            passed.heads().for_each(|head| tables[usize::from(head)] |= 1 << t);
        }
    }

    /// Runs the other passes for some heads and their pairs with tables. Returns the number of candidates.
    #[inline(always)]
    fn probe_pairs(
        &self,
        pairs: &[(u8, u8)],
        scratch: &mut Scratch<'a>,
        deferred: &mut DeferredWork,
        hits: &mut HeadHits,
    ) -> usize {
        for (&(head, t), probe) in pairs.iter().zip(&mut scratch.probes) {
            let table = self.tables[usize::from(t)];
            let window = self.window(head);
            let hash = table.store.hashing.hash(table.key(window));
            *probe = Probe::new(table.store.page(hash), hash, table.extra_value(window));
        }
        let head_of = |pair: usize| (pairs[pair].0.into(), pairs[pair].1);
        self.finish_pairs((pairs.len(), head_of), scratch, deferred, hits, find_portable)
    }
}

#[cfg(test)]
mod tests;
