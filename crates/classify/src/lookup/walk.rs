//! The walk of a vector through the tables of the root.
//!
//! Theory of operation. A few packets at a time go through passes, so that their memory accesses overlap and
//! few branches depend on data. The passes are:
//!
//! 1. Hash the packets' masked chunks, table by table. If most packets have no key in most tables, the
//!    tables' filters are queried instead (`probe_filtered`).
//! 2. Locate the groups of tags and values and prefetch them.
//! 3. Compare tags, look up the packets' extra bits, and record the lanes that agree.
//! 4. Locate the rules and the rows of entries to compare, and prefetch them.
//! 5. Compare.
//!
//! Hashes are written eight at a time, and read one by one. Such reads have to wait until the write is
//! complete, so the hashes of the next packets are computed between the second and the third pass.
//!
//! Each head has room for its hits ([`HeadHits`]), so the passes may find them in any order: table by table,
//! and all first blocks of rows before all second ones. Loops then do not depend on how many keys a packet
//! has, or how many blocks a row has. The root's leaf is compared before the passes. Rare cases are deferred
//! to the end: nodes below, further agreeing lanes, and keys outside the pages (`deferred`).

use std::ops::Range;

use mmb_packet::{Window, prefetch};

use super::adaptive::AdaptiveState;
#[cfg(target_arch = "x86_64")]
use super::avx512;
use super::columns::Columns;
use super::head_hits::HeadHits;
use crate::leaf::{ActiveBlocks, Block8, PreFilter, first_chunk_words};
use crate::predicate::PredicateResults;
use crate::table::{Branch, Group, Hash, Page, Table};
use crate::vector::{LookupPacket, Simd, VectorSummary};

mod compare;
mod deferred;
mod probe_filtered;

pub(crate) use deferred::DeferredWork;
use deferred::{FirstWords, NodeVisits};

/// Maximum number of tables in the passes. Further tables are probed packet by packet.
pub(crate) const TABLES: usize = 64;
/// Number of pairs of a packet and a table that go through the passes together. It is large enough for memory
/// accesses to overlap, and small enough for what is prefetched to stay in the first-level cache.
const PAIRS: usize = 64;
/// Maximum number of packets that go through the passes together.
const STRIDE: usize = 64;
const _: () = assert!(TABLES <= PAIRS);
/// Room for the hashes of the pairs, in steps of eight packets for each table.
pub(super) const HASHES: usize = PAIRS + 8 * TABLES;

/// Where the key of a packet is in a table, if it is there.
#[derive(Clone, Copy)]
struct Probe<'a> {
    group: &'a Group,
    page: &'a Page<Branch>,
    /// The lower half of the hash, which selects the group and the tag.
    hash: u32,
    /// The value of the table's extra bits.
    value: u16,
}

impl<'a> Probe<'a> {
    /// The probe of a page for a key with this hash, and a value of the table's extra bits.
    #[inline(always)]
    fn new(page: &'a Page<Branch>, hash: Hash, value: u16) -> Self {
        let group = page.group(hash);
        prefetch::read(group);
        Probe { group, page, hash: hash.0 as u32, value }
    }

    /// The hash as far as it is needed within a page.
    #[inline(always)]
    fn hash(&self) -> Hash {
        Hash(self.hash.into())
    }
}

/// A pair of a head and a table with agreeing tags.
#[derive(Clone, Copy)]
struct Candidate {
    /// The number of the pair.
    pair: u8,
    /// Agreeing lanes of the group, as bits.
    lanes: u8,
}

/// A key that leads to a rule, which matches if the head has the key.
#[derive(Clone, Copy)]
struct RuleVisit<'a> {
    head: u16,
    table: u8,
    slot: u32,
    key: &'a u128,
}

/// Entries to compare a head with.
#[derive(Clone, Copy)]
struct RowVisit<'a> {
    head: u16,
    row: &'a [Block8],
}

