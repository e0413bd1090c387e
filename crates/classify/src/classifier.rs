//! All rules together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mmb_packet::window::{CHUNKS, KIND};
use mmb_packet::{Meta, Window};

use crate::alike::Alike;
use crate::batch::{Batch, Habits, Hit, VECTOR};
use crate::bitvec::Packet;
use crate::hash::Seeds;
use crate::info::{TableInfo, describe, describe_pivot};
use crate::leaf::Item;
use crate::masked::Masked;
use crate::node::{self, Node, Path};
use crate::paged::{PagedVec, SortedPages};
use crate::pattern::{Entry, Pattern};
use crate::predicate::{Predicates, Truths};
use crate::sieve::Sieve;
use crate::sink::{Hits, Sink};
use crate::summary::Summary;
use crate::table::{Table, kind_bit};
use crate::walk::{Left, STRIDE, TABLES, Walk};
use crate::wide::Wide512;

/// What packets are known to be before anything is looked up: the classifier sees IP packets only.
const START: Path = Path { known: Masked::IP, pivot: None };

/// Tables that are probed in hardly more time than a flow is looked up.
const CHEAP: usize = 3;

/// What tells classifiers apart: every change takes the next number.
static STAMPS: AtomicU64 = AtomicU64::new(1);

fn new_stamp() -> u64 {
    STAMPS.fetch_add(1, Ordering::Relaxed)
}

/// Where a rule stands.
#[derive(Clone, Debug, Default)]
enum Place {
    /// Nowhere: there is no such rule.
    #[default]
    None,
    /// It is one entry that asks for nothing but a key of one of the root's tables; this is the key's hash.
    Exact(u64),
    /// Where its entries have to be.
    Entries(Arc<[Arc<Entry>]>),
}

/// Rules by what they match. See the crate's documentation.
#[derive(Clone, Debug)]
pub struct Classifier {
    seeds: Seeds,
    /// Of clones it is the same until one of them changes.
    stamp: u64,
    root: Arc<Node>,
    /// For what the root compares one by one.
    sieve: Option<Sieve>,
    /// The chunks, as bits, of which it helps to know what the packets of a vector have in common.
    summed: u8,
    predicates: Predicates,
    /// What the entries found otherwise tell apart of the window's first chunk.
    alike: Alike,
    /// Entries that are found through a predicate, by its number.
    pivots: SortedPages<(u32, Arc<Node>), 64>,
    /// By slot.
    places: PagedVec<Place, 256>,
    /// How many entries read each chunk.
    readers: [u32; CHUNKS],
    rules: usize,
    /// How many rules there were when the tree was last built as a whole, and how many came or went since.
    built: usize,
    changes: usize,
}

impl Default for Classifier {
    fn default() -> Self {
        Self::new()
    }
}

impl Classifier {
    /// A classifier without rules, hashing by a seed of its own.
    pub fn new() -> Self {
        Self::with_seeds(Seeds::random())
    }

    /// A classifier without rules whose hashing follows from `seed`: for measurements that are to repeat.
    pub fn with_seed(seed: u64) -> Self {
        Self::with_seeds(Seeds::from_seed(seed))
    }

    pub(crate) fn with_seeds(seeds: Seeds) -> Self {
        Classifier {
            seeds,
            stamp: new_stamp(),
            root: Arc::new(Node::new(seeds)),
            sieve: None,
            summed: 0,
            predicates: Predicates::default(),
            alike: Alike::default(),
            pivots: SortedPages::default(),
            places: PagedVec::default(),
            readers: [0; CHUNKS],
            rules: 0,
            built: 0,
            changes: 0,
        }
    }

    /// Number of rules.
    pub fn len(&self) -> usize {
        self.rules
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules == 0
    }

    /// The chunks of the window that some rule reads, as bits: what [`mmb_packet::fill_window`] has to fill.
    pub fn chunks(&self) -> u8 {
        (0..CHUNKS).fold(0, |chunks, i| chunks | u8::from(self.readers[i] != 0) << i)
    }

