//! Entries that masks do not tell apart: ranges, inequalities, negations.
//!
//! Theory of operation. Lakshman and Stiliadis' bit vectors ("High-speed policy-based packet forwarding", 1998): in each
//! dimension (a field) the packet's value selects a row of bits, one for each entry, that says which entries take that
//! value; what is set in all rows are the candidates ([`dim`]). The dimensions that leave fewest come first, and an
//! empty result ends it for a packet. Candidates that the dimensions do not say all of are looked at in full, so that a
//! dimension may take more than the entry does and not every field needs one ([`choose`]).
//!
//! Packets go through some at a time, dimension by dimension: so the memory accesses of all of them overlap, a dimension's
//! bounds and rows stay near, and no branch depends on a single packet until candidates are left.
//!
//! Rows have no more than [`row::LANES`] bits; where there are more entries there are several leaves. An entry
//! that comes or goes changes one leaf, and copies those dimensions that it is not indifferent to if a clone shares them.

mod choose;
mod dim;
mod row;
mod takes;

use std::sync::Arc;

use mmb_packet::Window;

use crate::masked::{self, Masked};
use crate::pattern::{Entry, Facts};
use crate::summary::Summary;
use dim::Dim;
use row::{BLOCK, BLOCKS, Block, LANES, Lanes};
use takes::{Takes, is_decided};

/// A growing leaf's dimensions are chosen anew at each power of two up to this many entries.
const RECONSIDER: usize = 256;

/// So many packets go through the dimensions together.
const TOGETHER: usize = 16;

/// Fewer packets are not asked what they have in common.
const FEW: usize = 4;

