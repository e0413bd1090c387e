//! The true predicates of each packet of a batch.

use crate::paged::SortedPages;
use crate::pattern::TruePredicates;
use crate::vector::VECTOR;

/// A set of predicate numbers.
pub(super) type Ids = SortedPages<u32, 256>;

/// The true predicates of each packet of a batch. A worker creates it once; memory is allocated only until it
/// has grown to what rules and traffic need.
#[derive(Clone, Debug)]
pub struct PredicateResults {
    ids: Vec<u32>,
    /// For each packet the start and end of its predicates in `ids`.
    ranges: Box<[(u32, u32); VECTOR]>,
    /// For each predicate and each literal, the epoch in which it was last seen.
    last_seen: [Vec<u32>; 2],
    epoch: [u32; 2],
}

impl Default for PredicateResults {
    fn default() -> Self {
        PredicateResults {
            ids: Vec::new(),
            ranges: Box::new([(0, 0); VECTOR]),
            last_seen: Default::default(),
            epoch: [0; 2],
        }
    }
}

impl PredicateResults {
    /// Clears the results of all packets. Costs nothing if there are none.
    pub fn clear(&mut self) {
        if !self.ids.is_empty() {
            self.ids.clear();
            self.ranges.fill((0, 0));
        }
    }

    /// The true predicates of a packet. Empty if the packet was not inspected.
    #[inline]
    pub fn of_packet(&self, pkt: usize) -> TruePredicates<'_> {
        let (from, to) = self.ranges.get(pkt).copied().unwrap_or_default();
        TruePredicates::new(self.ids.get(from as usize..to as usize).unwrap_or_default())
    }

    /// Whether no predicate is true for any packet.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Replaces the predicates of a packet by those that `find` adds.
    pub(super) fn record(&mut self, pkt: usize, find: impl FnOnce(&mut Scan<'_>)) {
        let from = self.ids.len();
        self.next_epoch(PREDICATES);
        find(&mut Scan(self));
        self.ids[from..].sort_unstable();
        if let Some(of) = self.ranges.get_mut(pkt) {
            *of = (from as u32, self.ids.len() as u32);
        }
    }

    /// Adds predicates that are true for a packet to those that are known.
    pub fn add(&mut self, pkt: usize, found: impl Iterator<Item = u32>) {
        let Some(of) = self.ranges.get_mut(pkt) else { return };
        let from = self.ids.len();
        self.ids.extend_from_within(of.0 as usize..of.1 as usize);
        for id in found {
            // A packet is in few sets.
            if !self.ids[from..].contains(&id) {
                self.ids.push(id);
            }
        }
        self.ids[from..].sort_unstable();
        *of = (from as u32, self.ids.len() as u32);
    }

    fn next_epoch(&mut self, which: usize) {
        self.epoch[which] = self.epoch[which].wrapping_add(1);
        if self.epoch[which] == 0 {
            self.last_seen[which].fill(0);
            self.epoch[which] = 1;
        }
    }

    fn is_first(&mut self, which: usize, number: u32) -> bool {
        let (last_seen, at) = (&mut self.last_seen[which], number as usize);
        if at >= last_seen.len() {
            last_seen.resize((at + 1).next_power_of_two(), 0);
        }
        std::mem::replace(&mut last_seen[at], self.epoch[which]) != self.epoch[which]
    }
}

const PREDICATES: usize = 0;
const LITERALS: usize = 1;

/// Collects the true predicates of one packet.
pub(super) struct Scan<'a>(&'a mut PredicateResults);

impl Scan<'_> {
    /// Marks predicates as true.
    pub fn add(&mut self, ids: &Ids) {
        for id in ids.iter() {
            if self.0.is_first(PREDICATES, *id) {
                self.0.ids.push(*id);
            }
        }
    }

    /// Starts the search of other bytes: literals count as unseen again.
    pub fn start_text(&mut self) {
        self.0.next_epoch(LITERALS);
    }

    /// Whether the literal is seen for the first time in these bytes.
    pub fn is_first(&mut self, literal: u32) -> bool {
        self.0.is_first(LITERALS, literal)
    }
}
