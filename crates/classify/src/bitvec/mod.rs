//! Entries that masks do not tell apart: ranges, inequalities, negations.
//!
//! Theory of operation. Lakshman and Stiliadis' bit vectors ("High-speed policy-based packet forwarding", 1998): in each
//! dimension (a field) the packet's value selects a row of bits, one for each entry, that says which entries take that
//! value; what is set in all rows are the candidates ([`dim`]). The dimensions that leave fewest come first, and the
//! first empty result ends it. Candidates that the dimensions do not say all of are looked at in full, so that a
//! dimension may take more than the entry does and not every field needs one ([`choose`]).
//!
//! Rows have no more than [`row::LANES`] bits; where there are more entries there are several leaves. An entry
//! that comes or goes changes one leaf, and copies those dimensions that it is not indifferent to if a clone shares them.

mod choose;
mod dim;
mod row;

use std::sync::Arc;

use mmb_packet::Window;

use crate::masked::{self, Masked};
use crate::pattern::{Entry, Facts};
use dim::{Dim, Found, Takes};
use row::{BLOCK, LANES, Lanes};

/// A growing leaf's dimensions are chosen anew at each power of two up to this many entries.
const RECONSIDER: usize = 256;

/// So many dimensions are looked at before it is asked whether any entry is left.
const GROUP: usize = 4;

/// Entries by what they take in each dimension. Clones share everything.
#[derive(Clone, Debug, Default)]
pub(crate) struct BitVector {
    leaves: Vec<Arc<Leaf>>,
}

#[derive(Clone, Debug, Default)]
struct Leaf {
    /// Slots by lane; what is not in `used` means nothing.
    slots: Vec<u32>,
    lanes: Vec<Option<Arc<Lane>>>,
    used: Lanes,
    len: usize,
    dims: Vec<Dim>,
    /// What all entries' covers ask for, or less; and the same in the form that is quicker to compare.
    common: Masked,
    common_test: masked::Test,
    /// Entries of which that and the dimensions say all.
    decided: Lanes,
}

/// An entry, with its cover in the form that is quicker to compare.
#[derive(Debug)]
struct Lane {
    cover: masked::Test,
    entry: Arc<Entry>,
}

impl BitVector {
    /// A structure for these entries; each with its rule's slot.
    pub fn build(entries: &[(u32, Arc<Entry>)]) -> BitVector {
        let mut vector = BitVector::default();
        for part in entries.chunks(LANES) {
            let mut leaf = Leaf::new(part);
            for (slot, entry) in part {
                if !leaf.has_room(entry) {
                    vector.leaves.push(Arc::new(std::mem::replace(&mut leaf, Leaf::new(part))));
                }
                leaf.insert(*slot, entry.clone());
            }
            vector.leaves.push(Arc::new(leaf));
        }
        vector
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.leaves.iter().map(|leaf| leaf.len).sum()
    }

    /// Adds an entry of a rule.
    pub fn insert(&mut self, slot: u32, entry: Arc<Entry>) {
        let room = self.leaves.iter().position(|leaf| leaf.has_room(&entry));
        let at = room.unwrap_or_else(|| {
            self.leaves.push(Arc::new(Leaf::new(&[(slot, entry.clone())])));
            self.leaves.len() - 1
        });
        let leaf = Arc::make_mut(&mut self.leaves[at]);
        leaf.insert(slot, entry);
        if leaf.len.is_power_of_two() && leaf.len <= RECONSIDER {
            leaf.reconsider();
        }
    }

    /// Takes out the entry of a rule, one of them if there are several; None if there is none.
    pub fn remove(&mut self, slot: u32) -> Option<Arc<Entry>> {
        let found = self.leaves.iter().enumerate().find_map(|(at, leaf)| Some((at, leaf.find(slot)?)));
        let (at, lane) = found?;
        let leaf = Arc::make_mut(&mut self.leaves[at]);
        let entry = leaf.remove(lane);
        if leaf.len == 0 {
            self.leaves.remove(at);
        }
        entry
    }

    /// Calls `hit` with the slot of each entry that matches the packet; pivots are not looked at.
    #[inline]
    pub fn classify(&self, window: &Window, facts: Facts<'_>, mut hit: impl FnMut(u32)) {
        for leaf in &self.leaves {
            leaf.classify(window, facts, &mut hit);
        }
    }

    /// All entries with their rules' slots, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Arc<Entry>)> {
        self.leaves.iter().flat_map(|leaf| {
            let lanes = leaf.slots.iter().zip(&leaf.lanes);
            lanes.filter_map(|(slot, lane)| Some((*slot, &lane.as_ref()?.entry)))
        })
    }

    /// Bytes of memory, shares with clones included; without the entries.
    pub fn bytes(&self) -> usize {
        let leaf = |leaf: &Arc<Leaf>| {
            let lanes = leaf.lanes.capacity() * (size_of::<Lane>() + 2 * size_of::<usize>());
            size_of::<Leaf>() + lanes + leaf.dims.iter().map(|dim| dim.bytes()).sum::<usize>()
        };
        self.leaves.iter().map(leaf).sum()
    }
}

