//! The lookup of a vector of packets.

use mmb_packet::window::KIND;
use mmb_packet::{Meta, Window, fill_window};

use super::{Batch, Classifier};
use crate::lookup::{HeadHits, TABLES, Walk};
use crate::predicate::PredicateResults;
use crate::table::Table;
use crate::vector::{Hit, HitSink, LookupPacket, Simd, VECTOR, VectorSummary, kind_bit};

/// Trains are looked for if more than one of this many packets may belong to the train before it.
const MIN_REPEAT_SHARE: usize = 16;

/// Probing this many tables costs hardly more than a lookup in the match cache.
pub(super) const MAX_CHEAP_TABLES: usize = 3;

impl Classifier {
    /// Whether some rule depends on bytes outside the window. Then [`Classifier::inspect`] must be called for
    /// every packet before [`Classifier::classify`].
    #[inline]
    pub fn needs_bytes(&self) -> bool {
        self.predicates.needs_bytes()
    }

    /// Whether some rule depends on a payload. Other bytes outside the window are those of TCP options.
    #[inline]
    pub fn needs_payloads(&self) -> bool {
        self.predicates.needs_payloads()
    }

    /// Whether a rule may depend on the bytes of the packet with this window. If not, [`Classifier::inspect`]
    /// has no effect.
    #[inline]
    pub fn needs_inspection(&self, window: &Window) -> bool {
        self.predicates.needs_inspection(window)
    }

    /// Evaluates the predicates for packet `pkt` of the batch. `head` is the contiguous beginning of the
    /// frame, and `meta` the result of [`mmb_packet::parse`] for it.
    pub fn inspect(&self, batch: &mut Batch, pkt: usize, head: &[u8], meta: &Meta) {
        self.predicates.inspect(pkt, head, meta, &mut batch.results);
    }

    /// Replaces `batch.hits` by the rules that match one packet. `head` and `meta` are those of
    /// [`mmb_packet::parse`]. `ports`: input and output port.
    pub fn classify_one(&self, batch: &mut Batch, head: &[u8], meta: &Meta, ports: [u16; 2]) {
        let [in_port, out_port] = ports;
        fill_window(head, meta, in_port, out_port, self.chunks(), &mut batch.windows[0]);
        batch.len = 1;
        if self.needs_bytes() {
            self.inspect(batch, 0, head, meta);
        }
        self.classify(batch);
    }

    /// Replaces `batch.hits` by the matching rules of all windows, which must be those of IP packets. Clears
    /// the results of [`Classifier::inspect`].
    pub fn classify(&self, batch: &mut Batch) {
        batch.hits.clear();
        if !self.members.is_empty() {
            self.members.mark(batch);
            if batch.results.is_empty() && self.root.len() == 0 {
                return;
            }
        }
        let windows = &batch.windows[..batch.len.min(VECTOR)];
        let columns = if self.scans_windows { Simd::PORTABLE } else { batch.simd };
        let mut summary = batch.columns.load(windows, self.summary_chunks, columns);
        if self.classify_filtered(batch) || self.classify_sparse(batch, &summary) {
            return;
        }
        let windows = &batch.windows[..batch.len.min(VECTOR)];
        if self.scans_windows && batch.simd.has_avx512() {
            summary = batch.columns.load(windows, self.summary_chunks, batch.simd);
        }
        let has_trains = summary.repeats.is_none_or(|repeats| repeats > windows.len() / MIN_REPEAT_SHARE);
        batch.heads.find(windows, self.compared_chunks(), batch.results.is_empty() && has_trains);
        let uses_cache = self.can_use_cache()
            && batch.results.is_empty()
            && (self.is_walk_costly() || batch.adaptive.is_lookup_costly)
            && batch.cache.start_vector(self.stamp);
        if uses_cache {
            batch.heads.take_cached(&mut batch.cache, self.seeds, windows, &self.classes);
        }
        let found = self.visit_root(batch, &summary);
        let Batch { windows, len, hits, head_hits, heads, results, cache, adaptive, simd, .. } = batch;
        let windows = &windows[..(*len).min(VECTOR)];
        adaptive.record_cost(found, heads.packets().len());
        if !results.is_empty() {
            self.visit_pivots(windows, results, &mut head_hits.unordered);
            results.clear();
        }
        head_hits.expand(heads, (cache, windows.len()), *simd, hits);
        if uses_cache {
            head_hits.store_in_cache(heads, cache, self.seeds);
        }
    }