    /// Adds many rules, as [`Classifier::insert`] does one by one, and makes the whole tree anew, which is faster and
    /// gives a better tree.
    pub fn extend(&mut self, rules: impl IntoIterator<Item = (u32, Pattern)>) {
        let mut items = self.root.items(&START);
        for (slot, pattern) in rules {
            let entries: Arc<[Arc<Entry>]> =
                self.predicates.intern_unsettled(&pattern).into_iter().map(Arc::new).collect();
            for entry in entries.iter() {
                self.count_readers(entry.chunks(), 1);
                match entry.pivot {
                    None => items.push((slot, entry.clone())),
                    Some(id) => self.change_pivot(id, |node, path| node.insert((slot, entry.clone()), path)),
                }
            }
            self.set_place(slot, Place::Entries(entries));
            self.rules += 1;
        }
        self.predicates.settle();
        self.build(items);
    }

    fn build(&mut self, items: Vec<Item>) {
        self.root = Arc::new(Node::build(items.clone(), &START, self.seeds));
        self.alike = Alike::default();
        items.iter().for_each(|(_, entry)| self.alike.add(entry));
        self.changed();
        self.built = self.rules;
        self.changes = 0;
        // What is a key of a root's table may have become one or be none any more.
        for (slot, entry) in items {
            let single = match self.places.get(slot as usize) {
                Some(Place::Entries(entries)) => entries.len() == 1,
                Some(Place::Exact(_)) => true,
                Some(Place::None) | None => false,
            };
            if single {
                let exact = self.exact_hash(&entry).map(Place::Exact);
                self.set_place(slot, exact.unwrap_or_else(|| Place::Entries([entry].into())));
            }
        }
    }

    /// Whether so many rules came or went since the tree was made as a whole that making it anew may give a better one.
    pub fn is_stale(&self) -> bool {
        self.changes > 64 + self.built / 2 || self.predicates.is_stale()
    }

    /// The same rules in a tree made anew: takes the longer the more rules there are, some microseconds each.
    pub fn rebuilt(&self) -> Classifier {
        let mut anew = self.clone();
        if self.predicates.is_stale() {
            anew.predicates = self.predicates.rebuilt();
        }
        for (id, node) in self.pivots.iter() {
            let path = pivot_path(*id);
            anew.pivots.insert((*id, Arc::new(Node::build(node.items(&path), &path, self.seeds))));
        }
        anew.build(self.root.items(&START));
        anew
    }

    /// Adds the rule that the caller calls `slot` (below 2³¹ and not in use). Copies what is on the path to its place and
    /// shared with a clone.
    pub fn insert(&mut self, slot: u32, pattern: &Pattern) {
        let mut entries = self.predicates.intern(pattern);
        self.rules += 1;
        self.changes += 1;
        for entry in &entries {
            self.count_readers(entry.chunks(), 1);
            self.alike.add(entry);
        }
        if let [entry] = &entries[..]
            && let Some(hash) = self.exact_hash(entry)
            && let Some(entry) = entries.pop()
        {
            Arc::make_mut(&mut self.root).insert((slot, Arc::new(entry)), &START);
            self.changed();
            return self.set_place(slot, Place::Exact(hash));
        }
        let entries: Arc<[Arc<Entry>]> = entries.into_iter().map(Arc::new).collect();
        for entry in entries.iter() {
            let item = (slot, entry.clone());
            match entry.pivot {
                None => Arc::make_mut(&mut self.root).insert(item, &START),
                Some(id) => self.change_pivot(id, |node, path| node.insert(item, path)),
            }
        }
        self.changed();
        self.set_place(slot, Place::Entries(entries));
    }

    /// To be called after each change.
    fn changed(&mut self) {
        self.stamp = new_stamp();
        let (_, rest, bits) = self.root.rest();
        self.sieve = Sieve::new(rest);
        let tables = self.root.tables().iter().fold(0, |bits, table| bits | 1 << table.chunk);
        self.summed = (bits.asked() | rest.chunks() | tables) & !1;
    }

    /// The hash of the key of one of the root's tables that says all about the entry.
    fn exact_hash(&self, entry: &Entry) -> Option<u64> {
        let table = self.root.tables().iter().find(|table| table.takes(entry))?;
        let key = table.key_of(entry);
        let exact = entry.pivot.is_none() && node::is_exact(entry, &table.path(&START, key));
        exact.then(|| table.store.seeds.hash(key).0)
    }

