//! Updates: rules are added and removed, and the tree is rebuilt.

use std::sync::Arc;

use super::{Classifier, RuleLocation, new_stamp};
use crate::leaf::PreFilter;
use crate::lookup::PacketClasses;
use crate::pattern::{Entry, Pattern, RuleEntry};
use crate::table::{Node, Path, is_exact};

impl Classifier {
    /// Adds many rules and rebuilds the whole tree. It is faster than repeated [`Classifier::insert`] and
    /// yields a better tree.
    pub fn extend(&mut self, rules: impl IntoIterator<Item = (u32, Pattern)>) {
        let mut items = self.root.items(&Path::ROOT);
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
            self.set_location(slot, RuleLocation::Entries(entries));
            self.rules += 1;
        }
        self.predicates.settle();
        self.build(items);
    }

    fn build(&mut self, items: Vec<RuleEntry>) {
        self.root = Arc::new(Node::build(items.clone(), &Path::ROOT, self.seeds));
        self.classes = PacketClasses::default();
        items.iter().for_each(|(_, entry)| self.classes.add(entry));
        self.finish_change();
        self.rules_at_build = self.rules;
        self.changes = 0;
        // A rule may have gained or lost its exact key in a table of the root.
        for (slot, entry) in items {
            let single = match self.locations.get(slot as usize) {
                Some(RuleLocation::Entries(entries)) => entries.len() == 1,
                Some(RuleLocation::Exact(_)) => true,
                Some(RuleLocation::None) | None => false,
            };
            if single {
                let exact = self.exact_hash(&entry).map(RuleLocation::Exact);
                self.set_location(slot, exact.unwrap_or_else(|| RuleLocation::Entries([entry].into())));
            }
        }
    }

    /// Whether so many rules changed since the last rebuild that a rebuilt tree may be faster.
    pub fn is_stale(&self) -> bool {
        self.changes > 64 + self.rules_at_build / 2 || self.predicates.is_stale() || self.members.is_stale()
    }

    /// Returns a rebuilt tree with the same rules. Takes some microseconds per rule.
    pub fn rebuilt(&self) -> Classifier {
        let mut rebuilt = self.clone();
        rebuilt.members = self.members.rebuilt();
        if self.predicates.is_stale() {
            rebuilt.predicates = self.predicates.rebuilt();
        }
        for (id, node) in self.pivots.iter() {
            let path = pivot_path(*id);
            rebuilt.pivots.insert((*id, Arc::new(Node::build(node.items(&path), &path, self.seeds))));
        }
        rebuilt.build(self.root.items(&Path::ROOT));
        rebuilt
    }

    /// Adds a rule under the number `slot`, which must be below 2³¹ and unused. Copies the shared pages on
    /// its path.
    pub fn insert(&mut self, slot: u32, pattern: &Pattern) {
        let mut entries = self.predicates.intern(pattern);
        self.rules += 1;
        self.changes += 1;
        for entry in &entries {
            self.count_readers(entry.chunks(), 1);
            self.classes.add(entry);
        }
        if let [entry] = &entries[..]
            && let Some(hash) = self.exact_hash(entry)
            && let Some(entry) = entries.pop()
        {
            Arc::make_mut(&mut self.root).insert((slot, Arc::new(entry)), &Path::ROOT);
            self.finish_change();
            return self.set_location(slot, RuleLocation::Exact(hash));
        }
        let entries: Arc<[Arc<Entry>]> = entries.into_iter().map(Arc::new).collect();
        for entry in entries.iter() {
            let item = (slot, entry.clone());
            match entry.pivot {
                None => Arc::make_mut(&mut self.root).insert(item, &Path::ROOT),
                Some(id) => self.change_pivot(id, |node, path| node.insert(item, path)),
            }
        }
        self.finish_change();
        self.set_location(slot, RuleLocation::Entries(entries));
    }

    /// Updates what depends on the whole tree. Must be called after each change.
    fn finish_change(&mut self) {
        self.stamp = new_stamp();
        self.members.sync(&self.predicates, self.seeds);
        let (leaf, bits) = (self.root.leaf(), self.root.bit_vector());
        self.pre_filter = PreFilter::new(leaf);
        self.scans_windows = !self.root.has_untabled()
            && self.pre_filter.is_none()
            && match (self.root.tables(), leaf.blocks()) {
                ([], (Some(_), _)) => leaf.chunks() & !1 != 0,
                ([], (None, wide)) => wide.iter().any(|block| block.has_further(u32::MAX)),
                ([table], _) => leaf.is_empty() && table.guard_reader().is_none(),
                _ => false,
            };
        let tables = self.root.tables().iter().fold(0, |bits, table| bits | 1 << table.chunk);
        self.summary_chunks = bits.common_chunks() | leaf.chunks() | tables;
        if self.pre_filter.is_some() || self.is_walk_costly() {
            // The first chunk also shows which packets are heads.
            self.summary_chunks |= 1;
        }
    }

    /// The hash of the key in one of the root's tables that is equivalent to the entry, if there is one.
    fn exact_hash(&self, entry: &Entry) -> Option<u64> {
        let table = self.root.tables().iter().find(|table| table.accepts(entry))?;
        let key = table.key_of(entry);
        let exact = entry.pivot.is_none() && is_exact(entry, &table.path(&Path::ROOT, key));
        exact.then(|| table.store.hashing.hash(key).0)
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

    fn set_location(&mut self, slot: u32, location: RuleLocation) {
        while self.locations.len() <= slot as usize {
            self.locations.push(RuleLocation::None);
        }
        if let Some(at) = self.locations.get_mut(slot as usize) {
            *at = location;
        }
    }

    /// Removes rule `slot`. Returns false, without effect, if there is none.
    pub fn remove(&mut self, slot: u32) -> bool {
        let Some(location) = self.locations.get_mut(slot as usize) else { return false };
        match std::mem::take(location) {
            RuleLocation::None => return false,
            RuleLocation::Exact(hash) => self.remove_exact(slot, hash),
            RuleLocation::Entries(entries) => entries.iter().for_each(|entry| self.remove_entry(slot, entry)),
        }
        self.finish_change();
        self.rules -= 1;
        self.changes += 1;
        true
    }

    fn remove_exact(&mut self, slot: u32, hash: u64) {
        let found = self.root.tables().iter().find_map(|table| {
            let key = table.store.key_of(hash, |branch| branch.has_exact(slot))?;
            Some(table.path(&Path::ROOT, key).entry())
        });
        if let Some(entry) = found {
            self.remove_entry(slot, &entry);
        }
    }

    fn remove_entry(&mut self, slot: u32, entry: &Entry) {
        self.predicates.release(entry.predicates());
        self.count_readers(entry.chunks(), -1);
        let Some(id) = entry.pivot else {
            Arc::make_mut(&mut self.root).remove(slot, entry, &Path::ROOT);
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
}

/// The facts about packets for which a predicate is true.
fn pivot_path(id: u32) -> Path {
    Path { pivot: Some(id), ..Path::ROOT }
}
