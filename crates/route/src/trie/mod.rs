//! The persistent trie of the FIBs.
//!
//! Theory of operation. Three structures hold the prefixes:
//!
//! * Prefixes of up to [`Address::TOP`] bits are expanded into `tops`, one value per slot.
//! * Prefixes of up to [`Address::ROOT`] bits are expanded into `root`; longer prefixes overwrite shorter
//!   ones. A slot without such a prefix is 0, and `tops` applies.
//! * Longer prefixes are in nodes below the root.
//!
//! A node is indexed by six bits. Prefixes that end in these bits are expanded into its slots. If longer
//! prefixes continue below a slot, its value is the entry of a child node, and the child's *cover* holds
//! the slot's own value. A slot of a node without a prefix is 0, and the nearest cover above applies. A
//! change therefore affects one level only, and changing a default route is as cheap as any change.
//!
//! Nodes have fixed depths (24, 30, 36 bits, …) and exist only where prefixes end or branch. A lookup skips
//! bits on the way to a node, so the node stores them as its key, which the lookup compares.
//!
//! Values are next hops plus one. All data is in pages that clones share and changes copy. Nodes refer to
//! each other by number, so a page copy needs no reference counting.

mod address;
mod arena;
mod array;
mod codes;
mod entry;
mod lookup;
mod node;
mod palette;
mod rows;

use std::sync::Arc;

pub use address::Address;
use array::Array;
use codes::{ROW, Root};
use entry::{NODE, STRIDE, bitmap, block, entry, rank};
use node::{Blocks, COVER, Node, cold_granules, depth};
use rows::Rows;

use crate::hop::NextHopId;

/// Prefixes and their next hops.
#[derive(Clone, Debug)]
pub(crate) struct Trie<A: Address> {
    /// Value of the longest prefix of at most `TOP` bits; never 0.
    tops: Arc<[u32; TOPS]>,
    /// By the first `ROOT` bits: the value of the longest prefix of `TOP` + 1 to `ROOT` bits, or the entry
    /// of a node.
    root: A::Root,
    /// Prefixes of at most `ROOT` bits, indexed by their bits with a leading one.
    short: Rows,
    hot: Blocks,
    cold: Blocks,
    /// Cold blocks by the number of the hot block.
    cold_of: Array,
    len: usize,
    family: std::marker::PhantomData<A>,
}

/// Slots for the shortest prefixes, of either family.
const TOPS: usize = 1 << 12;

/// Value of addresses without a prefix: next hop 0.
const NO_ROUTE: u32 = 1;

impl<A: Address> Default for Trie<A> {
    fn default() -> Self {
        Trie {
            tops: Arc::new([NO_ROUTE; TOPS]),
            root: A::Root::default(),
            short: Rows::default(),
            hot: Blocks::default(),
            cold: Blocks::default(),
            cold_of: Array::default(),
            len: 0,
            family: std::marker::PhantomData,
        }
    }
}

/// Path to an entry: the root slot, then nodes and their slots.
struct Path {
    slot: usize,
    nodes: [(u32, usize); 24],
    len: usize,
}

impl Path {
    fn push(&mut self, entry: u32, slot: usize) {
        self.nodes[self.len] = (entry, slot);
        self.len += 1;
    }

    fn pop(&mut self) -> Option<(u32, usize)> {
        self.len = self.len.checked_sub(1)?;
        Some(self.nodes[self.len])
    }
}

impl<A: Address> Trie<A> {
    /// Number of prefixes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Memory in bytes, shared pages included: read by lookups, and read by changes only.
    pub fn bytes(&self) -> (usize, usize) {
        let read = self.tops.len() * 4 + self.root.bytes() + self.hot.bytes();
        (read, self.short.bytes() + self.cold.bytes() + self.cold_of.bytes())
    }

    /// Adds or replaces a prefix.
    pub fn insert(&mut self, prefix: A, length: u8, hop: NextHopId) {
        self.change(prefix, length, hop.saturating_add(1).min(NODE - 1));
    }

    /// Removes a prefix.
    pub fn remove(&mut self, prefix: A, length: u8) {
        self.change(prefix, length, 0);
    }

    fn change(&mut self, prefix: A, length: u8, hop: u32) {
        let length = u32::from(length).min(A::BITS);
        let before = if length <= A::ROOT {
            self.change_short(prefix, length, hop)
        } else if hop != 0 {
            self.insert_long(prefix.masked(length), length, hop)
        } else {
            self.remove_long(prefix.masked(length), length)
        };
        self.len = self.len + usize::from(hop != 0) - usize::from(before != 0);
    }

    /// Changes a prefix of at most `ROOT` bits. Returns its former value.
    fn change_short(&mut self, prefix: A, length: u32, hop: u32) -> u32 {
        let code = if length == 0 { 1 } else { 1 << length | prefix.first(length) };
        let before = self.short.get(code);
        if before != hop {
            self.short.set(code, hop);
            let (limit, none) = if length <= A::TOP { (1, NO_ROUTE) } else { (2 << A::TOP, 0) };
            let shorter = |code: &usize| Some(code >> 1);
            let value = std::iter::successors(Some(code), shorter)
                .take_while(|code| *code >= limit)
                .map(|code| self.short.get(code))
                .find(|value| *value != 0);
            self.expand(code, value.unwrap_or(none));
        }
        before
    }