    /// Whether rules read only what the match cache's key covers, if the packets are in no named set.
    pub(super) fn can_use_cache(&self) -> bool {
        self.compared_chunks() == 1 && !self.needs_bytes()
    }

    /// Whether walking the tree costs much more than a lookup in the match cache.
    pub(super) fn is_walk_costly(&self) -> bool {
        self.root.tables().len() > MAX_CHEAP_TABLES || self.root.has_untabled()
    }

    /// Replaces the hits of heads by those of all entries below the root that need no predicate. Returns the
    /// number of candidates.
    pub(super) fn visit_root(&self, batch: &mut Batch, summary: &VectorSummary) -> usize {
        let Batch { windows, len, heads, columns, deferred, results, adaptive, simd, .. } = batch;
        let (windows, heads, simd) = (&windows[..(*len).min(VECTOR)], heads.packets(), *simd);
        let hits = &mut batch.head_hits;
        hits.clear();
        if heads.len() < windows.len() {
            columns.select(heads, windows, self.summary_chunks, simd);
        }
        let kinds = summary.kinds.unwrap_or_else(|| {
            let kind = |&packet: &u16| kind_bit(windows[usize::from(packet)].bytes()[KIND]);
            heads.iter().fold(0, |kinds, packet| kinds | kind(packet))
        });
        let is_active = |table: &&Table| table.has_kinds(kinds) && !table.is_excluded(summary);
        let mut tables = self.root.tables().iter().filter(is_active).peekable();
        let leaf = self.root.leaf();
        let leaf = &leaf.active_blocks(summary);
        let pre_filter = self.pre_filter.as_ref();
        let mut walk =
            Walk { windows, columns, heads, results, summary, leaf, pre_filter, tables: &[], simd };
        let Some(any) = tables.peek() else {
            let found = if leaf.is_empty() { 0 } else { walk.run(deferred, adaptive, hits) };
            self.visit_outside_tables(&walk, summary, hits, tables);
            return found;
        };
        let mut together: [&Table; TABLES] = [any; TABLES];
        let mut n = 0;
        for (place, table) in together.iter_mut().zip(&mut tables) {
            *place = table;
            n += 1;
        }
        walk.tables = &together[..n];
        let found = walk.run(deferred, adaptive, hits);
        self.visit_outside_tables(&walk, summary, hits, tables);
        found
    }

    /// Adds the hits of entries that the walk does not cover: bit vectors, unconditional rules, and these
    /// further `tables`.
    fn visit_outside_tables<'a>(
        &self,
        walk: &Walk<'_>,
        summary: &VectorSummary,
        hits: &mut HeadHits,
        tables: impl Iterator<Item = &'a Table>,
    ) {
        let heads = walk.heads.len() as u16;
        if heads == 0 {
            return;
        }
        let (always, bits) = (self.root.always(), self.root.bit_vector());
        if !always.is_empty() || !bits.is_excluded(summary) {
            let mut packets = [walk.packet(0); VECTOR];
            packets.iter_mut().zip(0..heads).for_each(|(packet, head)| *packet = walk.packet(head));
            self.root.visit_untabled(&packets[..usize::from(heads)], walk.simd, &mut hits.unordered);
        }
        for table in tables {
            for LookupPacket { window, facts, head } in (0..heads).map(|head| walk.packet(head)) {
                table.visit(window, facts, &mut HitSink::new(&mut hits.unordered, head));
            }
        }
    }

    /// Adds the hits of entries that are found through predicates. All packets must be heads.
    fn visit_pivots(&self, windows: &[Window], results: &PredicateResults, hits: &mut Vec<Hit>) {
        for (packet, window) in windows.iter().enumerate() {
            let packet = LookupPacket { window, facts: results.of_packet(packet), head: packet as u16 };
            for (_, node) in packet.facts.iter().filter_map(|id| self.pivots.get(id)) {
                node.visit(&[packet], Simd::PORTABLE, hits);
            }
        }
    }
}
