//! The persistent trie under both FIBs.
//!
//! Theory of operation. Prefixes of up to [`Bits::TOP`] bits are painted into `tops`, one number per place; those of up to
//! [`Bits::ROOT`] bits into `root`, longer ones over shorter ones; where nothing was painted, `root` is 0 and `tops` counts.
//! Still longer prefixes live in nodes below the root. A node is indexed by six bits, and prefixes that end in these six bits
//! are painted into its places. Where longer prefixes go on below a place, its value is the entry of the node there, which
//! has in its *cover* what the place itself was painted with. What nothing was painted over in a node is 0, and then the
//! nearest cover above counts. So a change never goes further down than one level, and a change of a default route, under
//! which all others hang, is as cheap as any.
//!
//! A node stands at a fixed depth (24, 30, 36 bits, …) and only where prefixes end or part: a chain of nodes with one child
//! each is none. Since bits are skipped on the way to it, a node has the bits that lead to it as its key, and a lookup
//! compares them.
//!
//! Values are next hops plus one. Everything lies in pages that clones share and a change copies; nodes are numbers, not
//! pointers, so that a copied page needs no counting of references.

mod arena;
mod array;
mod bits;
mod codes;
mod lookup;
mod node;
mod palette;
mod rows;

use std::sync::Arc;

use array::Array;
pub(crate) use bits::Bits;
use codes::{ROW, Root};
use node::{Blocks, COVER, NODE, Node, STRIDE, bitmap, block, cold_granules, depth, entry, rank};
use rows::Rows;

use crate::hop::NextHopId;

/// Prefixes, and what they lead to.
#[derive(Clone, Debug)]
pub(crate) struct Trie<A: Bits> {
    /// What the longest prefix of at most `TOP` bits leads to; never 0.
    tops: Arc<[u32; TOPS]>,
    /// By the first `ROOT` bits: what the longest prefix of `TOP` + 1 to `ROOT` bits leads to, or the entry of a node.
    root: A::Root,
    /// Prefixes of at most `ROOT` bits: by the bits with a one before them.
    short: Rows,
    hot: Blocks,
    cold: Blocks,
    /// Cold blocks by the numbers of hot ones.
    cold_of: Array,
    len: usize,
    family: std::marker::PhantomData<A>,
}

/// Places for the shortest prefixes, of either family.
const TOPS: usize = 1 << 12;

/// What addresses without a prefix lead to: next hop 0.
const NOWHERE: u32 = 1;

