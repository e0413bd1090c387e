//! The walk of a vector through the tables of the root.
//!
//! Theory of operation. A few packets at a time go through passes, so that their memory accesses overlap and
//! few branches depend on data. The passes are:
//!
//! 1. Hash the packets' masked chunks, table by table. If most packets have no key in most tables, the
//!    tables' filters are queried instead (`probe_filtered`).
//! 2. Locate the groups of tags and values and prefetch them.
//! 3. Compare tags, look up the packets' extra bits, and record the lanes that agree.
//! 4. Locate the blocks of entries to compare and prefetch them.
//! 5. Compare.
//!
//! Hashes are written eight at a time, and read one by one. Such reads have to wait until the write is
//! complete, so the hashes of the next packets are computed between the second and the third pass.
//!
//! All passes go in order of packets, so hits come out in order. Rare cases are deferred to the end: nodes
//! below, further agreeing lanes, and keys outside the pages (`deferred`).

use std::ops::Range;

use mmb_packet::{Window, prefetch};

use super::adaptive::AdaptiveState;
#[cfg(target_arch = "x86_64")]
use super::avx512;
use super::columns::Columns;
use super::head_hits::HeadHits;
use crate::leaf::{ActiveBlocks, Block8, PreFilter};
use crate::predicate::PredicateResults;
use crate::table::{Branch, Group, Hash, Page, Table};
use crate::vector::{ALL, LookupPacket, Simd, VECTOR, VectorSummary};

mod compare;
mod deferred;
mod probe_filtered;

pub(crate) use deferred::DeferredWork;
use deferred::NodeVisits;

/// Maximum number of tables in the passes. Further tables are probed packet by packet.
pub(crate) const TABLES: usize = 64;
/// Number of pairs of a packet and a table that go through the passes together. It is large enough for memory
/// accesses to overlap, and small enough for what is prefetched to stay in the first-level cache.
const PAIRS: usize = 64;
/// Maximum number of packets that go through the passes together.
const STRIDE: usize = 64;
const _: () = assert!(TABLES <= PAIRS);
/// Room for the hashes of the pairs, in steps of eight packets for each table.
const HASHES: usize = PAIRS + 8 * TABLES;

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
    /// The probe of a table for a key with this hash, and a value of the table's extra bits.
    #[inline(always)]
    fn new(table: &'a Table, hash: Hash, value: u16) -> Self {
        let page = table.store.page(hash);
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

/// A packet and what a key leads to.
#[derive(Clone, Copy)]
struct Comparison<'a> {
    head: u16,
    found: KeyResult<'a>,
}

