//! A node of the tree: tables, and what no table takes.
//!
//! Theory of operation. Every entry stands in one place: in the first table whose mask is within its cover's mask, or in
//! the node's rest. The rule is simple enough to find an entry again without being told where it is, as long as tables
//! are only appended, and only leave when they are empty. (What is in bit vectors stays there if a table comes that would
//! take it, and is looked for there, too.) What a table's key leads to is an entry, a leaf or a node
//! again. A packet visits the rest and probes every table; it matches every entry that holds, wherever it stands.
//!
//! When the rest has grown too long to be compared entry by entry it is divided: tables by the masks that promise most
//! ([`crate::choose`]), and bit vectors for what no mask tells apart.

use std::sync::Arc;

use crate::batch::Hit;
use crate::bitvec::{BitVector, Packet};
use crate::choose::choose;
use crate::hash::Seeds;
use crate::leaf::{self, Item, Leaf};
use crate::masked::Masked;
use crate::paged::SortedPages;
use crate::pattern::Entry;
use crate::sieve::Sieve;
use crate::sink::Sink;
use crate::table::Table;

/// A node with so few entries becomes a leaf again.
pub(crate) const SMALL: usize = 8;

/// What is known of every packet that comes to a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    /// Its bits …
    pub known: Masked,
    /// … and a predicate that is true.
    pub pivot: Option<u32>,
}

impl Path {
    /// With the bits of a chunk that `mask` leaves.
    pub fn with(&self, chunk: usize, mask: u128, key: u128) -> Path {
        Path { known: self.known.with(chunk, mask, key), pivot: self.pivot }
    }

    /// The entry that asks for just this.
    pub fn entry(&self) -> Arc<Entry> {
        Arc::new(Entry { cover: self.known, tests: Box::default(), pivot: self.pivot })
    }
}

/// Whether an entry asks for nothing that is not known.
pub(crate) fn is_exact(entry: &Entry, path: &Path) -> bool {
    let asks = entry.cover.mask().iter().zip(path.known.mask());
    entry.is_exact() && asks.fold(0, |more, (mask, known)| more | (mask & !known)) == 0
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    seeds: Seeds,
    len: usize,
    /// What every packet that comes here matches.
    always: SortedPages<u32, 512>,
    /// In the order in which they were made.
    tables: Vec<Table>,
    rest: Leaf,
    bits: BitVector,
}

impl Node {
    pub fn new(seeds: Seeds) -> Node {
        Node {
            seeds,
            len: 0,
            always: SortedPages::default(),
            tables: Vec::new(),
            rest: Leaf::default(),
            bits: BitVector::default(),
        }
    }

    /// A node of these entries.
    pub fn build(items: Vec<Item>, path: &Path, seeds: Seeds) -> Node {
        let mut node = Node::new(seeds);
        node.len = items.len();
        let (always, others): (Vec<_>, Vec<_>) = items.into_iter().partition(|item| is_exact(&item.1, path));
        for item in always {
            node.always.insert(item.0);
        }
        node.divide(others, path);
        node
    }