/// The input of the passes.
pub(crate) struct Walk<'a> {
    pub windows: &'a [Window],
    /// The chunks of the heads' windows that tables and the leaf compare.
    pub columns: &'a Columns,
    /// The packets to look up.
    pub heads: &'a [u16],
    pub results: &'a PredicateResults,
    /// What the windows have in common.
    pub summary: &'a VectorSummary,
    /// Blocks that every packet is compared with.
    pub leaf: &'a ActiveBlocks<'a>,
    /// Excludes packets that match none of these blocks.
    pub pre_filter: Option<&'a PreFilter>,
    /// At most [`TABLES`] tables.
    pub tables: &'a [&'a Table],
    /// The instructions to use.
    pub simd: Simd,
}

/// Data passed from pass to pass.
struct Scratch<'a> {
    probes: [Probe<'a>; PAIRS],
    candidates: [Candidate; PAIRS],
    rules: [RuleVisit<'a>; PAIRS],
    rows: [RowVisit<'a>; PAIRS],
    visits: NodeVisits<'a>,
}

impl<'a> Scratch<'a> {
    /// Space for the passes over some tables, of which this is one.
    #[inline(always)]
    fn new(any: &'a Table) -> Self {
        let page = any.store.page(Hash::default());
        let none = Probe { group: page.group(Hash::default()), page, hash: 0, value: 0 };
        Scratch {
            probes: [none; PAIRS],
            candidates: [Candidate { pair: 0, lanes: 0 }; PAIRS],
            rules: [RuleVisit { head: 0, table: 0, slot: 0, key: &0 }; PAIRS],
            rows: [RowVisit { head: 0, row: &[] }; PAIRS],
            visits: NodeVisits::NONE,
        }
    }
}

/// The lanes of a group that may have a key with this tag and value of the extra bits.
#[inline(always)]
fn find_portable(group: &Group, tag: u16, value: u16) -> u8 {
    group.find(tag, value).bits()
}

impl<'a> Walk<'a> {
    /// Adds the hits of all heads to `hits`. Queries the tables' filters first if that has paid off. Returns
    /// the number of candidates: pairs of a packet and a table whose tags agree.
    pub fn run(
        &self,
        deferred: &mut DeferredWork,
        adaptive: &mut AdaptiveState,
        hits: &mut HeadHits,
    ) -> usize {
        deferred.further_lanes.clear();
        let Some(any) = self.tables.first() else {
            self.compare_root(None, hits);
            return 0;
        };
        let found = if adaptive.filters.is_due() {
            self.compare_root(None, hits);
            // Extra bits exclude up to half of the keys that packets have, so that a quarter of the pairs
            // remain of half of them.
            let found = self.probe_filtered(any, deferred, hits);
            adaptive.filters.record(found > self.heads.len() * self.tables.len() / 4);
            found
        } else {
            self.read_words(&mut deferred.words);
            self.compare_root(Some(&deferred.words), hits);
            let mut scratch = Scratch::new(any);
            let found = self.run_passes(&mut scratch, deferred, hits);
            self.visit_groups(&scratch.visits, hits);
            found
        };
        self.visit_deferred(deferred, hits);
        found
    }

    /// Runs all passes without filters. Returns the number of candidates.
    #[allow(unsafe_code)]
    fn run_passes(
        &self,
        scratch: &mut Scratch<'a>,
        deferred: &mut DeferredWork,
        hits: &mut HeadHits,
    ) -> usize {
        #[cfg(target_arch = "x86_64")]
        if self.simd.has_avx512() {
            // SAFETY: the level says that the processor has the instructions.
            return unsafe { self.run_passes_avx512(scratch, deferred, hits) };
        }
        let hash = |table: &Table, heads: Range<usize>, hashes: &mut [u64], values: &mut [u16]| {
            for ((hash, value), head) in hashes.iter_mut().zip(values).zip(heads) {
                let window = self.window(head);
                *hash = table.store.hashing.hash(table.key(window)).0;
                *value = table.extra_value(window);
            }
        };
        self.run_passes_with(scratch, deferred, hits, hash, find_portable)
    }

    /// [`Walk::run_passes`] with AVX-512; the caller has the level for it. The passes are the same.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
    fn run_passes_avx512(
        &self,
        scratch: &mut Scratch<'a>,
        deferred: &mut DeferredWork,
        hits: &mut HeadHits,
    ) -> usize {
        let hash = |table: &Table, heads: Range<usize>, hashes: &mut [u64], values: &mut [u16]| {
            let columns = self.columns.chunk(table.chunk);
            avx512::hash_keys(table, columns, (heads.start, heads.len()), (hashes, values));
        };
        let find = |group: &Group, tag, value| avx512::find_lanes(group, tag, value);
        self.run_passes_with(scratch, deferred, hits, hash, find)
    }

    /// [`Walk::run_passes`] for any processor.
    #[inline(always)]
    fn run_passes_with(
        &self,
        scratch: &mut Scratch<'a>,
        deferred: &mut DeferredWork,
        hits: &mut HeadHits,
        mut hash: impl FnMut(&Table, Range<usize>, &mut [u64], &mut [u16]),
        find: impl Fn(&Group, u16, u16) -> u8,
    ) -> usize {
        let (mut all, n) = (0, self.heads.len());
        let stride = STRIDE.min(PAIRS / self.tables.len());
        let DeferredWork { hashes, values, .. } = deferred;
        let room = stride.next_multiple_of(8);
        let heads_from = |first: usize| first.min(n)..(first + stride).min(n);
        let mut hash_keys = |heads: Range<usize>, hashes: &mut [u64; HASHES], values: &mut [u16; HASHES]| {
            let places = hashes.chunks_exact_mut(room).zip(values.chunks_exact_mut(room));
            for (table, (hashes, values)) in self.tables.iter().zip(places) {
                hash(table, heads.clone(), hashes, values);
            }
        };
        hash_keys(heads_from(0), hashes, values);
        let (mut pair_of, mut len) = ([(0u16, 0u8); PAIRS], 0);
        for first in (0..n).step_by(stride) {
            let heads = heads_from(first);
            if heads.len() != len {
                len = heads.len();
                let all = (0..self.tables.len()).flat_map(|table| (0..len).map(move |head| (head, table)));
                let all = all.map(|(head, table)| (head as u16, table as u8));
                pair_of.iter_mut().zip(all).for_each(|(place, pair)| *place = pair);
            }
            let (Scratch { probes, .. }, DeferredWork { hashes, values, .. }) =
                (&mut *scratch, &mut *deferred);
            let places = hashes.chunks_exact(room).zip(values.chunks_exact(room));
            let keys = self.tables.iter().zip(probes.chunks_exact_mut(len)).zip(places);
            for ((table, probes), (hashes, values)) in keys {
                let pages = table.store.reader();
                for ((probe, &hash), &value) in probes.iter_mut().zip(hashes).zip(values) {
                    *probe = Probe::new(pages.page(Hash(hash)), Hash(hash), value);
                }
            }
            hash_keys(heads_from(first + stride), hashes, values);
            let head_of = |pair: usize| (first as u16 + pair_of[pair].0, pair_of[pair].1);
            let pairs = len * self.tables.len();
            all += self.finish_pairs((pairs, head_of), scratch, deferred, hits, &find);
        }
        all
    }

    /// Reads the words of all heads.
    #[inline(always)]
    fn read_words(&self, words: &mut FirstWords) {
        for (words, packet) in words.iter_mut().zip(self.heads) {
            *words = first_chunk_words(self.windows[usize::from(*packet)].chunk[0]);
        }
    }

    /// Runs the last passes for some pairs of heads and tables. Returns the number of candidates.
    #[inline(always)]
    fn finish_pairs(
        &self,
        (pairs, head_of): (usize, impl Fn(usize) -> (u16, u8)),
        scratch: &mut Scratch<'a>,
        deferred: &mut DeferredWork,
        hits: &mut HeadHits,
        find: impl Fn(&Group, u16, u16) -> u8,
    ) -> usize {
        let n = Self::find_candidates(pairs, scratch, find);
        let (rules, rows) = self.find_values(n, scratch, (deferred, hits), head_of);
        self.confirm_rules(&scratch.rules[..rules], hits);
        self.compare_rows(&mut scratch.rows, rows, &deferred.words, hits);
        self.visit_single_nodes(&mut scratch.visits, hits);
        n
    }

    #[inline(always)]
    fn window(&self, head: impl Into<usize>) -> &'a Window {
        &self.windows[usize::from(self.heads[head.into()])]
    }

    /// Whether a packet may match some of the blocks that every packet is compared with.
    #[inline(always)]
    fn can_match_leaf(&self, window: &Window) -> bool {
        self.pre_filter.is_none_or(|pre_filter| pre_filter.can_match(window.chunk[0]))
    }

    /// The packet of a head.
    #[inline(always)]
    pub fn packet(&self, head: u16) -> LookupPacket<'a> {
        let packet = usize::from(self.heads[usize::from(head)]);
        LookupPacket { window: &self.windows[packet], facts: self.results.of_packet(packet), head }
    }

    /// Finds the candidates among the first pairs. Returns their number.
    #[inline(always)]
    fn find_candidates(
        pairs: usize,
        scratch: &mut Scratch<'a>,
        find: impl Fn(&Group, u16, u16) -> u8,
    ) -> usize {
        let mut found = 0;
        for (pair, probe) in scratch.probes[..pairs].iter().enumerate() {
            let lanes = find(probe.group, probe.hash().tag(), probe.value);
            scratch.candidates[found % PAIRS] = Candidate { pair: pair as u8, lanes };
            found += usize::from(lanes != 0);
        }
        found
    }

    /// Locates the rules and the rows that candidates lead to, and returns their numbers. `head_of` yields
    /// the head and the table of a pair.
    #[inline(always)]
    fn find_values(
        &self,
        n: usize,
        scratch: &mut Scratch<'a>,
        (deferred, hits): (&mut DeferredWork, &mut HeadHits),
        head_of: impl Fn(usize) -> (u16, u8),
    ) -> (usize, usize) {
        let Scratch { probes, candidates, rules, rows, visits, .. } = scratch;
        let (mut n_rules, mut n_rows) = (0, 0);
        for candidate in &candidates[..n] {
            let pair = usize::from(candidate.pair) % PAIRS;
            let (lanes, (head, table)) = (candidate.lanes, head_of(pair));
            if lanes & (lanes - 1) != 0 {
                deferred.further_lanes.push((head, table));
            }
            let (probe, lane) = (&probes[pair], lanes.trailing_zeros() as usize);
            let Probe { group, page, .. } = probe;
            let key = || page.body.key(page.position(probe.hash(), lane));
            match page.body.resolve(group.value(lane)) {
                Err(Branch::Leaf(leaf)) => {
                    leaf.prefetch();
                    rows[n_rows % PAIRS] = RowVisit { head, row: leaf.blocks() };
                    n_rows += 1;
                }
                Ok(&slot) => {
                    prefetch::read(key());
                    rules[n_rules % PAIRS] = RuleVisit { head, table, slot, key: key() };
                    n_rules += 1;
                }
                Err(other) if self.has_key(table, key(), self.window(head)) => {
                    hits.push_each(head, visits.defer(other, head));
                }
                Err(_) => {}
            }
        }
        (n_rules, n_rows)
    }

    /// Adds the hits of rules whose key the head has.
    #[inline(always)]
    fn confirm_rules(&self, visits: &[RuleVisit<'a>], hits: &mut HeadHits) {
        for RuleVisit { head, table, slot, key } in visits {
            let matches = self.has_key(*table, key, self.window(*head));
            hits.push_first(*head, &[*slot], matches.into());
        }
    }

    /// Whether a packet has this key of a table.
    #[inline(always)]
    fn has_key(&self, table: u8, key: &u128, window: &Window) -> bool {
        self.tables[usize::from(table)].key(window) == *key
    }
}
