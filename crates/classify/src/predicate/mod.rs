//! Questions about bytes that are not in the window: payloads, options' data, options' kinds.
//!
//! Theory of operation. What rules ask ([`Ask`]) gets a number when the first of them comes, and loses it with the last.
//! A packet's bytes are looked at once, whatever the number of predicates: each option's kind leads to the predicates
//! that name it; a [`trie::Trie`] finds the literals that some bytes start with, or are; automata find those that stand
//! anywhere ([`contains`]). So the cost is that of the bytes and of what is true of them. The result, the numbers of the true
//! predicates, is what the classifier works with: rules that ask for one are reached through it, the others test it.
//!
//! Like the classifier [`Predicates`] is a value: clones share everything, a change copies the path to what it changes.

mod ask;
mod contains;
mod trie;
mod truths;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use mmb_packet::{Kind, Meta, NamedOption, PayloadLayer, TcpOptions, payload, tcp_options};

pub use ask::{Ask, How, Kinds, Source};
pub use truths::Truths;

use crate::paged::{PagedVec, SortedPages};
use crate::pattern::{Entry, Pattern};
use contains::Contains;
use trie::Trie;
use truths::Scan;

/// Numbers of predicates.
type Ids = SortedPages<u32, 256>;

/// The kind of timestamp options.
const TIMESTAMP: u8 = NamedOption::Timestamp.kind();

/// Byte of a TCP header with the data offset.
const OFFSET_AT: usize = 12;

/// Payloads and options' data that can be asked about.
const SOURCES: [Source; 9] = [
    Source::Payload(PayloadLayer::Ip),
    Source::Payload(PayloadLayer::Ip6),
    Source::Payload(PayloadLayer::Icmp),
    Source::Payload(PayloadLayer::Icmp6),
    Source::Payload(PayloadLayer::Udp),
    Source::Payload(PayloadLayer::Tcp),
    Source::Option(NamedOption::Sack),
    Source::Option(NamedOption::FastOpen),
    Source::Option(NamedOption::Mptcp),
];

/// The predicates that some rule asks for, and the structures that find the true ones.
#[derive(Clone, Debug)]
pub struct Predicates {
    records: PagedVec<Option<Record>, 64>,
    free: Ids,
    /// Predicates by the hash of what they ask.
    by_hash: SortedPages<(u32, Vec<u32>), 64>,
    live: usize,
    /// Predicates by the option kinds that they name.
    kinds: Arc<[Ids; 256]>,
    /// As [`SOURCES`].
    relations: Arc<[Relations; SOURCES.len()]>,
    /// The kinds of options that somebody asks about, and whether somebody asks about payloads: most packets have nothing
    /// to be looked at.
    asked: Kinds,
    payloads: bool,
}

/// A predicate.
#[derive(Clone, Debug)]
struct Record {
    ask: Arc<Ask>,
    mentions: u32,
}

/// What is asked about some bytes.
#[derive(Clone, Debug, Default)]
struct Relations {
    exists: Ids,
    starts: Trie<Ids>,
    equals: Trie<Ids>,
    contains: Contains,
}

impl Default for Predicates {
    fn default() -> Self {
        Predicates {
            records: PagedVec::default(),
            free: Ids::default(),
            by_hash: SortedPages::default(),
            live: 0,
            kinds: Arc::new(std::array::from_fn(|_| Ids::default())),
            relations: Arc::default(),
            asked: Kinds::default(),
            payloads: false,
        }
    }
}

impl Predicates {
    /// The entries of a pattern with this set's numbers for its predicates; each mention counts until it is
    /// [released](Predicates::release).
    pub fn intern(&mut self, pattern: &Pattern) -> Vec<Entry> {
        let entries = self.intern_unsettled(pattern);
        self.settle();
        entries
    }

    /// The entries that [`Predicates::intern`] gave for the same pattern, as long as none of their predicates was given
    /// up; nothing is counted.
    pub fn known(&self, pattern: &Pattern) -> Vec<Entry> {
        let number = |local: u32| {
            let ask = pattern.asks().get(local as usize);
            ask.and_then(|ask| self.find(hash(ask), ask)).unwrap_or(u32::MAX)
        };
        pattern.entries().iter().map(|entry| entry.clone().renumbered(number)).collect()
    }

    /// The same for many patterns: predicates may be found only after [`Predicates::settle`].
    pub fn intern_unsettled(&mut self, pattern: &Pattern) -> Vec<Entry> {
        let mut numbers = vec![None; pattern.asks().len()];
        let entries = pattern.entries().iter().cloned();
        let renumbered = entries.map(|entry| {
            entry.renumbered(|local| {
                match (numbers.get_mut(local as usize), pattern.asks().get(local as usize)) {
                    (Some(number), Some(ask)) => {
                        let id = *number.get_or_insert_with(|| self.number(ask));
                        self.mention(id);
                        id
                    }
                    _ => local,
                }
            })
        });
        renumbered.collect()
    }