/// What a key of a table leads to.
#[derive(Clone, Copy)]
enum KeyResult<'a> {
    /// A rule that matches if the packet has this key of a table.
    Rule(u32, u8, &'a u128),
    /// Rules that match.
    Slots(&'a [u32]),
    /// Entries to compare the packet with.
    Row(&'a [Block8]),
}

impl Comparison<'_> {
    /// No rules.
    const NONE: Comparison<'static> = Comparison { head: 0, found: KeyResult::Slots(&[]) };
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
    comparisons: [Comparison<'a>; PAIRS],
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
            comparisons: [Comparison::NONE; PAIRS],
            visits: NodeVisits::NONE,
        }
    }
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
        self.compare_root(&mut deferred.root);
        let Some(any) = self.tables.first() else {
            let mut active = [0; VECTOR];
            let n = self.select_heads(&[0; VECTOR], &deferred.root, &mut active);
            self.compare(&active[..n], &[], &deferred.root, hits);
            return 0;
        };
        let found = if adaptive.filters.is_due() {
            // Extra bits exclude up to half of the keys that packets have, so that a quarter of the pairs
            // remain of half of them.
            let found = self.probe_filtered(any, deferred, hits);
            adaptive.filters.record(found > self.heads.len() * self.tables.len() / 4);
            found
        } else {
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
        self.run_passes_with(scratch, deferred, hits, |table, heads, hashes, values| {
            for ((hash, value), head) in hashes.iter_mut().zip(values).zip(heads) {
                let window = self.window(head);
                *hash = table.store.hashing.hash(table.key(window)).0;
                *value = table.extra_value(window);
            }
        })
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
        self.run_passes_with(scratch, deferred, hits, |table, heads, hashes, values| {
            let columns = self.columns.chunk(table.chunk);
            avx512::hash_keys(table, columns, (heads.start, heads.len()), (hashes, values));
        })
    }

    /// [`Walk::run_passes`] for any processor.
    #[inline(always)]
    fn run_passes_with(
        &self,
        scratch: &mut Scratch<'a>,
        deferred: &mut DeferredWork,
        hits: &mut HeadHits,
        mut hash: impl FnMut(&Table, Range<usize>, &mut [u64], &mut [u16]),
    ) -> usize {
        let (mut all, n) = (0, self.heads.len());
        let stride = STRIDE.min(PAIRS / self.tables.len());
        let (mut hashes, mut values) = ([0; HASHES], [0; HASHES]);
        let mut pair_of = [(0u16, 0u8); PAIRS];
        let mut pairs = pair_of.iter_mut();
        for head in 0..stride {
            for (table, pair) in (0..self.tables.len()).zip(&mut pairs) {
                *pair = (head as u16, table as u8);
            }
        }
        let room = stride.next_multiple_of(8);
        let heads_from = |first: usize| first.min(n)..(first + stride).min(n);
        let mut hash_keys = |heads: Range<usize>, hashes: &mut [u64; HASHES], values: &mut [u16; HASHES]| {
            let places = hashes.chunks_exact_mut(room).zip(values.chunks_exact_mut(room));
            for (table, (hashes, values)) in self.tables.iter().zip(places) {
                hash(table, heads.clone(), hashes, values);
            }
        };
        hash_keys(heads_from(0), &mut hashes, &mut values);
        for first in (0..n).step_by(stride) {
            let heads = heads_from(first);
            let places = hashes.chunks_exact(room).zip(values.chunks_exact(room));
            for ((t, table), (hashes, values)) in self.tables.iter().enumerate().zip(places) {
                let mut pair = t;
                for (&hash, &value) in hashes[..heads.len()].iter().zip(&values[..heads.len()]) {
                    scratch.probes[pair % PAIRS] = Probe::new(table, Hash(hash), value);
                    pair += self.tables.len();
                }
            }
            hash_keys(heads_from(first + stride), &mut hashes, &mut values);
            let head_of = |pair: usize| (heads.start as u16 + pair_of[pair].0, pair_of[pair].1);
            let pairs = heads.len() * self.tables.len();
            all += self.finish_pairs(&ALL[heads.clone()], (pairs, head_of), scratch, deferred, hits);
        }
        all
    }

    /// Runs the last passes for some heads and their pairs with tables. Returns the number of candidates.
    #[inline(always)]
    fn finish_pairs(
        &self,
        heads: &[u16],
        (pairs, head_of): (usize, impl Fn(usize) -> (u16, u8)),
        scratch: &mut Scratch<'a>,
        deferred: &mut DeferredWork,
        hits: &mut HeadHits,
    ) -> usize {
        let n = Self::find_candidates(pairs, scratch);
        self.find_blocks(n, scratch, deferred, head_of);
        self.compare(heads, &scratch.comparisons[..n], &deferred.root, hits);
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
    fn find_candidates(pairs: usize, scratch: &mut Scratch<'a>) -> usize {
        let mut found = 0;
        for (pair, probe) in scratch.probes[..pairs].iter().enumerate() {
            let lanes = probe.group.find(probe.hash().tag(), probe.value).bits();
            scratch.candidates[found % PAIRS] = Candidate { pair: pair as u8, lanes };
            found += usize::from(lanes != 0);
        }
        found
    }

    /// Locates the rules and the blocks of entries that candidates lead to. `head_of` yields the head and the
    /// table of a pair.
    #[inline(always)]
    fn find_blocks(
        &self,
        n: usize,
        scratch: &mut Scratch<'a>,
        deferred: &mut DeferredWork,
        head_of: impl Fn(usize) -> (u16, u8),
    ) {
        let Scratch { probes, candidates, comparisons, visits } = scratch;
        for (candidate, comparison) in candidates[..n].iter().zip(comparisons) {
            let pair = usize::from(candidate.pair) % PAIRS;
            let (lanes, (head, table)) = (candidate.lanes, head_of(pair));
            if lanes & (lanes - 1) != 0 {
                deferred.further_lanes.push((head, table));
            }
            let (probe, lane) = (&probes[pair], lanes.trailing_zeros() as usize);
            let Probe { group, page, .. } = probe;
            let key = || page.body.key(page.position(probe.hash(), lane));
            let found = match page.body.resolve(group.value(lane)) {
                Err(Branch::Leaf(leaf)) => {
                    leaf.prefetch();
                    KeyResult::Row(leaf.blocks())
                }
                Ok(slot) => {
                    prefetch::read(key());
                    KeyResult::Rule(*slot, table, key())
                }
                Err(other) if self.has_key(table, key(), self.window(head)) => {
                    KeyResult::Slots(visits.defer(other, head))
                }
                Err(_) => KeyResult::Slots(&[]),
            };
            *comparison = Comparison { head, found };
        }
    }

    /// Whether a packet has this key of a table.
    #[inline(always)]
    fn has_key(&self, table: u8, key: &u128, window: &Window) -> bool {
        self.tables[usize::from(table)].key(window) == *key
    }
}
