//! What there is to know about the tree, for people.

use crate::leaf::Leaf;
use crate::masked::Masked;
use crate::node::Node;
use crate::owner::Owner;
use crate::pattern::{Entry, Test};
use crate::store::Occupancy;
use crate::table::Table;

/// How entries are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structure {
    /// A hash table of the bits that the mask leaves.
    Hash,
    /// Compared one by one.
    Leaf,
    /// Bit vectors over the values of fields.
    Bits,
    /// Matched by every packet that comes there.
    Always,
    /// Found through a predicate that is true of the packet: what follows, one level deeper, is that predicate's.
    Predicate(u32),
}

/// What there is to know about one part of the tree.
#[derive(Clone, Debug)]
pub struct TableInfo {
    /// Nodes above: 0 for what every packet visits.
    pub depth: usize,
    /// What it is.
    pub structure: Structure,
    /// The mask of a hash table; the key is zero.
    pub mask: Masked,
    /// Entries in and below it: one rule may have several.
    pub entries: usize,
    /// Entries in the longest row that is compared one by one.
    pub longest: usize,
    /// Keys that lead to nodes, whose parts follow one level deeper.
    pub nodes: usize,
    /// Keys, lanes and memory: with rows that keys lead to, without nodes.
    pub occupancy: Occupancy,
}

impl TableInfo {
    fn new(depth: usize, structure: Structure, entries: usize, bytes: usize) -> TableInfo {
        TableInfo {
            depth,
            structure,
            mask: Masked::ANY,
            entries,
            longest: 0,
            nodes: 0,
            occupancy: Occupancy { bytes, ..Occupancy::default() },
        }
    }
}

/// Bytes of memory of an entry.
fn bytes_of(entry: &Entry) -> usize {
    let tests = |test: &Test| match test {
        Test::Within { ranges, .. } => ranges.bytes(),
        Test::Clause { .. } => 0,
    };
    size_of::<Entry>() + std::mem::size_of_val(&*entry.tests) + entry.tests.iter().map(tests).sum::<usize>()
}

fn bytes_of_leaf(leaf: &Leaf) -> usize {
    leaf.bytes() + leaf.items().map(|(_, entry)| bytes_of(&entry)).sum::<usize>()
}

/// Appends what there is to know about a node and all below it.
pub(crate) fn describe(node: &Node, depth: usize, infos: &mut Vec<TableInfo>) {
    let (always, rest, bits) = node.rest();
    if !always.is_empty() {
        infos.push(TableInfo::new(depth, Structure::Always, always.len(), always.bytes()));
    }
    if !rest.is_empty() {
        let info = TableInfo::new(depth, Structure::Leaf, rest.len(), bytes_of_leaf(rest));
        infos.push(TableInfo { longest: rest.len(), ..info });
    }
    if bits.len() > 0 {
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
    info.mask = Masked::ANY.with(table.chunk, table.mask, 0);
    info.occupancy = table.store.occupancy();
    infos.push(info);
    for (_, owner) in table.store.iter() {
        match owner {
            Owner::Free | Owner::One(_) => {}
            Owner::Same(slots) => infos[at].occupancy.bytes += size_of_val(&*slots),
            Owner::Leaf(leaf) => {
                infos[at].longest = infos[at].longest.max(leaf.len());
                infos[at].occupancy.bytes += bytes_of_leaf(&leaf);
            }
            Owner::Node(node) => {
                infos[at].nodes += 1;
                infos[at].occupancy.bytes += size_of::<Node>();
                describe(&node, depth + 1, infos);
            }
        }
    }
}

/// Appends what there is to know about the entries that are found through a predicate.
pub(crate) fn describe_pivot(id: u32, node: &Node, infos: &mut Vec<TableInfo>) {
    infos.push(TableInfo::new(0, Structure::Predicate(id), node.len(), size_of::<Node>()));
    describe(node, 1, infos);
}