    /// Makes what [`Predicates::intern_unsettled`] left to be made.
    pub fn settle(&mut self) {
        if self.relations.iter().any(|relations| relations.contains.is_unsettled()) {
            for relations in Arc::make_mut(&mut self.relations) {
                relations.contains.settle();
            }
        }
    }

    /// Takes back mentions: those of an entry that is taken out.
    pub fn release(&mut self, ids: impl IntoIterator<Item = u32>) {
        for id in ids {
            let Some(Some(record)) = self.records.get_mut(id as usize) else { continue };
            record.mentions -= 1;
            if record.mentions == 0 {
                let ask = record.ask.clone();
                self.forget(id, &ask);
            }
        }
    }

    fn mention(&mut self, id: u32) {
        if let Some(Some(record)) = self.records.get_mut(id as usize) {
            record.mentions += 1;
        }
    }

    /// The predicate's number; a new one has no mentions.
    fn number(&mut self, ask: &Ask) -> u32 {
        let hash = hash(ask);
        if let Some(id) = self.find(hash, ask) {
            return id;
        }
        let record = Some(Record { ask: Arc::new(ask.clone()), mentions: 0 });
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
        self.attach(id, ask);
        id
    }

    fn find(&self, hash: u32, ask: &Ask) -> Option<u32> {
        let (_, ids) = self.by_hash.get(hash)?;
        ids.iter().copied().find(|id| self.ask(*id) == Some(ask))
    }

