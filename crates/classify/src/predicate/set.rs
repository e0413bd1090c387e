//! The predicates that rules use: their numbers, reference counts, and the search for the true ones.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use mmb_packet::window::{CHUNKS, Window};
use mmb_packet::{Meta, NamedOption, PayloadLayer, option_bit, payload, tcp_options};

use super::results::{Ids, PredicateResults, Scan};
use super::source_index::SourceIndex;
use crate::paged::{PagedVec, SortedPages};
use crate::pattern::{ByteSource, Entry, OptionKinds, Pattern, Predicate, Relation};

/// Sources of bytes that predicates can refer to.
const SOURCES: [ByteSource; 9] = [
    ByteSource::Payload(PayloadLayer::Ip),
    ByteSource::Payload(PayloadLayer::Ip6),
    ByteSource::Payload(PayloadLayer::Icmp),
    ByteSource::Payload(PayloadLayer::Icmp6),
    ByteSource::Payload(PayloadLayer::Udp),
    ByteSource::Payload(PayloadLayer::Tcp),
    ByteSource::Option(NamedOption::Sack),
    ByteSource::Option(NamedOption::FastOpen),
    ByteSource::Option(NamedOption::Mptcp),
];

/// The predicates that rules use, and the structures that find the true ones.
#[derive(Clone, Debug)]
pub struct PredicateSet {
    records: PagedVec<Option<Record>, 64>,
    free: Ids,
    /// Predicates by hash.
    by_hash: SortedPages<(u32, Vec<u32>), 64>,
    live: usize,
    /// Predicates by the option kinds that they name.
    kinds: Arc<[Ids; 256]>,
    /// Indexed like [`SOURCES`].
    indexes: Arc<[SourceIndex; SOURCES.len()]>,
    /// The option kinds that some predicate refers to.
    option_kinds: OptionKinds,
    /// Bits of the window's last chunk. If none of them is set, the packet has none of `option_kinds`.
    option_bits: u128,
    has_payloads: bool,
    /// Predicates about named sets.
    about_sets: Ids,
}

/// A predicate and the number of references to it.
#[derive(Clone, Debug)]
struct Record {
    predicate: Arc<Predicate>,
    references: u32,
}

impl Default for PredicateSet {
    fn default() -> Self {
        PredicateSet {
            records: PagedVec::default(),
            free: Ids::default(),
            by_hash: SortedPages::default(),
            live: 0,
            kinds: Arc::new(std::array::from_fn(|_| Ids::default())),
            indexes: Arc::default(),
            option_kinds: OptionKinds::default(),
            option_bits: 0,
            has_payloads: false,
            about_sets: Ids::default(),
        }
    }
}

impl PredicateSet {
    /// The entries of a pattern with the numbers of this set for its predicates. Each use of a predicate
    /// counts as a reference until it is [released](PredicateSet::release).
    pub fn intern(&mut self, pattern: &Pattern) -> Vec<Entry> {
        let entries = self.intern_unsettled(pattern);
        self.settle();
        entries
    }

    /// The entries that [`PredicateSet::intern`] returned for the same pattern, as long as none of their
    /// predicates was released completely. Adds no references.
    pub fn known(&self, pattern: &Pattern) -> Vec<Entry> {
        let number = |local: u32| {
            let predicate = pattern.predicates().get(local as usize);
            predicate.and_then(|predicate| self.find(hash(predicate), predicate)).unwrap_or(u32::MAX)
        };
        pattern.entries().iter().map(|entry| entry.clone().renumbered(number)).collect()
    }

    /// Like [`PredicateSet::intern`], for many patterns in a row. Predicates may be found only after
    /// [`PredicateSet::settle`].
    pub fn intern_unsettled(&mut self, pattern: &Pattern) -> Vec<Entry> {
        let mut numbers = vec![None; pattern.predicates().len()];
        let entries = pattern.entries().iter().cloned();
        let renumbered = entries.map(|entry| {
            entry.renumbered(|local| {
                match (numbers.get_mut(local as usize), pattern.predicates().get(local as usize)) {
                    (Some(number), Some(predicate)) => {
                        let id = *number.get_or_insert_with(|| self.number(predicate));
                        self.add_reference(id);
                        id
                    }
                    _ => local,
                }
            })
        });
        renumbered.collect()
    }

    /// Builds the search structures after [`PredicateSet::intern_unsettled`].
    pub fn settle(&mut self) {
        if self.indexes.iter().any(|indexes| indexes.contains.is_unsettled()) {
            for indexes in Arc::make_mut(&mut self.indexes) {
                indexes.contains.settle();
            }
        }
    }

    /// Releases references, for example those of an entry that is removed.
    pub fn release(&mut self, ids: impl IntoIterator<Item = u32>) {
        for id in ids {
            let Some(Some(record)) = self.records.get_mut(id as usize) else { continue };
            record.references -= 1;
            if record.references == 0 {
                let predicate = record.predicate.clone();
                self.forget(id, &predicate);
            }
        }
    }

