//! A node of the tree: hash tables, a leaf and bit vectors.
//!
//! Theory of operation. Every entry is in one place: in the first table whose mask is a subset of its cover's
//! mask, or else in the leaf or the bit vectors. This rule suffices to find an entry for removal, because
//! tables are only appended and are dropped only when they are empty. (An entry in the bit vectors stays
//! there when a table is created that would accept it; a removal looks there, too.) A packet visits the leaf
//! and the bit vectors and probes every table.
//!
//! When the leaf is full it is divided: into tables with the most promising masks (`choose_mask`), and bit
//! vectors for entries that no mask distinguishes.

use super::choose_mask::choose_mask;
use super::extra_bits::sample_packets;
use super::hash::Seeds;
use super::hash_table::Table;
use super::path::{Path, is_exact};
use crate::bitvec::BitVector;
use crate::leaf::{Leaf, PreFilter, capacity};
use crate::paged::SortedPages;
use crate::pattern::{Entry, RuleEntry};
use crate::vector::{Hit, HitSink, LookupPacket, Simd};

/// A node; see the module's documentation.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    seeds: Seeds,
    len: usize,
    /// Rules that every packet at this node matches.
    always: SortedPages<u32, 512>,
    /// The tables in order of creation.
    tables: Vec<Table>,
    leaf: Leaf,
    bits: BitVector,
}

impl Node {
    pub fn new(seeds: Seeds) -> Node {
        Node {
            seeds,
            len: 0,
            always: SortedPages::default(),
            tables: Vec::new(),
            leaf: Leaf::default(),
            bits: BitVector::default(),
        }
    }

    /// A node with these entries.
    pub fn build(items: Vec<RuleEntry>, path: &Path, seeds: Seeds) -> Node {
        let mut node = Node::new(seeds);
        node.len = items.len();
        let (always, others): (Vec<_>, Vec<_>) = items.into_iter().partition(|item| is_exact(&item.1, path));
        for item in always {
            node.always.insert(item.0);
        }
        node.divide(others, path);
        node
    }

    /// Number of entries in and below the node.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn insert(&mut self, item: RuleEntry, path: &Path) {
        self.len += 1;
        if is_exact(&item.1, path) {
            self.always.insert(item.0);
            return;
        }
        if let Some(table) = self.tables.iter_mut().find(|table| table.accepts(&item.1)) {
            return table.insert(item, path);
        }
        self.leaf.push(item);
        if self.leaf.is_full(path.is_root()) {
            let items = self.leaf.items().collect();
            self.leaf = Leaf::default();
            self.divide(items, path);
        }
    }

    /// Distributes entries that no existing table accepts. The leaf must be empty.
    fn divide(&mut self, mut items: Vec<RuleEntry>, path: &Path) {
        if items.len() <= capacity() {
            // With a pre-filter, comparing the entries costs less than any table.
            let whole: Leaf = items.iter().cloned().collect();
            if !whole.is_full(path.is_root()) && PreFilter::new(&whole).is_some() {
                self.leaf = whole;
                return;
            }
        }
        let packets = sample_packets(&items);
        while let Some(choice) = choose_mask(&items, path) {
            let mut table = Table::new(self.seeds, choice);
            let taken;
            (taken, items) = items.into_iter().partition(|item| table.accepts(&item.1));
            table.fill(taken, path, &packets);
            self.tables.push(table);
        }
        self.leaf = items.iter().cloned().collect();
        if !self.leaf.is_full(path.is_root()) {
            return;
        }
        self.leaf = Leaf::default();
        if self.bits.is_empty() {
            self.bits = BitVector::build(&items);
            return;
        }
        for (slot, entry) in items {
            self.bits.insert(slot, entry);
        }
    }

    /// Removes an entry. Returns false if it is not here.
    pub fn remove(&mut self, slot: u32, entry: &Entry, path: &Path) -> bool {
        let removed = self.remove_below(slot, entry, path);
        self.len -= usize::from(removed);
        removed
    }

    fn remove_below(&mut self, slot: u32, entry: &Entry, path: &Path) -> bool {
        if is_exact(entry, path) {
            return self.always.remove(slot).is_some();
        }
        if let Some(at) = self.tables.iter().position(|table| table.accepts(entry)) {
            let removed = self.tables[at].remove(slot, entry, path);
            if self.tables[at].len == 0 {
                self.tables.remove(at);
            }
            if removed {
                return true;
            }
        }
        if self.leaf.remove(slot, entry) {
            return true;
        }
        self.remove_from_bits(slot, entry)
    }

    /// Removes an entry from the bit vectors. They return a rule's entries in any order.
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

    /// All entries in and below the node.
    pub fn items(&self, path: &Path) -> Vec<RuleEntry> {
        let mut items: Vec<RuleEntry> = self.always.iter().map(|&slot| (slot, path.entry())).collect();
        items.extend(self.leaf.items());
        items.extend(self.bits.iter().map(|(slot, entry)| (slot, entry.clone())));
        for table in &self.tables {
            for (key, branch) in table.store.iter() {
                items.extend(branch.items(&path.with(table.chunk, table.mask, key)));
            }
        }
        items
    }

    /// Whether the rule `slot` has an entry here without further conditions.
    pub fn has_exact(&self, slot: u32) -> bool {
        self.always.get(slot).is_some()
    }

    /// The rules that every packet at this node matches.
    pub fn always(&self) -> &SortedPages<u32, 512> {
        &self.always
    }

    /// The entries that are compared one by one.
    pub fn leaf(&self) -> &Leaf {
        &self.leaf
    }

    /// The entries in bit vectors.
    pub fn bit_vector(&self) -> &BitVector {
        &self.bits
    }

    pub fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// Whether there are entries outside the tables and the leaf.
    pub fn has_untabled(&self) -> bool {
        !self.always.is_empty() || !self.bits.is_empty()
    }

    /// Adds the hits of some packets for entries outside the tables and the leaf.
    pub fn visit_untabled(&self, packets: &[LookupPacket<'_>], simd: Simd, hits: &mut Vec<Hit>) {
        for slot in self.always.iter() {
            hits.extend(packets.iter().map(|packet| Hit::new(packet.head, *slot)));
        }
        self.bits.classify(packets, simd, |pkt, slot| hits.push(Hit::new(pkt, slot)));
    }

    /// Adds the hits of some packets that satisfy the path to this node.
    #[inline(never)]
    pub fn visit(&self, packets: &[LookupPacket<'_>], simd: Simd, hits: &mut Vec<Hit>) {
        if self.has_untabled() {
            self.visit_untabled(packets, simd, hits);
        }
        if self.leaf.is_empty() && self.tables.is_empty() {
            return;
        }
        for LookupPacket { window, facts, head } in packets {
            let sink = &mut HitSink::new(hits, *head);
            self.leaf.visit(window, *facts, sink);
            for table in &self.tables {
                table.visit(window, *facts, sink);
            }
        }
    }

    /// Whether visiting the node with many packets at once is cheaper than one by one.
    pub fn has_bit_vectors(&self) -> bool {
        !self.bits.is_empty()
    }
}