    fn forget(&mut self, id: u32, ask: &Ask) {
        self.detach(id, ask);
        if let Some(record) = self.records.get_mut(id as usize) {
            *record = None;
        }
        self.free.insert(id);
        self.live -= 1;
        let hash = hash(ask);
        if let Some((_, ids)) = self.by_hash.get_mut(hash) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_hash.remove(hash);
            }
        }
    }

    /// Enters a predicate into the structures that find it.
    fn attach(&mut self, id: u32, ask: &Ask) {
        match ask {
            Ask::OptionKind(kinds) => {
                let of = Arc::make_mut(&mut self.kinds);
                for kind in kinds.iter() {
                    of[usize::from(kind)].insert(id);
                }
            }
            Ask::Exists(which) => {
                self.relations(Source::Payload(*which)).exists.insert(id);
            }
            Ask::Bytes { source, how, literals } => {
                let relations = self.relations(*source);
                let put = |ids: &mut Option<Ids>| {
                    ids.get_or_insert_default().insert(id);
                };
                for literal in literals {
                    match how {
                        How::Starts => relations.starts.change(literal, put),
                        How::Equals => relations.equals.change(literal, put),
                        How::Contains => relations.contains.insert(literal, id),
                    }
                }
            }
        }
        self.find_asked();
    }

    /// Undoes [`Predicates::attach`].
    fn detach(&mut self, id: u32, ask: &Ask) {
        match ask {
            Ask::OptionKind(kinds) => {
                let of = Arc::make_mut(&mut self.kinds);
                for kind in kinds.iter() {
                    of[usize::from(kind)].remove(id);
                }
            }
            Ask::Exists(which) => {
                self.relations(Source::Payload(*which)).exists.remove(id);
            }
            Ask::Bytes { source, how, literals } => {
                let relations = self.relations(*source);
                let take = |ids: &mut Option<Ids>| {
                    if let Some(some) = ids {
                        some.remove(id);
                    }
                    *ids = ids.take().filter(|ids| !ids.is_empty());
                };
                for literal in literals {
                    match how {
                        How::Starts => relations.starts.change(literal, take),
                        How::Equals => relations.equals.change(literal, take),
                        How::Contains => relations.contains.remove(literal, id),
                    }
                }
            }
        }
        self.find_asked();
    }

    fn find_asked(&mut self) {
        (self.asked, self.payloads) = (Kinds::default(), false);
        for kind in (0..=255u8).filter(|kind| !self.kinds[usize::from(*kind)].is_empty()) {
            self.asked.insert(kind);
        }
        for (source, _) in SOURCES.iter().zip(self.relations.iter()).filter(|(_, some)| !some.is_empty()) {
            match source {
                Source::Payload(_) => self.payloads = true,
                Source::Option(named) => self.asked.insert(named.kind()),
            }
        }
    }

    fn relations(&mut self, source: Source) -> &mut Relations {
        let at = SOURCES.iter().position(|other| *other == source).unwrap_or(0);
        &mut Arc::make_mut(&mut self.relations)[at]
    }

    /// What a predicate asks.
    pub fn ask(&self, id: u32) -> Option<&Ask> {
        self.records.get(id as usize)?.as_ref().map(|record| &*record.ask)
    }

    /// How many predicates there are.
    pub fn len(&self) -> usize {
        self.live
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Whether packets have to be [inspected](Predicates::inspect).
    #[inline]
    pub fn needs_bytes(&self) -> bool {
        self.live != 0
    }

    /// Whether somebody may ask about the bytes of a packet: nothing is true of it if not. Without branches, since packets of
    /// several protocols follow each other as they like.
    #[inline]
    pub fn needs_inspection(&self, head: &[u8], meta: &Meta) -> bool {
        let is_tcp = meta.kind.l4() == Kind::TCP;
        let from = usize::from(meta.l4_off) + OFFSET_AT;
        let Some([offset, .., a, b, c, d]) = head.get(from..).and_then(<[u8]>::first_chunk::<12>) else {
            return self.payloads | is_tcp;
        };
        let usual = ([*a, *b, *c, *d] == [1, 1, TIMESTAMP, 10]) & (offset >> 4 == 8);
        self.payloads | is_tcp & (offset >> 4 > 5) & !(usual & !self.asked.contains(TIMESTAMP))
    }

    /// Finds out which predicates are true of packet `pkt` of a batch. `head` is the whole packet, `meta` what
    /// [`mmb_packet::parse`] found.
    #[inline]
    pub fn inspect(&self, pkt: usize, head: &[u8], meta: &Meta, truths: &mut Truths) {
        if self.payloads || self.asks_for_some(tcp_options(head, meta)) {
            self.look_at(pkt, head, meta, truths);
        }
    }

    /// Whether somebody asks about one of the options.
    #[inline]
    fn asks_for_some(&self, mut options: TcpOptions<'_>) -> bool {
        // Nearly all segments carry this and nothing else.
        if let [1, 1, TIMESTAMP, 10, _, _, _, _, _, _, _, _] = options.area() {
            return self.asked.contains(TIMESTAMP);
        }
        options.any(|option| self.asked.contains(option.kind))
    }

    /// See [`Predicates::inspect`].
    #[inline(never)]
    fn look_at(&self, pkt: usize, head: &[u8], meta: &Meta, truths: &mut Truths) {
        truths.record(pkt, |scan| {
            self.inspect_options(head, meta, scan);
            for (source, relations) in SOURCES.iter().zip(self.relations.iter()) {
                if let Source::Payload(which) = source
                    && !relations.is_empty()
                    && let Some(bytes) = payload(head, meta, *which)
                {
                    relations.search(bytes, scan);
                }
            }
        });
    }

    fn inspect_options(&self, head: &[u8], meta: &Meta, scan: &mut Scan<'_>) {
        if self.asked == Kinds::default() {
            return;
        }
        let mut seen = Kinds::default();
        let mut last: [Option<&[u8]>; SOURCES.len()] = [None; SOURCES.len()];
        for option in tcp_options(head, meta).filter(|option| self.asked.contains(option.kind)) {
            if !seen.contains(option.kind) {
                seen.insert(option.kind);
                scan.add(&self.kinds[usize::from(option.kind)]);
            }
            let is = |source: &Source| matches!(source, Source::Option(named) if named.kind() == option.kind);
            if let Some(at) = SOURCES.iter().position(is) {
                last[at] = Some(option.data);
            }
        }
        for (data, relations) in last.iter().zip(self.relations.iter()) {
            if let Some(data) = data {
                relations.search(data, scan);
            }
        }
    }

    /// Whether [`Predicates::rebuilt`] would be quicker to search.
    pub fn is_stale(&self) -> bool {
        self.relations.iter().any(|relations| relations.contains.is_stale())
    }

    /// The same predicates with the same numbers, in structures made all at once.
    pub fn rebuilt(&self) -> Predicates {
        let mut new = self.clone();
        for relations in Arc::make_mut(&mut new.relations) {
            relations.contains = relations.contains.rebuilt();
        }
        new
    }

    /// Bytes of memory of what grows with literals' length; the rest is some hundred bytes a predicate.
    pub fn bytes(&self) -> usize {
        let searched: usize = self.relations.iter().map(|relations| relations.contains.bytes()).sum();
        let kinds: usize = self.kinds.iter().map(Ids::bytes).sum();
        searched + kinds + self.records.bytes() + self.by_hash.bytes()
    }
}

impl Relations {
    fn is_empty(&self) -> bool {
        self.exists.is_empty() && self.starts.is_empty() && self.equals.is_empty() && self.contains.is_empty()
    }

    fn search(&self, bytes: &[u8], scan: &mut Scan<'_>) {
        scan.add(&self.exists);
        if !self.starts.is_empty() {
            self.starts.prefixes(bytes, |_, ids| scan.add(ids));
        }
        if let Some(ids) = self.equals.get(bytes) {
            scan.add(ids);
        }
        if !self.contains.is_empty() {
            self.contains.search(bytes, scan);
        }
    }
}

/// The hash by which a question is found; who writes the rules writes both questions that collide.
fn hash(ask: &Ask) -> u32 {
    let mut hasher = DefaultHasher::new();
    ask.hash(&mut hasher);
    hasher.finish() as u32
}
