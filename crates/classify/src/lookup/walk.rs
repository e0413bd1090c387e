//! The walk of a vector through the tables of the root.
//!
//! Theory of operation. A few packets at a time go through passes, so that their memory accesses overlap and
//! few branches depend on data. The passes are:
//!
//! 1. Hash the packet's masked chunk for each table and prefetch its group of tags. If most packets have no
//!    key in most tables, the tables' filters are queried first (`probe_filtered`).
//! 2. Compare tags and record those that agree.
//! 3. Locate the lanes and prefetch keys and values.
//! 4. Locate the blocks of entries to compare and prefetch them.
//! 5. Compare.
//!
//! All passes go in order of packets, so hits come out in order. Rare cases are deferred to the end: nodes
//! below, further agreeing lanes, and keys outside the pages (`deferred`).

use std::ops::Range;

use mmb_packet::window::CHUNKS;
use mmb_packet::{Window, prefetch};

use super::adaptive::AdaptiveState;
use super::head_hits::HeadHits;
use crate::leaf::{ActiveBlocks, Block8, PreFilter};
use crate::predicate::PredicateResults;
use crate::table::{Branch, Hash, Page, PageBody, Table, TagGroup};
use crate::vector::{Avx512, LookupPacket, VECTOR, VectorSummary};

mod compare;
mod deferred;
mod probe_filtered;

pub(crate) use deferred::DeferredWork;
use deferred::NodeVisits;
pub(crate) use probe_filtered::PassedHeads;

/// Maximum number of tables in the passes. Further tables are probed packet by packet.
pub(crate) const TABLES: usize = 64;
/// Number of pairs of a packet and a table that go through the passes together. It is large enough for memory
/// accesses to overlap, and small enough for what is prefetched to stay in the first-level cache.
const PAIRS: usize = 64;
/// Maximum number of packets that go through the passes together.
const STRIDE: usize = 64;
const _: () = assert!(TABLES <= PAIRS);
/// The numbers of all heads.
static ALL_HEADS: [u16; VECTOR] = {
    let (mut all, mut head) = ([0; VECTOR], 0);
    while head < VECTOR {
        all[head] = head as u16;
        head += 1;
    }
    all
};

/// A packet and a table with agreeing tags.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    /// The head's number.
    head: u16,
    table: u8,
    /// Agreeing lanes of the group, as bits.
    lanes: u8,
    /// The first of these, as a lane of the page.
    lane: u32,
    body: &'a PageBody<Branch>,
}

impl<'a> Candidate<'a> {
    /// The candidate for a head and a table, in whose page these lanes agree.
    #[inline(always)]
    fn new((head, table): (u16, u8), lanes: u8, page: &'a Page<Branch>, hash: Hash) -> Self {
        let lane = page.group(hash).0 + lanes.trailing_zeros() as usize;
        prefetch::read(&*page.body);
        Candidate { head, table, lanes, lane: lane as u32, body: &page.body }
    }
}

/// A packet and entries to compare it with.
#[derive(Clone, Copy)]
struct Comparison<'a> {
    head: u16,
    /// Rules that are known to match.
    slots: &'a [u32],
    row: &'a [Block8],
}

impl Comparison<'_> {
    /// No entries.
    const NONE: Comparison<'static> = Comparison { head: 0, slots: &[], row: &[] };
}

/// The input of the passes.
pub(crate) struct Walk<'a> {
    pub windows: &'a [Window],
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
    /// Whether sixteen entries can be compared at once.
    pub avx512: Option<Avx512>,
}

