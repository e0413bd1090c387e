//! The passes with filters: for vectors in which most packets have no key in most tables.
//!
//! Theory of operation. For each table, all heads are looked up in the table's filter. This takes no branches
//! and no dependent loads. A few pairs of heads and tables remain, which go through the other passes,
//! together with the heads that may match blocks of the root's leaf.

use mmb_packet::prefetch;

use super::{Candidate, PAIRS, Scratch, Walk};
#[cfg(target_arch = "x86_64")]
use crate::lookup::avx512;
use crate::lookup::head_hits::HeadHits;
use crate::lookup::walk::DeferredWork;
use crate::table::{Hash, Table};
use crate::vector::VECTOR;

/// A table's guard is queried if more than one in this many packets passes the filter.
const GUARDED_SHARE: usize = 32;

/// The heads that passed a table's filter.
pub(crate) struct PassedHeads {
    /// The hashes of all heads' keys.
    pub hashes: [u64; VECTOR],
    /// A bit for each head that passed.
    pub bits: [u64; VECTOR / 64],
}

impl PassedHeads {
    const NONE: PassedHeads = PassedHeads { hashes: [0; VECTOR], bits: [0; VECTOR / 64] };

    /// Number of heads that passed.
    #[inline(always)]
    fn len(&self) -> usize {
        self.bits.iter().map(|bits| bits.count_ones() as usize).sum()
    }
}

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
        let n = self.select_heads(&tables, &deferred.root, &mut active);
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
        let mut passed = PassedHeads::NONE;
        for (t, table) in self.tables.iter().enumerate() {
            let (seeds, filter) = (table.store.seeds, table.store.filter.reader());
            passed.bits = [0; VECTOR / 64];
            for (head, tables) in tables[..self.heads.len()].iter_mut().enumerate() {
                let hash = seeds.hash(table.key(self.window(head)));
                let may_contain = u64::from(filter.may_contain(hash));
                passed.hashes[head] = hash.0;
                passed.bits[head / 64] |= may_contain << (head % 64);
                *tables |= may_contain << t;
            }
            self.query_guard(t, table, &passed, tables);
        }
    }

    /// [`Walk::query_filters`] with AVX-512; the caller needs an [`Avx512`](crate::vector::Avx512).
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,bmi2,popcnt")]
    fn query_filters_avx512(&self, tables: &mut [u64; VECTOR]) {
        let (mut columns, mut passed) = (avx512::ChunkColumns::NONE, PassedHeads::NONE);
        for (t, table) in self.tables.iter().enumerate() {
            columns.load(table, self.heads.iter().map(|&packet| &self.windows[usize::from(packet)]));
            avx512::query_filter(table, &columns, (self.heads.len(), 1 << t), tables, &mut passed);
            self.query_guard(t, table, &passed, tables);
        }
    }

    /// Clears the bits of a table for heads that its guard excludes, if many heads passed the filter.
    #[inline(always)]
    fn query_guard(&self, t: usize, table: &Table, passed: &PassedHeads, tables: &mut [u64; VECTOR]) {
        let Some(guard) = table.guard_reader() else { return };
        if passed.len() <= self.heads.len() / GUARDED_SHARE {
            return;
        }
        for (word, mut bits) in passed.bits.into_iter().enumerate() {
            while bits != 0 {
                let head = (word * 64 + bits.trailing_zeros() as usize) % VECTOR;
                bits &= bits - 1;
                let passes = guard.may_match(Hash(passed.hashes[head]), self.window(head));
                tables[head] &= !(u64::from(!passes) << t);
            }
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
            let page = store.page(hash);
            let group = page.group(hash).1;
            prefetch::read(group);
            *probe = (group, page, hash);
        }
        let (mut agreed, mut found) = ([(0u8, 0u8); PAIRS], 0);
        for (pair, (group, _, hash)) in scratch.probes[..pairs.len()].iter().enumerate() {
            let lanes = group.find(hash.tag()).bits();
            agreed[found % PAIRS] = (pair as u8, lanes);
            found += usize::from(lanes != 0);
        }
        for (&(pair, lanes), candidate) in agreed[..found].iter().zip(&mut scratch.candidates) {
            let ((head, table), (_, page, hash)) =
                (pairs[usize::from(pair)], scratch.probes[usize::from(pair)]);
            *candidate = Candidate::new((head.into(), table), lanes, page, hash);
        }
        self.finish_candidates(heads, found, scratch, deferred, hits);
        found
    }
}