    fn add_reference(&mut self, id: u32) {
        if let Some(Some(record)) = self.records.get_mut(id as usize) {
            record.references += 1;
        }
    }

    /// The predicate's number. A new predicate has no references.
    fn number(&mut self, predicate: &Predicate) -> u32 {
        let hash = hash(predicate);
        if let Some(id) = self.find(hash, predicate) {
            return id;
        }
        let record = Some(Record { predicate: Arc::new(predicate.clone()), references: 0 });
        let id = match self.free.pop_first() {
            Some(id) => {
                if let Some(free) = self.records.get_mut(id as usize) {
                    *free = record;
                }
                id
            }
            None => {
                self.records.push(record);
                self.records.len() as u32 - 1
            }
        };
        match self.by_hash.get_mut(hash) {
            Some((_, ids)) => ids.push(id),
            None => {
                self.by_hash.insert((hash, vec![id]));
            }
        }
        self.live += 1;
        self.attach(id, predicate);
        id
    }

    fn find(&self, hash: u32, predicate: &Predicate) -> Option<u32> {
        let (_, ids) = self.by_hash.get(hash)?;
        ids.iter().copied().find(|id| self.predicate(*id) == Some(predicate))
    }

    fn forget(&mut self, id: u32, predicate: &Predicate) {
        self.detach(id, predicate);
        if let Some(record) = self.records.get_mut(id as usize) {
            *record = None;
        }
        self.free.insert(id);
        self.live -= 1;
        let hash = hash(predicate);
        if let Some((_, ids)) = self.by_hash.get_mut(hash) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_hash.remove(hash);
            }
        }
    }

    /// Adds a predicate to the structures that find it.
    fn attach(&mut self, id: u32, predicate: &Predicate) {
        match predicate {
            Predicate::Member { .. } | Predicate::Present(_) => {
                self.about_sets.insert(id);
            }
            Predicate::OptionKind(kinds) => {
                let of = Arc::make_mut(&mut self.kinds);
                for kind in kinds.iter() {
                    of[usize::from(kind)].insert(id);
                }
            }
            Predicate::Exists(which) => {
                self.indexes(ByteSource::Payload(*which)).exists.insert(id);
            }
            Predicate::Bytes { source, relation, literals } => {
                let indexes = self.indexes(*source);
                let put = |ids: &mut Option<Ids>| {
                    ids.get_or_insert_default().insert(id);
                };
                for literal in literals {
                    match relation {
                        Relation::Starts => indexes.starts.change(literal, put),
                        Relation::Equals => indexes.equals.change(literal, put),
                        Relation::Contains => indexes.contains.insert(literal, id),
                    }
                }
            }
        }
        self.update_asked();
    }

    /// Removes what [`PredicateSet::attach`] added.
    fn detach(&mut self, id: u32, predicate: &Predicate) {
        match predicate {
            Predicate::Member { .. } | Predicate::Present(_) => {
                self.about_sets.remove(id);
            }
            Predicate::OptionKind(kinds) => {
                let of = Arc::make_mut(&mut self.kinds);
                for kind in kinds.iter() {
                    of[usize::from(kind)].remove(id);
                }
            }
            Predicate::Exists(which) => {
                self.indexes(ByteSource::Payload(*which)).exists.remove(id);
            }
            Predicate::Bytes { source, relation, literals } => {
                let indexes = self.indexes(*source);
                let take = |ids: &mut Option<Ids>| {
                    if let Some(some) = ids {
                        some.remove(id);
                    }
                    *ids = ids.take().filter(|ids| !ids.is_empty());
                };
                for literal in literals {
                    match relation {
                        Relation::Starts => indexes.starts.change(literal, take),
                        Relation::Equals => indexes.equals.change(literal, take),
                        Relation::Contains => indexes.contains.remove(literal, id),
                    }
                }
            }
        }
        self.update_asked();
    }

    fn update_asked(&mut self) {
        (self.option_kinds, self.has_payloads) = (OptionKinds::default(), false);
        for kind in (0..=255u8).filter(|kind| !self.kinds[usize::from(*kind)].is_empty()) {
            self.option_kinds.insert(kind);
        }
        for (source, _) in SOURCES.iter().zip(self.indexes.iter()).filter(|(_, some)| !some.is_empty()) {
            match source {
                ByteSource::Payload(_) => self.has_payloads = true,
                ByteSource::Option(named) => self.option_kinds.insert(named.kind()),
            }
        }
        self.option_bits = self.option_kinds.iter().fold(0, |bits, kind| bits | option_bit(kind));
    }

    fn indexes(&mut self, source: ByteSource) -> &mut SourceIndex {
        let at = SOURCES.iter().position(|other| *other == source).unwrap_or(0);
        &mut Arc::make_mut(&mut self.indexes)[at]
    }

    /// The predicate with this number.
    pub fn predicate(&self, id: u32) -> Option<&Predicate> {
        self.records.get(id as usize)?.as_ref().map(|record| &*record.predicate)
    }

    /// Number of predicates.
    pub fn len(&self) -> usize {
        self.live
    }

    /// Whether there are no predicates.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Whether packets must be [inspected](PredicateSet::inspect).
    #[inline]
    pub fn needs_bytes(&self) -> bool {
        self.live != self.about_sets.len()
    }

    /// The predicates about named sets, by ascending number.
    pub fn about_sets(&self) -> impl Iterator<Item = (u32, &Predicate)> {
        self.about_sets.iter().filter_map(|id| Some((*id, self.predicate(*id)?)))
    }

    /// The chunks of the window that [`PredicateSet::needs_inspection`] reads, as a bit set.
    #[inline]
    pub fn chunks(&self) -> u8 {
        u8::from(self.option_bits != 0) << (CHUNKS - 1)
    }

    /// Whether predicates refer to payloads, so that every packet needs inspection.
    #[inline]
    pub fn needs_payloads(&self) -> bool {
        self.has_payloads
    }

    /// Whether a predicate may be true for the packet with this window.
    #[inline]
    pub fn needs_inspection(&self, window: &Window) -> bool {
        self.has_payloads | (window.chunk[CHUNKS - 1] & self.option_bits != 0)
    }

    /// Finds the true predicates of packet `pkt` of a batch. `head` is the whole packet, `meta` the result of
    /// [`mmb_packet::parse`].
    #[inline]
    pub fn inspect(&self, pkt: usize, head: &[u8], meta: &Meta, results: &mut PredicateResults) {
        let has_option = || tcp_options(head, meta).any(|option| self.option_kinds.contains(option.kind));
        if self.has_payloads || has_option() {
            self.search_packet(pkt, head, meta, results);
        }
    }

    /// Searches the packet's options and payloads; see [`PredicateSet::inspect`].
    #[inline(never)]
    fn search_packet(&self, pkt: usize, head: &[u8], meta: &Meta, results: &mut PredicateResults) {
        results.record(pkt, |scan| {
            self.inspect_options(head, meta, scan);
            for (source, indexes) in SOURCES.iter().zip(self.indexes.iter()) {
                if let ByteSource::Payload(which) = source
                    && !indexes.is_empty()
                    && let Some(bytes) = payload(head, meta, *which)
                {
                    indexes.search(bytes, scan);
                }
            }
        });
    }

    fn inspect_options(&self, head: &[u8], meta: &Meta, scan: &mut Scan<'_>) {
        if self.option_kinds == OptionKinds::default() {
            return;
        }
        let mut seen = OptionKinds::default();
        let mut last: [Option<&[u8]>; SOURCES.len()] = [None; SOURCES.len()];
        for option in tcp_options(head, meta).filter(|option| self.option_kinds.contains(option.kind)) {
            if !seen.contains(option.kind) {
                seen.insert(option.kind);
                scan.add(&self.kinds[usize::from(option.kind)]);
            }
            let is = |source: &ByteSource| matches!(source, ByteSource::Option(named) if named.kind() == option.kind);
            if let Some(at) = SOURCES.iter().position(is) {
                last[at] = Some(option.data);
            }
        }
        for (data, indexes) in last.iter().zip(self.indexes.iter()) {
            if let Some(data) = data {
                indexes.search(data, scan);
            }
        }
    }

    /// Whether [`PredicateSet::rebuilt`] would be faster to search.
    pub fn is_stale(&self) -> bool {
        self.indexes.iter().any(|indexes| indexes.contains.is_stale())
    }

    /// Returns the predicates in rebuilt search structures. They keep their numbers.
    pub fn rebuilt(&self) -> PredicateSet {
        let mut new = self.clone();
        for indexes in Arc::make_mut(&mut new.indexes) {
            indexes.contains = indexes.contains.rebuilt();
        }
        new
    }

    /// Bytes of memory that grow with the literals. Each predicate takes some hundred bytes more.
    pub fn bytes(&self) -> usize {
        let searched: usize = self.indexes.iter().map(|indexes| indexes.contains.bytes()).sum();
        let kinds: usize = self.kinds.iter().map(Ids::bytes).sum();
        searched + kinds + self.records.bytes() + self.by_hash.bytes()
    }
}

/// The hash of a predicate. It needs no secret seed: only the author of the rules could cause collisions.
fn hash(predicate: &Predicate) -> u32 {
    let mut hasher = DefaultHasher::new();
    predicate.hash(&mut hasher);
    hasher.finish() as u32
}