    /// Expands a prefix of at most `ROOT` bits into the slots that no longer prefix of at most `ROOT` bits
    /// covers.
    fn expand(&mut self, code: usize, value: u32) {
        let length = code.ilog2();
        if length == A::TOP {
            Arc::make_mut(&mut self.tops)[code - (1 << A::TOP)] = value;
        } else if length + ROW.ilog2() >= A::ROOT {
            let row = ((code << (A::ROOT - length)) - (1 << A::ROOT)) / ROW;
            self.fill_row(row, self.uncovered(code), value);
        } else {
            for code in [2 * code, 2 * code + 1] {
                if self.short.get(code) == 0 {
                    self.expand(code, value);
                }
            }
        }
    }

    /// The slots of a root row that a prefix covers and no longer prefix of at most `ROOT` bits does, as a
    /// bitmap.
    fn uncovered(&self, code: usize) -> u64 {
        if code.ilog2() == A::ROOT {
            return 1 << (code % ROW);
        }
        let halves = [2 * code, 2 * code + 1].into_iter().filter(|code| self.short.get(*code) == 0);
        halves.fold(0, |slots, code| slots | self.uncovered(code))
    }

    /// Sets slots of a root row; for slots with a node, sets the node's cover.
    fn fill_row(&mut self, row: usize, slots: u64, value: u32) {
        let (mut rest, mut open) = (slots, slots);
        while rest != 0 {
            let slot = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let node = self.root.get(row * ROW + slot);
            if node & NODE != 0 {
                self.set_cover(node, value);
                open &= !(1 << slot);
            }
        }
        self.root.fill(row, open, value);
    }

    /// The entry at the end of `path`.
    fn at(&self, path: &Path) -> u32 {
        match path.len.checked_sub(1) {
            Some(last) => self.value(path.nodes[last].0, path.nodes[last].1),
            None => self.root.get(path.slot),
        }
    }

    /// The value of a node's slot.
    fn value(&self, node: u32, slot: usize) -> u32 {
        let (first, word) = self.hot.block(block(node));
        word(A::HEADER + rank(bitmap(first), slot))
    }

    fn key(&self, node: u32) -> A {
        A::get(self.hot.granule(block(node)))
    }

    fn load(&self, node: u32) -> Node<A> {
        let at = block(node);
        let level = (depth::<A>(node) - A::ROOT) / STRIDE;
        Node::load(&self.hot, &self.cold, level, at, self.cold_of.get(at as usize))
    }

    /// Writes a node, replacing `old` if it is not 0, and sets the covers of its children. Returns the
    /// node's entry; `None` if no memory is left.
    fn store(&mut self, node: &Node<A>, old: u32) -> Option<u32> {
        let mut values = node.expanded();
        let mut parents = node.parents;
        while parents != 0 {
            let slot = parents.trailing_zeros() as usize;
            parents &= parents - 1;
            self.set_cover(node.children[slot], values[slot]);
            values[slot] = node.children[slot];
        }
        let (mut hot, mut cold) = ([0; 80], [0; 144]);
        let (hot_len, cold_len) = (node.hot(&values, &mut hot), node.cold(&mut cold));
        let (mut at, mut cold_at) = (block(old), self.cold_of.get(block(old) as usize));
        let hot_now = if at == 0 { 0 } else { Node::<A>::hot_granules(&self.hot, at) };
        let cold_now = if cold_at == 0 { 0 } else { cold_granules(&self.cold, cold_at) };
        let new_cold = if cold_now == Blocks::granules(cold_len) {
            cold_at
        } else {
            self.cold.allocate(Blocks::granules(cold_len))?
        };
        let new_hot = if hot_now == Blocks::granules(hot_len) {
            at
        } else {
            self.hot.allocate(Blocks::granules(hot_len))?
        };
        if new_cold != cold_at && cold_at != 0 {
            self.cold.free(cold_at, cold_now);
        }
        if new_hot != at && at != 0 {
            self.hot.free(at, hot_now);
        }
        (at, cold_at) = (new_hot, new_cold);
        self.hot.write(at)[..hot_len].copy_from_slice(&hot[..hot_len]);
        self.cold.write(cold_at)[..cold_len].copy_from_slice(&cold[..cold_len]);
        self.cold_of.set(at as usize, cold_at);
        Some(entry(node.level, at))
    }

    fn set_cover(&mut self, node: u32, cover: u32) {
        if self.hot.granule(block(node))[COVER] != cover {
            self.hot.write(block(node))[COVER] = cover;
        }
    }

