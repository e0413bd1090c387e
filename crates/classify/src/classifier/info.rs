//! Statistics of the tree, for operators.

use super::Classifier;
use crate::pattern::{Entry, MaskedKey, RuleEntry, Test};
use crate::table::{Branch, Node, Occupancy, Table};

/// How entries are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structure {
    /// A hash table.
    Hash,
    /// Entries that are compared one by one.
    Leaf,
    /// Bit vectors over the values of fields.
    Bits,
    /// Entries that every packet at this node matches.
    Always,
    /// Entries that are found through a true predicate. The next parts, one level deeper, belong to it.
    Predicate(u32),
}

/// Statistics of one part of the tree.
#[derive(Clone, Debug)]
pub struct TableInfo {
    /// Number of nodes above; 0 for the root's parts.
    pub depth: usize,
    /// The kind of this part.
    pub structure: Structure,
    /// The mask of a hash table; the key is zero.
    pub mask: MaskedKey,
    /// Entries in and below this part. A rule may have several entries.
    pub entries: usize,
    /// Length of the longest row of entries that are compared one by one.
    pub longest: usize,
    /// Number of keys that lead to nodes. Their parts follow one level deeper.
    pub nodes: usize,
    /// Keys, lanes and memory, including leaves, without nodes below.
    pub occupancy: Occupancy,
}

impl TableInfo {
    fn new(depth: usize, structure: Structure, entries: usize, bytes: usize) -> TableInfo {
        TableInfo {
            depth,
            structure,
            mask: MaskedKey::ANY,
            entries,
            longest: 0,
            nodes: 0,
            occupancy: Occupancy { bytes, ..Occupancy::default() },
        }
    }
}

impl Classifier {
    /// Statistics of all parts of the tree, each before the parts below it. Walks the whole tree.
    pub fn tables(&self) -> impl Iterator<Item = TableInfo> {
        let mut infos = Vec::new();
        describe(&self.root, 0, &mut infos);
        for (id, node) in self.pivots.iter() {
            describe_pivot(*id, node, &mut infos);
        }
        infos.into_iter()
    }

    /// Bytes of memory, including memory shared with clones. Walks the whole tree.
    pub fn bytes(&self) -> usize {
        self.locations.bytes()
            + self.predicates.bytes()
            + self.members.bytes()
            + self.tables().map(|info| info.occupancy.bytes).sum::<usize>()
    }
}

/// Bytes of memory of an entry.
fn bytes_of(entry: &Entry) -> usize {
    let tests = |test: &Test| match test {
        Test::InRanges { ranges, .. } => ranges.bytes(),
        Test::Clause { .. } => 0,
    };
    size_of::<Entry>()
        + entry.cover_bytes()
        + std::mem::size_of_val(&*entry.tests)
        + entry.tests.iter().map(tests).sum::<usize>()
}

fn bytes_of_items(items: impl Iterator<Item = RuleEntry>) -> usize {
    items.map(|(_, entry)| bytes_of(&entry)).sum()
}

/// Appends the statistics of a node and everything below it.
pub(crate) fn describe(node: &Node, depth: usize, infos: &mut Vec<TableInfo>) {
    let (always, leaf, bits) = (node.always(), node.leaf(), node.bit_vector());
    if !always.is_empty() {
        infos.push(TableInfo::new(depth, Structure::Always, always.len(), always.bytes()));
    }
    if !leaf.is_empty() {
        let info =
            TableInfo::new(depth, Structure::Leaf, leaf.len(), leaf.bytes() + bytes_of_items(leaf.items()));
        infos.push(TableInfo { longest: leaf.len(), ..info });
    }
    if !bits.is_empty() {
        let entries: usize = bits.iter().map(|(_, entry)| bytes_of(entry)).sum();
        infos.push(TableInfo::new(depth, Structure::Bits, bits.len(), bits.bytes() + entries));
    }
    for table in node.tables() {
        describe_table(table, depth, infos);
    }
}

fn describe_table(table: &Table, depth: usize, infos: &mut Vec<TableInfo>) {
    let at = infos.len();
    let mut info = TableInfo::new(depth, Structure::Hash, table.len, 0);
    info.mask = MaskedKey::ANY.with(table.chunk, table.mask, 0);
    info.occupancy = table.store.occupancy();
    info.occupancy.bytes += table.guard_bytes();
    infos.push(info);
    for (_, branch) in table.store.iter() {
        match branch {
            Branch::Free | Branch::Rule(_) => {}
            Branch::Rules(slots) => infos[at].occupancy.bytes += size_of_val(&*slots),
            Branch::Leaf(leaf) => {
                infos[at].longest = infos[at].longest.max(leaf.len());
                infos[at].occupancy.bytes += leaf.bytes() + bytes_of_items(leaf.items());
            }
            Branch::Node(node) => {
                infos[at].nodes += 1;
                infos[at].occupancy.bytes += size_of::<Node>();
                describe(&node, depth + 1, infos);
            }
        }
    }
}

/// Appends the statistics of the entries that are found through a predicate.
pub(crate) fn describe_pivot(id: u32, node: &Node, infos: &mut Vec<TableInfo>) {
    infos.push(TableInfo::new(0, Structure::Predicate(id), node.len(), size_of::<Node>()));
    describe(node, 1, infos);
}