/// A packet to be looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet<'a> {
    pub window: &'a Window,
    pub facts: Facts<'a>,
    /// Its number among the heads.
    pub head: u16,
}

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
    /// The chunks, as bits, that the dimensions read.
    asked: u8,
    /// What all entries' covers ask for, or less; and the same in the form that is quicker to compare.
    common: Masked,
    common_test: masked::Test,
    /// The dimensions, as bits, whose field all packets have that this is true of.
    sure: u32,
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

    /// The chunks, as bits, that [`BitVector::is_out_of_question`] wants to know about.
    pub fn asked(&self) -> u8 {
        self.leaves.iter().fold(0, |chunks, leaf| chunks | leaf.common.chunks())
    }

    /// Whether no packet of a vector can match.
    pub fn is_out_of_question(&self, summary: &Summary) -> bool {
        self.leaves.iter().all(|leaf| summary.excludes_cover(&leaf.common))
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

    /// Calls `hit` with the head of each packet and the slot of each entry that it matches; pivots are not looked at.
    #[inline]
    pub fn classify(&self, packets: &[Packet<'_>], mut hit: impl FnMut(u16, u32)) {
        if self.leaves.is_empty() {
            return;
        }
        if packets.len() == 1 {
            for leaf in &self.leaves {
                leaf.classify(packets, &leaf.all(), &mut [Block::EMPTY; BLOCKS], &mut hit);
            }
            return;
        }
        let mut scratch = [Block::EMPTY; BLOCKS * TOGETHER];
        for leaf in &self.leaves {
            let Some(start) = leaf.start(packets) else { continue };
            for packets in packets.chunks(TOGETHER) {
                leaf.classify(packets, &start, &mut scratch, &mut hit);
            }
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

/// Where some packets start: what is left of a leaf's entries, and the dimensions, as bits, that have been looked at.
struct Start {
    lanes: Lanes,
    done: u32,
}

impl Leaf {
    /// An empty leaf for such entries.
    fn new(entries: &[(u32, Arc<Entry>)]) -> Leaf {
        let sample: Vec<&Entry> = entries.iter().map(|(_, entry)| &**entry).collect();
        let fields = choose::dimensions(&sample);
        let asked = fields.iter().fold(0, |chunks, field| chunks | field.chunks());
        Leaf { dims: fields.into_iter().map(Dim::new).collect(), asked, ..Leaf::default() }
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
                let is_sure = |dim: &Dim| common.and(&dim.field.present.masked()) == Some(common);
                self.sure = self.dims.iter().rev().fold(0, |bits, dim| bits << 1 | u32::from(is_sure(dim)));
                lanes = 0..self.lanes.len();
            }
        }
        for lane in lanes {
            if let Some(Some(one)) = self.lanes.get(lane) {
                let fields = self.dims.iter().map(|dim| &dim.field);
                self.decided.set(lane, is_decided(&one.entry, fields, &self.common));
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

    /// Blocks that have lanes.
    fn blocks(&self) -> usize {
        self.lanes.len().div_ceil(BLOCK)
    }

    /// Every entry, nothing looked at.
    fn all(&self) -> Start {
        Start { lanes: self.used.clone(), done: 0 }
    }

    /// Looks once for all at those dimensions in which some packets do not differ: many fields (lifetime, class, length) are
    /// the same in most packets that come together. None: no entry is left.
    fn start(&self, packets: &[Packet<'_>]) -> Option<Start> {
        let mut start = self.all();
        if packets.len() < FEW {
            return Some(start);
        }
        let differ = differ(packets, self.asked);
        let blocks = self.blocks();
        for (at, dim) in self.dims.iter().enumerate() {
            if !dim.tells_apart(&differ) {
                let (mut which, mut interval) = ([0], [0]);
                dim.find::<false>(packets, &which, &mut interval);
                start.done |= 1 << at;
                if dim.filter::<false>(&interval, &mut which, start.lanes.blocks_mut(), blocks) == 0 {
                    return None;
                }
            }
        }
        Some(start)
    }

    /// See [`BitVector::classify`]; for up to [`TOGETHER`] packets, with room for their candidates.
    #[inline(always)]
    fn classify(
        &self,
        packets: &[Packet<'_>],
        start: &Start,
        candidates: &mut [Block],
        hit: &mut impl FnMut(u16, u32),
    ) {
        let blocks = self.blocks();
        let used = &start.lanes.blocks()[..blocks];
        let (mut which, mut intervals, mut n) = ([0; TOGETHER], [0; TOGETHER], 0);
        for (at, packet) in packets.iter().enumerate().take(TOGETHER) {
            candidates[at * blocks..][..blocks].copy_from_slice(used);
            which[n] = at as u8;
            n += usize::from(self.common_test.holds(packet.window));
        }
        for (at, dim) in self.dims.iter().enumerate() {
            if n == 0 {
                return;
            }
            if start.done >> at & 1 == 1 {
                continue;
            }
            let (which, intervals) = (&mut which[..n], &mut intervals[..n]);
            n = if self.sure >> at & 1 == 1 {
                dim.find::<true>(packets, which, intervals);
                dim.filter::<true>(intervals, which, candidates, blocks)
            } else {
                dim.find::<false>(packets, which, intervals);
                dim.filter::<false>(intervals, which, candidates, blocks)
            };
        }
        for at in which[..n].iter().map(|at| usize::from(*at)) {
            let Packet { window, facts, head } = packets[at];
            row::each(&candidates[at * blocks..][..blocks], |lane| {
                let holds = |found: &Lane| found.cover.holds(window) && found.entry.passes(window, facts);
                if self.decided.contains(lane) || self.lanes[lane].as_deref().is_some_and(holds) {
                    hit(head, self.slots[lane]);
                }
            });
        }
    }
}

/// The bits of some chunks (bits) in which packets differ from each other.
fn differ(packets: &[Packet<'_>], chunks: u8) -> Window {
    let mut differ = Window::default();
    let Some(Packet { window: first, .. }) = packets.first() else { return differ };
    for (chunk, differ) in differ.chunk.iter_mut().enumerate().filter(|(chunk, _)| chunks & 1 << chunk != 0) {
        *differ = packets.iter().fold(0, |any, packet| any | packet.window.chunk[chunk] ^ first.chunk[chunk]);
    }
    differ
}

#[cfg(test)]
mod tests;