/// Data passed from pass to pass.
struct Scratch<'a> {
    probes: [(&'a TagGroup, &'a Page<Branch>, Hash); PAIRS],
    candidates: [Candidate<'a>; PAIRS],
    comparisons: [Comparison<'a>; PAIRS],
    visits: NodeVisits<'a>,
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
        let none = any.store.page(Hash::default());
        let mut scratch = Scratch {
            probes: [(&TagGroup::EMPTY, none, Hash::default()); PAIRS],
            candidates: [Candidate { head: 0, table: 0, lanes: 0, lane: 0, body: &none.body }; PAIRS],
            comparisons: [Comparison::NONE; PAIRS],
            visits: NodeVisits::NONE,
        };
        let found = if adaptive.filters.is_due() {
            let found = self.probe_filtered(&mut scratch, deferred, hits);
            adaptive.filters.record(found > self.heads.len() * self.tables.len() / 2);
            found
        } else {
            self.run_passes(&mut scratch, deferred, hits)
        };
        self.visit_deferred(deferred, &scratch.visits, hits);
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
        if self.avx512.is_some() {
            // SAFETY: an `Avx512` exists only if the processor has the instructions.
            return unsafe { self.run_passes_avx512(scratch, deferred, hits) };
        }
        self.run_passes_with(scratch, deferred, hits)
    }

    /// [`Walk::run_passes`] with AVX-512; the caller needs an [`Avx512`]. The passes are the same.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi2,popcnt")]
    fn run_passes_avx512(
        &self,
        scratch: &mut Scratch<'a>,
        deferred: &mut DeferredWork,
        hits: &mut HeadHits,
    ) -> usize {
        self.run_passes_with(scratch, deferred, hits)
    }

    /// [`Walk::run_passes`] for any processor.
    #[inline(always)]
    fn run_passes_with(
        &self,
        scratch: &mut Scratch<'a>,
        deferred: &mut DeferredWork,
        hits: &mut HeadHits,
    ) -> usize {
        let mut all = 0;
        let stride = STRIDE.min(PAIRS / self.tables.len());
        for first in (0..self.heads.len()).step_by(stride) {
            let heads = first..(first + stride).min(self.heads.len());
            let found = self.probe(heads.clone(), scratch);
            self.finish_candidates(&ALL_HEADS[heads], found, scratch, deferred, hits);
            all += found;
        }
        all
    }

    /// Runs the last passes for some heads and the first `n` candidates.
    #[inline(always)]
    fn finish_candidates(
        &self,
        heads: &[u16],
        n: usize,
        scratch: &mut Scratch<'a>,
        deferred: &mut DeferredWork,
        hits: &mut HeadHits,
    ) {
        for candidate in &scratch.candidates[..n] {
            candidate.body.prefetch(candidate.lane as usize);
        }
        self.find_blocks(n, scratch, deferred);
        self.compare(heads, &scratch.comparisons[..n], &deferred.root, hits);
        self.visit_single_nodes(&mut scratch.visits, hits);
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

    /// Calls `visit` with the number of each pair of a head and a table, the table, and the hash of the
    /// head's key there. Pairs are numbered packet by packet.
    #[inline(always)]
    fn for_each_key(&self, heads: Range<usize>, mut visit: impl FnMut(usize, &'a Table, Hash)) {
        let mut chunks = [0; STRIDE];
        let mut chunk = usize::MAX;
        for (t, &table) in self.tables.iter().enumerate() {
            if chunk != table.chunk {
                chunk = table.chunk;
                for (at, &packet) in chunks.iter_mut().zip(&self.heads[heads.clone()]) {
                    *at = self.windows[usize::from(packet)].chunk[chunk % CHUNKS];
                }
            }
            let pairs = (t..PAIRS).step_by(self.tables.len());
            for (chunk, pair) in chunks[..heads.len()].iter().zip(pairs) {
                visit(pair % PAIRS, table, table.store.seeds.hash(chunk & table.mask));
            }
        }
    }

    /// Finds the candidates, in order of packets. Returns their number.
    #[inline(always)]
    fn probe(&self, heads: Range<usize>, scratch: &mut Scratch<'a>) -> usize {
        let n = self.tables.len();
        self.for_each_key(heads.clone(), |pair, table, hash| {
            let page = table.store.page(hash);
            let group = page.group(hash).1;
            prefetch::read(group);
            scratch.probes[pair] = (group, page, hash);
        });
        let probes = &scratch.probes[..heads.len() * n];
        let (mut agreed, mut found) = ([(0u8, 0u8, 0u8); PAIRS], 0);
        for (at, probes) in probes.chunks_exact(n).enumerate() {
            for (t, &(group, _, hash)) in probes.iter().enumerate() {
                let lanes = group.find(hash.tag()).bits();
                agreed[found % PAIRS] = (at as u8, t as u8, lanes);
                found += usize::from(lanes != 0);
            }
        }
        for (&(at, table, lanes), candidate) in agreed[..found].iter().zip(&mut scratch.candidates) {
            let (_, page, hash) = probes[usize::from(at) * n + usize::from(table)];
            *candidate = Candidate::new((heads.start as u16 + u16::from(at), table), lanes, page, hash);
        }
        found
    }

    /// Locates the blocks of entries that candidates lead to.
    #[inline(always)]
    fn find_blocks(&self, n: usize, scratch: &mut Scratch<'a>, deferred: &mut DeferredWork) {
        let Scratch { candidates, comparisons, visits, .. } = scratch;
        for (candidate, comparison) in candidates[..n].iter().zip(comparisons) {
            let head = candidate.head;
            *comparison = Comparison { head, ..Comparison::NONE };
            if candidate.lanes & (candidate.lanes - 1) != 0 {
                deferred.further_lanes.push((head, candidate.table));
            }
            match candidate.body.value(candidate.lane as usize) {
                Err(Branch::Leaf(leaf)) => {
                    comparison.row = leaf.blocks();
                    leaf.prefetch();
                }
                Ok(slot) => {
                    comparison.slots = &std::slice::from_ref(slot)[..usize::from(self.is_key(candidate))];
                }
                Err(other) if self.is_key(candidate) => comparison.slots = visits.defer(other, head),
                Err(_) => {}
            }
        }
    }

    /// Whether a candidate's packet has the key in its lane.
    #[inline(always)]
    fn is_key(&self, candidate: &Candidate<'_>) -> bool {
        let table = self.tables[usize::from(candidate.table)];
        candidate.body.key(candidate.lane as usize) == table.key(self.window(candidate.head))
    }
}