    fn change_pivot<R>(&mut self, id: u32, change: impl FnOnce(&mut Node, &Path) -> R) -> R {
        if self.pivots.get(id).is_none() {
            self.pivots.insert((id, Arc::new(Node::new(self.seeds))));
        }
        let path = pivot_path(id);
        match self.pivots.get_mut(id) {
            Some((_, node)) => change(Arc::make_mut(node), &path),
            None => change(&mut Node::new(self.seeds), &path),
        }
    }

    fn set_place(&mut self, slot: u32, place: Place) {
        while self.places.len() <= slot as usize {
            self.places.push(Place::None);
        }
        if let Some(at) = self.places.get_mut(slot as usize) {
            *at = place;
        }
    }

    /// Takes out the rule `slot`; false, and nothing done, if there is none.
    pub fn remove(&mut self, slot: u32) -> bool {
        let Some(place) = self.places.get_mut(slot as usize) else { return false };
        match std::mem::take(place) {
            Place::None => return false,
            Place::Exact(hash) => self.remove_exact(slot, hash),
            Place::Entries(entries) => entries.iter().for_each(|entry| self.remove_entry(slot, entry)),
        }
        self.changed();
        self.rules -= 1;
        self.changes += 1;
        true
    }

    fn remove_exact(&mut self, slot: u32, hash: u64) {
        let found = self.root.tables().iter().find_map(|table| {
            let key = table.store.key_of(hash, slot)?;
            Some(table.path(&START, key).entry())
        });
        if let Some(entry) = found {
            self.remove_entry(slot, &entry);
        }
    }

    fn remove_entry(&mut self, slot: u32, entry: &Entry) {
        self.predicates.release(entry.predicates());
        self.count_readers(entry.chunks(), -1);
        let Some(id) = entry.pivot else {
            Arc::make_mut(&mut self.root).remove(slot, entry, &START);
            return;
        };
        self.change_pivot(id, |node, path| node.remove(slot, entry, path));
        if self.pivots.get(id).is_some_and(|(_, node)| node.len() == 0) {
            self.pivots.remove(id);
        }
    }

    fn count_readers(&mut self, chunks: u8, by: i32) {
        for (i, readers) in self.readers.iter_mut().enumerate() {
            if chunks & 1 << i != 0 {
                *readers = readers.wrapping_add_signed(by);
            }
        }
    }

    /// The parts of the tree, each before those below it; walks all of it.
    pub fn tables(&self) -> impl Iterator<Item = TableInfo> {
        let mut infos = Vec::new();
        describe(&self.root, 0, &mut infos);
        for (id, node) in self.pivots.iter() {
            describe_pivot(*id, node, &mut infos);
        }
        infos.into_iter()
    }

    /// Bytes of memory, shares with other clones included; walks all of it.
    pub fn bytes(&self) -> usize {
        self.places.bytes()
            + self.predicates.bytes()
            + self.tables().map(|info| info.occupancy.bytes).sum::<usize>()
    }

    /// Whether some rule asks about bytes that are not in the window: then [`Classifier::inspect`] has to be called for
    /// every packet before [`Classifier::classify`].
    #[inline]
    pub fn needs_bytes(&self) -> bool {
        self.predicates.needs_bytes()
    }

    /// Whether some rule may ask about the bytes of a packet: [`Classifier::inspect`] has nothing to do where it does not.
    #[inline]
    pub fn needs_inspection(&self, head: &[u8], meta: &Meta) -> bool {
        self.predicates.needs_inspection(head, meta)
    }

    /// Looks at the bytes of the batch's packet `pkt`: `head` is the contiguous beginning of the frame of which
    /// [`mmb_packet::parse`] made `meta`.
    pub fn inspect(&self, batch: &mut Batch, pkt: usize, head: &[u8], meta: &Meta) {
        self.predicates.inspect(pkt, head, meta, &mut batch.truths);
    }

