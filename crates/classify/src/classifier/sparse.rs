//! The lookup of vectors of which few packets match anything.

use mmb_packet::Window;

use super::Classifier;
use super::batch::Batch;
use super::lookup::MAX_CHEAP_TABLES;
use crate::lookup::find_possible_matches;
use crate::pattern::TruePredicates;
use crate::vector::{Hit, HitSink, VECTOR, VectorSummary};

/// If at most one of this many packets may match, they are looked up one by one.
const MAX_SHARE: usize = 8;

impl Classifier {
    /// Whether packets can match only through a few tables and blocks of the root.
    fn can_scan_early(&self, summary: &VectorSummary) -> bool {
        let (always, leaf, bits) = (self.root.always(), self.root.leaf(), self.root.bit_vector());
        let tables = self.root.tables().iter().filter(|table| !table.is_excluded(summary));
        always.is_empty()
            && bits.is_excluded(summary)
            && tables.count()
                + if self.pre_filter.is_some() { 0 } else { leaf.active_blocks(summary).quads() }
                <= MAX_CHEAP_TABLES
    }

    /// Looks up the vector if the root has only a leaf, whose pre-filter excludes nearly all packets, and if
    /// they are in columns. Returns false, without effect, if that is not so.
    #[inline]
    pub(super) fn classify_filtered(&self, batch: &mut Batch) -> bool {
        let Batch { windows, len, hits, heads, columns, adaptive, results, simd, .. } = batch;
        let has_others = !self.root.tables().is_empty() || self.root.has_untabled() || !results.is_empty();
        let Some(pre_filter) = self.pre_filter.as_ref().filter(|_| !has_others) else { return false };
        if !simd.has_avx512() || !adaptive.early_scan.is_due() {
            return false;
        }
        let windows = &windows[..(*len).min(VECTOR)];
        let n = columns.query_pre_filter(pre_filter, windows.len(), *simd, heads.packet_buffer());
        let are_few = n <= windows.len() / MAX_SHARE;
        adaptive.early_scan.record(!are_few);
        if are_few {
            self.visit_one_by_one(windows, &heads.packet_buffer()[..n], hits);
        }
        are_few
    }

    /// Looks up the vector if few packets may match anything. Returns false, without effect, if they are not
    /// few or finding out is too expensive. With AVX-512 the walk mostly finds out at a lower cost.
    #[inline]
    pub(super) fn classify_sparse(&self, batch: &mut Batch, summary: &VectorSummary) -> bool {
        let Batch { windows, len, hits, heads, adaptive, results, simd, .. } = batch;
        let windows = &windows[..(*len).min(VECTOR)];
        if simd.has_avx512() && !self.scans_windows
            || !results.is_empty()
            || !self.can_scan_early(summary)
            || !adaptive.early_scan.is_due()
        {
            return false;
        }
        let leaf = self.root.leaf();
        let leaf = (&leaf.active_blocks(summary), self.pre_filter.as_ref());
        let few =
            find_possible_matches(windows, self.root.tables(), leaf, (summary, *simd), heads.packet_buffer());
        adaptive.early_scan.record(few.is_none());
        let Some(few) = few else { return false };
        if few <= windows.len() / MAX_SHARE {
            self.visit_one_by_one(windows, &heads.packet_buffer()[..few], hits);
        } else {
            self.visit_sparse(batch, few, summary);
        }
        true
    }

    /// Looks up the packets in [`Heads::packet_buffer`](crate::lookup::Heads::packet_buffer) in the root's
    /// tables and leaf.
    #[inline(never)]
    fn visit_sparse(&self, batch: &mut Batch, few: usize, summary: &VectorSummary) {
        batch.heads.set_first(few);
        self.visit_root(batch, summary);
        let Batch { hits, head_hits, heads, cache, simd, .. } = batch;
        head_hits.expand(heads, (cache, few), *simd, hits);
    }

    /// Looks up some packets one by one.
    #[inline(never)]
    fn visit_one_by_one(&self, windows: &[Window], few: &[u16], hits: &mut Vec<Hit>) {
        let leaf = self.root.leaf();
        for &packet in few {
            let window = &windows[usize::from(packet)];
            let sink = &mut HitSink::new(hits, packet);
            leaf.visit(window, TruePredicates::NONE, sink);
            for table in self.root.tables() {
                table.visit(window, TruePredicates::NONE, sink);
            }
        }
    }
}