    fn free(&mut self, node: u32) {
        let at = block(node);
        let cold = self.cold_of.get(at as usize);
        self.cold.free(cold, cold_granules(&self.cold, cold));
        self.hot.free(at, Node::<A>::hot_granules(&self.hot, at));
    }

    /// Makes the end of `path`, which holds a node's entry, point to this node.
    fn relink(&mut self, path: &Path, node: u32) {
        if self.at(path) == node {
            return;
        }
        let Some(last) = path.len.checked_sub(1) else { return self.root.set(path.slot, node) };
        let (parent, slot) = path.nodes[last];
        let at = block(parent);
        let word = A::HEADER + rank(bitmap(self.hot.granule(at)), slot);
        if let Some(word) = self.hot.write(at).get_mut(word) {
            *word = node;
        }
    }

    /// Makes the end of `path`, which holds no node's entry, point to a new node. With `node` 0, removes
    /// the entry of the node there, whose cover is `cover`.
    fn link(&mut self, path: &mut Path, node: u32, cover: u32) -> Option<()> {
        let Some((parent, slot)) = path.pop() else {
            self.root.set(path.slot, if node == 0 { cover } else { node });
            return Some(());
        };
        let mut changed = self.load(parent);
        changed.set_child(slot, node);
        self.store_or_remove(path, &changed, parent)
    }

    /// Writes a changed node at the end of `path`, or removes it if no prefix ends or branches in it.
    fn store_or_remove(&mut self, path: &mut Path, node: &Node<A>, old: u32) -> Option<()> {
        if node.codes == 0 && node.parents.count_ones() < 2 {
            self.free(old);
            if node.parents == 0 {
                return self.link(path, 0, node.cover);
            }
            let child = node.children[node.parents.trailing_zeros() as usize];
            self.set_cover(child, node.cover);
            self.relink(path, child);
            return Some(());
        }
        let new = self.store(node, old)?;
        self.relink(path, new);
        Some(())
    }

    /// Descends to the node that a prefix ends in, or to the position where that node belongs.
    fn walk(&self, prefix: A, target: u32) -> (Path, u32) {
        let mut path = Path { slot: prefix.first(A::ROOT), nodes: [(0, 0); 24], len: 0 };
        loop {
            let node = self.at(&path);
            if node & NODE == 0
                || depth::<A>(node) >= target
                || !self.key(node).has_common_prefix(prefix, depth::<A>(node))
            {
                return (path, node);
            }
            path.push(node, prefix.stride_bits(depth::<A>(node)));
        }
    }

    /// Inserts a prefix of more than `ROOT` bits; its other bits are 0. Returns its former value.
    fn insert_long(&mut self, prefix: A, length: u32, hop: u32) -> u32 {
        let level = (length - A::ROOT - 1) / STRIDE;
        let target = A::ROOT + STRIDE * level;
        let (mut path, found) = self.walk(prefix, target);
        let key = prefix.masked(target);
        if found & NODE != 0 && depth::<A>(found) == target && self.key(found) == key {
            let mut node = self.load(found);
            let before = node.set_prefix(node.code(prefix, length), hop);
            self.store_or_remove(&mut path, &node, found);
            return before;
        }
        let mut node = Node::new(key, level, 0);
        node.set_prefix(node.code(prefix, length), hop);
        self.attach(&mut path, node, found);
        0
    }

    /// Adds a new node at the end of `path`. A node there becomes its child or its sibling.
    fn attach(&mut self, path: &mut Path, mut node: Node<A>, found: u32) -> Option<()> {
        if found & NODE == 0 {
            node.cover = found;
            let new = self.store(&node, 0)?;
            return self.link(path, new, found);
        }
        let target = A::ROOT + STRIDE * node.level;
        let (other, cover) = (self.key(found), self.hot.granule(block(found))[COVER]);
        let shared = other.common_prefix_len(node.key);
        if shared >= target {
            node.cover = cover;
            node.set_child(other.stride_bits(target), found);
        } else {
            let new = self.store(&node, 0)?;
            let level = (shared - A::ROOT) / STRIDE;
            let parting = A::ROOT + STRIDE * level;
            let slot = node.key.stride_bits(parting);
            node = Node::new(node.key.masked(parting), level, cover);
            node.set_child(other.stride_bits(parting), found);
            node.set_child(slot, new);
        }
        let new = self.store(&node, 0)?;
        self.relink(path, new);
        Some(())
    }

    /// Removes a prefix of more than `ROOT` bits; its other bits are 0. Returns its former value.
    fn remove_long(&mut self, prefix: A, length: u32) -> u32 {
        let target = A::ROOT + STRIDE * ((length - A::ROOT - 1) / STRIDE);
        let (mut path, found) = self.walk(prefix, target);
        if found & NODE == 0 || depth::<A>(found) != target || self.key(found) != prefix.masked(target) {
            return 0;
        }
        let mut node = self.load(found);
        let before = node.set_prefix(node.code(prefix, length), 0);
        if before != 0 {
            self.store_or_remove(&mut path, &node, found);
        }
        before
    }
}

#[cfg(test)]
mod tests;