    /// Replaces `batch.hits` by every matching rule of each of the batch's windows, which are those of IP packets, and
    /// forgets what was found out about the packets' bytes.
    pub fn classify(&self, batch: &mut Batch) {
        batch.hits.clear();
        let summary = Summary::new(&batch.windows[..batch.len.min(VECTOR)], self.summed);
        if self.classify_few(batch, &summary) {
            return;
        }
        let Batch { windows, len, hits, gathered, heads, left, truths, recent, habits, wide } = batch;
        let windows = &windows[..(*len).min(VECTOR)];
        gathered.clear();
        heads.find(windows, self.chunks(), truths.is_empty());
        let by_flow = self.is_by_flow() && (self.is_costly() || habits.is_dear) && recent.begin(self.stamp);
        if by_flow {
            heads.recall(recent, self.seeds, windows, &self.alike);
        }
        let found =
            self.visit_root(windows, heads.packets(), truths, &summary, (left, habits, *wide), gathered);
        habits.learn_dear(found, heads.packets().len());
        if !truths.is_empty() {
            self.visit_pivots(windows, truths, &mut gathered.others);
            truths.clear();
        }
        gathered.spread(heads, (recent, windows.len()), *wide, hits);
        if by_flow {
            gathered.remember(heads, recent, self.seeds);
        }
    }

    /// Whether packets that agree in what rules tell apart of the window's first chunk match the same rules.
    fn is_by_flow(&self) -> bool {
        self.chunks() == 1 && !self.needs_bytes()
    }

    /// Whether a walk through the tree costs much more than a look at what recent flows matched.
    fn is_costly(&self) -> bool {
        self.root.tables().len() > CHEAP || self.root.has_more()
    }

    /// Finds what is found through the root. Returns how many pairs of a packet and a table there were that may have to do with each
    /// other.
    fn visit_root(
        &self,
        windows: &[Window],
        heads: &[u16],
        truths: &Truths,
        summary: &Summary,
        (left, habits, wide): (&mut Left, &mut Habits, Option<Wide512>),
        hits: &mut Hits,
    ) -> usize {
        let kind = |&packet: &u16| kind_bit(windows[usize::from(packet)].bytes()[KIND]);
        let kinds = heads.iter().fold(0, |kinds, packet| kinds | kind(packet));
        let concerned = |table: &&Table| table.concerns(kinds) && !summary.excludes(table);
        let mut tables = self.root.tables().iter().filter(concerned).peekable();
        let (_, rest, _) = self.root.rest();
        let rest = &rest.concerned(summary);
        let mut walk = Walk { windows, heads, truths, rest, sieve: self.sieve.as_ref(), tables: &[], wide };
        let Some(any) = tables.peek() else {
            let found = walk.run(left, habits, hits);
            self.visit_others(&walk, summary, hits, tables);
            return found;
        };
        let mut together: [&Table; TABLES] = [any; TABLES];
        let mut n = 0;
        for (place, table) in together.iter_mut().zip(&mut tables) {
            *place = table;
            n += 1;
        }
        walk.tables = &together[..n];
        let found = walk.run(left, habits, hits);
        self.visit_others(&walk, summary, hits, tables);
        found
    }

    /// Finds what is neither in the tables nor among the blocks of a walk: what else the root has, and these `tables`.
    fn visit_others<'a>(
        &self,
        walk: &Walk<'_>,
        summary: &Summary,
        hits: &mut Hits,
        tables: impl Iterator<Item = &'a Table>,
    ) {
        let heads = walk.heads.len() as u16;
        if heads == 0 {
            return;
        }
        let (always, _, bits) = self.root.rest();
        if !always.is_empty() || !bits.is_out_of_question(summary) {
            let mut packets = [walk.packet(0); STRIDE];
            for first in (0..heads).step_by(STRIDE) {
                let n = STRIDE.min(usize::from(heads - first));
                packets[..n].iter_mut().zip(first..).for_each(|(packet, head)| *packet = walk.packet(head));
                self.root.visit_more(&packets[..n], &mut hits.others);
            }
        }
        for table in tables {
            for Packet { window, facts, head } in (0..heads).map(|head| walk.packet(head)) {
                table.visit(window, facts, &mut Sink::new(&mut hits.others, head));
            }
        }
    }

    /// Finds what is found through the packets' predicates. All packets are heads.
    fn visit_pivots(&self, windows: &[Window], truths: &Truths, hits: &mut Vec<Hit>) {
        for (packet, window) in windows.iter().enumerate() {
            let packet = Packet { window, facts: truths.facts(packet), head: packet as u16 };
            for (_, node) in packet.facts.iter().filter_map(|id| self.pivots.get(id)) {
                node.visit(&[packet], hits);
            }
        }
    }
}

/// What is known of packets of which a predicate is true.
fn pivot_path(id: u32) -> Path {
    Path { pivot: Some(id), ..START }
}

mod few;
#[cfg(test)]
mod tests;