impl<A: Bits> Default for Trie<A> {
    fn default() -> Self {
        Trie {
            tops: Arc::new([NOWHERE; TOPS]),
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

/// The way to an entry: the place of the root, then nodes and their places.
struct Path {
    slot: usize,
    nodes: [(u32, usize); 24],
    len: usize,
}

impl Path {
    fn push(&mut self, entry: u32, place: usize) {
        self.nodes[self.len] = (entry, place);
        self.len += 1;
    }

    fn pop(&mut self) -> Option<(u32, usize)> {
        self.len = self.len.checked_sub(1)?;
        Some(self.nodes[self.len])
    }
}

impl<A: Bits> Trie<A> {
    /// Number of prefixes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory, what clones share included: what lookups read, and the rest.
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

    /// A prefix of at most `ROOT` bits. Returns what it led to.
    fn change_short(&mut self, prefix: A, length: u32, hop: u32) -> u32 {
        let code = if length == 0 { 1 } else { 1 << length | prefix.first(length) };
        let before = self.short.get(code);
        if before != hop {
            self.short.set(code, hop);
            let (limit, none) = if length <= A::TOP { (1, NOWHERE) } else { (2 << A::TOP, 0) };
            let shorter = |code: &usize| Some(code >> 1);
            let value = std::iter::successors(Some(code), shorter)
                .take_while(|code| *code >= limit)
                .map(|code| self.short.get(code))
                .find(|value| *value != 0);
            self.paint(code, value.unwrap_or(none));
        }
        before
    }

    /// Paints all of a prefix of at most `ROOT` bits that no longer one of them covers.
    fn paint(&mut self, code: usize, value: u32) {
        let length = code.ilog2();
        if length == A::TOP {
            Arc::make_mut(&mut self.tops)[code - (1 << A::TOP)] = value;
        } else if length + ROW.ilog2() >= A::ROOT {
            let row = ((code << (A::ROOT - length)) - (1 << A::ROOT)) / ROW;
            self.paint_row(row, self.bare(code), value);
        } else {
            for code in [2 * code, 2 * code + 1] {
                if self.short.get(code) == 0 {
                    self.paint(code, value);
                }
            }
        }
    }

    /// The places of a row of the root that a prefix covers and no longer one of at most `ROOT` bits does, a bit each.
    fn bare(&self, code: usize) -> u64 {
        if code.ilog2() == A::ROOT {
            return 1 << (code % ROW);
        }
        let halves = [2 * code, 2 * code + 1].into_iter().filter(|code| self.short.get(*code) == 0);
        halves.fold(0, |places, code| places | self.bare(code))
    }

    /// Paints some places of a row of the root: where nodes are, their covers.
    fn paint_row(&mut self, row: usize, places: u64, value: u32) {
        let (mut rest, mut open) = (places, places);
        while rest != 0 {
            let place = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let node = self.root.get(row * ROW + place);
            if node & NODE != 0 {
                self.set_cover(node, value);
                open &= !(1 << place);
            }
        }
        self.root.fill(row, open, value);
    }

    /// What is found by `path`.
    fn at(&self, path: &Path) -> u32 {
        match path.len.checked_sub(1) {
            Some(last) => self.value(path.nodes[last].0, path.nodes[last].1),
            None => self.root.get(path.slot),
        }
    }

    /// The value of a node's place.
    fn value(&self, node: u32, place: usize) -> u32 {
        let (first, word) = self.hot.block(block(node));
        word(A::HEADER + rank(bitmap(first), place))
    }

    fn key(&self, node: u32) -> A {
        A::get(self.hot.granule(block(node)))
    }

    fn load(&self, node: u32) -> Node<A> {
        let at = block(node);
        let level = (depth::<A>(node) - A::ROOT) / STRIDE;
        Node::load(&self.hot, &self.cold, level, at, self.cold_of.get(at as usize))
    }

    /// Writes a node, in the place of `old` if that is not 0, and the covers of its children. Returns its entry; `None`:
    /// there is no memory for more.
    fn store(&mut self, node: &Node<A>, old: u32) -> Option<u32> {
        let mut values = node.painted();
        let mut parents = node.parents;
        while parents != 0 {
            let place = parents.trailing_zeros() as usize;
            parents &= parents - 1;
            self.set_cover(node.children[place], values[place]);
            values[place] = node.children[place];
        }
        let (mut hot, mut cold) = ([0; 80], [0; 144]);
        let (hot_len, cold_len) = (node.hot(&values, &mut hot), node.cold(&mut cold));
        let (mut at, mut cold_at) = (block(old), self.cold_of.get(block(old) as usize));
        let hot_now = if at == 0 { 0 } else { Node::<A>::hot_granules(&self.hot, at) };
        let cold_now = if cold_at == 0 { 0 } else { cold_granules(&self.cold, cold_at) };
        let new_cold = if cold_now == Blocks::granules(cold_len) {
            cold_at
        } else {
            self.cold.take(Blocks::granules(cold_len))?
        };
        let new_hot = if hot_now == Blocks::granules(hot_len) {
            at
        } else {
            self.hot.take(Blocks::granules(hot_len))?
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

    /// Has the end of `path`, where a node's entry is already, lead to this node.
    fn relink(&mut self, path: &Path, node: u32) {
        if self.at(path) == node {
            return;
        }
        let Some(last) = path.len.checked_sub(1) else { return self.root.set(path.slot, node) };
        let (parent, place) = path.nodes[last];
        let at = block(parent);
        let word = A::HEADER + rank(bitmap(self.hot.granule(at)), place);
        if let Some(word) = self.hot.write(at).get_mut(word) {
            *word = node;
        }
    }

    /// Has the end of `path`, where no node's entry is, lead to a new node; 0: no longer to the node there, whose cover this
    /// was.
    fn link(&mut self, path: &mut Path, node: u32, cover: u32) -> Option<()> {
        let Some((parent, place)) = path.pop() else {
            self.root.set(path.slot, if node == 0 { cover } else { node });
            return Some(());
        };
        let mut changed = self.load(parent);
        changed.set_child(place, node);
        self.settle(path, &changed, parent)
    }

    /// Writes a changed node at the end of `path`, or does away with it if nothing ends or parts there any more.
    fn settle(&mut self, path: &mut Path, node: &Node<A>, old: u32) -> Option<()> {
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

    /// Goes down to the node that a prefix ends in, or to where it should be.
    fn walk(&self, prefix: A, target: u32) -> (Path, u32) {
        let mut path = Path { slot: prefix.first(A::ROOT), nodes: [(0, 0); 24], len: 0 };
        loop {
            let node = self.at(&path);
            if node & NODE == 0
                || depth::<A>(node) >= target
                || !self.key(node).same(prefix, depth::<A>(node))
            {
                return (path, node);
            }
            path.push(node, prefix.six(depth::<A>(node)));
        }
    }

    /// A prefix of more than `ROOT` bits, the others 0. Returns what it led to.
    fn insert_long(&mut self, prefix: A, length: u32, hop: u32) -> u32 {
        let level = (length - A::ROOT - 1) / STRIDE;
        let target = A::ROOT + STRIDE * level;
        let (mut path, found) = self.walk(prefix, target);
        let key = prefix.masked(target);
        if found & NODE != 0 && depth::<A>(found) == target && self.key(found) == key {
            let mut node = self.load(found);
            let before = node.set_prefix(node.code(prefix, length), hop);
            self.settle(&mut path, &node, found);
            return before;
        }
        let mut node = Node::new(key, level, 0);
        node.set_prefix(node.code(prefix, length), hop);
        self.hang(&mut path, node, found);
        0
    }

    /// Puts a new node at the end of `path`, where another one may be, which is then below or beside it.
    fn hang(&mut self, path: &mut Path, mut node: Node<A>, found: u32) -> Option<()> {
        if found & NODE == 0 {
            node.cover = found;
            let new = self.store(&node, 0)?;
            return self.link(path, new, found);
        }
        let target = A::ROOT + STRIDE * node.level;
        let (other, cover) = (self.key(found), self.hot.granule(block(found))[COVER]);
        let shared = other.shared(node.key);
        if shared >= target {
            node.cover = cover;
            node.set_child(other.six(target), found);
        } else {
            let new = self.store(&node, 0)?;
            let level = (shared - A::ROOT) / STRIDE;
            let parting = A::ROOT + STRIDE * level;
            let place = node.key.six(parting);
            node = Node::new(node.key.masked(parting), level, cover);
            node.set_child(other.six(parting), found);
            node.set_child(place, new);
        }
        let new = self.store(&node, 0)?;
        self.relink(path, new);
        Some(())
    }

    /// The same, to be removed.
    fn remove_long(&mut self, prefix: A, length: u32) -> u32 {
        let target = A::ROOT + STRIDE * ((length - A::ROOT - 1) / STRIDE);
        let (mut path, found) = self.walk(prefix, target);
        if found & NODE == 0 || depth::<A>(found) != target || self.key(found) != prefix.masked(target) {
            return 0;
        }
        let mut node = self.load(found);
        let before = node.set_prefix(node.code(prefix, length), 0);
        if before != 0 {
            self.settle(&mut path, &node, found);
        }
        before
    }
}

#[cfg(test)]
mod tests;