    /// Entries in and below it.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn insert(&mut self, item: Item, path: &Path) {
        self.len += 1;
        if is_exact(&item.1, path) {
            self.always.insert(item.0);
            return;
        }
        if let Some(table) = self.tables.iter_mut().find(|table| table.takes(&item.1)) {
            return table.insert(item, path);
        }
        self.rest.push(item);
        if self.rest.is_full() {
            let items = self.rest.items().collect();
            self.rest = Leaf::default();
            self.divide(items, path);
        }
    }

    /// Finds places for entries that no table takes, while the rest is empty.
    fn divide(&mut self, mut items: Vec<Item>, path: &Path) {
        if items.len() <= leaf::most() {
            // With a sieve the entries cost less than any table.
            let whole: Leaf = items.iter().cloned().collect();
            if !whole.is_full() && Sieve::new(&whole).is_some() {
                self.rest = whole;
                return;
            }
        }
        while let Some(choice) = choose(&items, path.known.mask()) {
            let mut table = Table::new(self.seeds, choice);
            let taken;
            (taken, items) = items.into_iter().partition(|item| table.takes(&item.1));
            table.fill(taken, path);
            self.tables.push(table);
        }
        self.rest = items.iter().cloned().collect();
        if !self.rest.is_full() {
            return;
        }
        self.rest = Leaf::default();
        if self.bits.len() == 0 {
            self.bits = BitVector::build(&items);
            return;
        }
        for (slot, entry) in items {
            self.bits.insert(slot, entry);
        }
    }

    /// Takes an entry out; false: it is not here.
    pub fn remove(&mut self, slot: u32, entry: &Entry, path: &Path) -> bool {
        let removed = self.remove_below(slot, entry, path);
        self.len -= usize::from(removed);
        removed
    }

    fn remove_below(&mut self, slot: u32, entry: &Entry, path: &Path) -> bool {
        if is_exact(entry, path) {
            return self.always.remove(slot).is_some();
        }
        if let Some(at) = self.tables.iter().position(|table| table.takes(entry)) {
            let removed = self.tables[at].remove(slot, entry, path);
            if self.tables[at].len == 0 {
                self.tables.remove(at);
            }
            if removed {
                return true;
            }
        }
        if self.rest.remove(slot, entry) {
            return true;
        }
        self.remove_from_bits(slot, entry)
    }

    /// Takes an entry out of the bit vectors, which give the entries of a rule in any order.
    fn remove_from_bits(&mut self, slot: u32, entry: &Entry) -> bool {
        let mut others = Vec::new();
        let found = loop {
            match self.bits.remove(slot) {
                Some(one) if *one == *entry => break true,
                Some(other) => others.push(other),
                None => break false,
            }
        };
        for other in others {
            self.bits.insert(slot, other);
        }
        found
    }

    /// All entries in and below it.
    pub fn items(&self, path: &Path) -> Vec<Item> {
        let mut items: Vec<Item> = self.always.iter().map(|&slot| (slot, path.entry())).collect();
        items.extend(self.rest.items());
        items.extend(self.bits.iter().map(|(slot, entry)| (slot, entry.clone())));
        for table in &self.tables {
            for (key, owner) in table.store.iter() {
                items.extend(owner.items(&path.with(table.chunk, table.mask, key)));
            }
        }
        items
    }

    /// Whether the rule `slot` has an entry here that asks for nothing that is not known.
    pub fn has_exact(&self, slot: u32) -> bool {
        self.always.get(slot).is_some()
    }

    /// What stands in no table: what every packet matches, entries to be compared, bit vectors.
    pub fn rest(&self) -> (&SortedPages<u32, 512>, &Leaf, &BitVector) {
        (&self.always, &self.rest, &self.bits)
    }

    pub fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// Whether there are entries that are neither in tables nor compared one by one.
    pub fn has_more(&self) -> bool {
        !self.always.is_empty() || self.bits.len() != 0
    }

    /// Gives `hits` what matches some packets of the entries that are neither in tables nor compared one by one.
    pub fn visit_more(&self, packets: &[Packet<'_>], hits: &mut Vec<Hit>) {
        for slot in self.always.iter() {
            hits.extend(packets.iter().map(|packet| Hit::new(packet.head, *slot)));
        }
        self.bits.classify(packets, |pkt, slot| hits.push(Hit::new(pkt, slot)));
    }

    /// Gives `hits` what matches some packets whose bits on the path here are right.
    #[inline(never)]
    pub fn visit(&self, packets: &[Packet<'_>], hits: &mut Vec<Hit>) {
        if self.has_more() {
            self.visit_more(packets, hits);
        }
        for Packet { window, facts, head } in packets {
            let sink = &mut Sink::new(hits, *head);
            self.rest.visit(window, *facts, sink);
            for table in &self.tables {
                table.visit(window, *facts, sink);
            }
        }
    }

    /// Whether it is cheaper to visit it with many packets than with one after the other.
    pub fn gains_by_many(&self) -> bool {
        self.bits.len() != 0
    }
}