impl Leaf {
    /// An empty leaf for such entries.
    fn new(entries: &[(u32, Arc<Entry>)]) -> Leaf {
        let sample: Vec<&Entry> = entries.iter().map(|(_, entry)| &**entry).collect();
        let dims = choose::dimensions(&sample).into_iter();
        Leaf { dims: dims.map(Dim::new).collect(), ..Leaf::default() }
    }

    fn has_room(&self, entry: &Entry) -> bool {
        self.len < LANES && self.dims.iter().all(|dim| dim.has_room(&Takes::of(entry, &dim.field)))
    }

    fn insert(&mut self, slot: u32, entry: Arc<Entry>) {
        let Some(lane) = self.used.first_free() else { return };
        for dim in &mut self.dims {
            let takes = Takes::of(&entry, &dim.field);
            dim.insert(lane, &takes);
        }
        if lane >= self.lanes.len() {
            self.lanes.resize(lane + 1, None);
            self.slots.resize(lane + 1, 0);
        }
        self.slots[lane] = slot;
        self.lanes[lane] = Some(Arc::new(Lane { cover: masked::Test::new(&entry.cover), entry }));
        self.used.set(lane, true);
        self.len += 1;
        self.decide(lane);
    }

    /// Finds out whether the dimensions say all of an entry; of all entries, if it asks for less than they have in common.
    fn decide(&mut self, lane: usize) {
        let mut lanes = lane..lane + 1;
        if let Some(Some(new)) = self.lanes.get(lane) {
            let common = if self.len == 1 { new.entry.cover } else { self.common.shared(&new.entry.cover) };
            if common != self.common {
                (self.common, self.common_test) = (common, masked::Test::new(&common));
                lanes = 0..self.lanes.len();
            }
        }
        for lane in lanes {
            if let Some(Some(one)) = self.lanes.get(lane) {
                let fields = self.dims.iter().map(|dim| &dim.field);
                self.decided.set(lane, dim::is_decided(&one.entry, fields, &self.common));
            }
        }
    }

    /// Chooses the dimensions anew for the entries that there are.
    fn reconsider(&mut self) {
        let lanes = self.slots.iter().zip(&self.lanes);
        let entry = |(slot, lane): (&u32, &Option<Arc<Lane>>)| Some((*slot, lane.as_ref()?.entry.clone()));
        let entries: Vec<_> = lanes.filter_map(entry).collect();
        let mut leaf = Leaf::new(&entries);
        if leaf.dims.iter().map(|dim| dim.field).eq(self.dims.iter().map(|dim| dim.field)) {
            return;
        }
        for (slot, entry) in entries {
            leaf.insert(slot, entry);
        }
        *self = leaf;
    }

    fn find(&self, slot: u32) -> Option<usize> {
        self.slots.iter().zip(&self.lanes).position(|(other, lane)| *other == slot && lane.is_some())
    }

    fn remove(&mut self, lane: usize) -> Option<Arc<Entry>> {
        let entry = self.lanes.get_mut(lane)?.take()?.entry.clone();
        for dim in &mut self.dims {
            let takes = Takes::of(&entry, &dim.field);
            dim.remove(lane, &takes);
        }
        self.used.set(lane, false);
        self.len -= 1;
        Some(entry)
    }

    #[inline]
    fn classify(&self, window: &Window, facts: Facts<'_>, hit: &mut impl FnMut(u32)) {
        if !self.common_test.holds(window) {
            return;
        }
        let blocks = self.lanes.len().div_ceil(BLOCK);
        let mut candidates = Lanes::default();
        candidates.blocks_mut(blocks).copy_from_slice(&self.used.blocks()[..blocks]);
        for group in self.dims.chunks(GROUP) {
            // All rows first, so that the memory accesses overlap.
            let mut found = [Found::all(&self.used); GROUP];
            for (found, dim) in found.iter_mut().zip(group) {
                *found = dim.find(window);
            }
            let found = &found[..group.len()];
            let mut none = true;
            for (block, lanes) in candidates.blocks_mut(blocks).iter_mut().enumerate() {
                *lanes = found.iter().fold(*lanes, |lanes, found| found.filter(block, lanes));
                none &= lanes.is_empty();
            }
            if none {
                return;
            }
        }
        candidates.each(blocks, |lane| {
            let holds = |found: &Lane| found.cover.holds(window) && found.entry.passes(window, facts);
            if self.decided.contains(lane) || self.lanes[lane].as_deref().is_some_and(holds) {
                hit(self.slots[lane]);
            }
        });
    }
}

#[cfg(test)]
mod tests;
