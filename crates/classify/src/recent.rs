//! What was found for recent flows.
//!
//! Theory of operation. Packets of a flow agree in the first chunk of the window: addresses, ports, protocol, input
//! port. If rules read nothing else, what matched the flow's last packet matches the next, so that a lookup here spares
//! the walk through the tree: a cache in front of the classifier, as Open vSwitch has them (Pfaff et al., "The design and
//! implementation of Open vSwitch", NSDI 2015, section 4.2). A flow is here what no rule tells apart ([`crate::alike`]):
//! connections that follow each other between two hosts mostly are one.
//!
//! The cache belongs to one worker. A flow chooses a set of two lines; a line says where in a ring of slots the
//! flow's hits stand, as a count of all slots ever written, so that what the ring has overwritten is known by its age.
//! New lines push older ones out. A classifier that changes gets another stamp, and lines of an earlier stamp are void.
//!
//! Traffic whose flows do not come again (scans, floods) makes a cache a burden. So the cache counts: when too few
//! lookups find something it rests, and tries again later. In front of a tree that is cheap to walk it is not used.

use std::hint::select_unpredictable;

use mmb_packet::prefetch;

use crate::hash::Seeds;

/// Sets: room for twice as many flows, 1 MiB.
const SETS: usize = 1 << 14;
/// Slots in the ring: 1 MiB.
const RING: usize = 1 << 18;
/// Most hits of a flow that is worth a line.
const LONGEST: usize = 64;
/// Vectors of a trial, the first half of which only fills the lines …
const TRIAL: u32 = 512;
/// … and of a rest after one in which fewer than one lookup in [`WORTH`] found something.
const REST: u32 = 8192;
const WORTH: u32 = 4;

/// A flow.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    flow: u128,
    /// Where its hits begin, in slots written before them.
    at: u64,
    /// Of which stamp it is; 0: none.
    epoch: u32,
    len: u16,
}

/// What is known of a flow: where its hits stand in the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    at: u32,
    len: u16,
}

impl Known {
    /// Nothing is.
    pub const NOTHING: Known = Known { at: 0, len: u16::MAX };

    /// Whether anything is.
    #[inline(always)]
    pub fn is_known(self) -> bool {
        self.len <= LONGEST as u16
    }

    /// From where to where.
    #[inline(always)]
    pub fn run(self) -> (usize, usize) {
        (self.at as usize, self.at as usize + usize::from(self.len))
    }
}

/// The two flows of a hash: a cache line.
#[repr(align(64))]
#[derive(Clone, Copy, Debug, Default)]
struct Set([Line; 2]);

/// Whether looking up pays.
#[derive(Clone, Copy, Debug)]
enum Mode {
    Trial { vectors: u32, looked: u32, found: u32 },
    Rest { vectors: u32 },
}

const NEW_TRIAL: Mode = Mode::Trial { vectors: 0, looked: 0, found: 0 };

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Recent {
    /// Empty until it is first used.
    sets: Vec<Set>,
    ring: Vec<u32>,
    written: u64,
    stamp: u64,
    epoch: u32,
    mode: Mode,
}

impl Default for Recent {
    fn default() -> Self {
        Recent { sets: Vec::new(), ring: Vec::new(), written: 0, stamp: 0, epoch: 0, mode: NEW_TRIAL }
    }
}

impl Recent {
    /// Whether to look up this vector's flows, in a classifier of this stamp.
    pub fn begin(&mut self, stamp: u64) -> bool {
        if let Mode::Rest { vectors } = &mut self.mode {
            *vectors -= 1;
            if *vectors == 0 {
                self.mode = NEW_TRIAL;
            }
            return false;
        }
        if self.sets.is_empty() {
            self.sets = vec![Set::default(); SETS];
            self.ring = vec![0; RING];
        }
        if stamp != self.stamp {
            self.stamp = stamp;
            self.epoch = self.epoch.wrapping_add(1);
            if self.epoch == 0 {
                self.sets.fill(Set::default());
                self.epoch = 1;
            }
        }
        true
    }

    /// The set of a flow, which is brought close.
    #[inline(always)]
    pub fn set(&self, seeds: Seeds, flow: u128) -> u16 {
        let set = set_of(seeds, flow);
        prefetch::read(&self.sets[set]);
        set as u16
    }

    /// What is known of a flow, where its hits are in [`Recent::hits`] until something else is remembered; without a branch, since which line has it is hard to predict.
    #[inline(always)]
    pub fn find(&self, set: u16, flow: u128) -> Known {
        let known = |line: &Line| {
            let is_it = (line.flow == flow)
                & (line.epoch == self.epoch)
                & (self.written - line.at <= (RING - LONGEST) as u64);
            select_unpredictable(
                is_it,
                Known { at: line.at as u32 % RING as u32, len: line.len },
                Known::NOTHING,
            )
        };
        let Set([first, second]) = &self.sets[usize::from(set)];
        let (first, second) = (known(first), known(second));
        let found = select_unpredictable(first.is_known(), first, second);
        prefetch::read(&self.ring[found.at as usize % RING]);
        found
    }

    /// The hits of all flows that are known.
    pub fn hits(&self) -> &[u32] {
        &self.ring
    }

    /// To be told how many flows were looked up and found.
    pub fn judge(&mut self, looked: u32, found: u32) {
        let Mode::Trial { vectors, looked: all, found: good } = &mut self.mode else { return };
        *vectors += 1;
        if *vectors > TRIAL / 2 {
            *all += looked;
            *good += found;
        }
        if *vectors == TRIAL {
            let worth = *good >= *all / WORTH;
            self.mode = if worth { NEW_TRIAL } else { Mode::Rest { vectors: REST } };
        }
    }

    /// Remembers what was found for a flow.
    pub fn remember(&mut self, seeds: Seeds, flow: u128, slots: &[u32], others: &[u32]) {
        let len = slots.len() + others.len();
        if len > LONGEST || self.sets.is_empty() {
            return;
        }
        let mut at = self.written as usize % RING;
        if at + LONGEST > RING {
            self.written += (RING - at) as u64;
            at = 0;
        }
        self.ring[at..at + slots.len()].copy_from_slice(slots);
        self.ring[at + slots.len()..at + len].copy_from_slice(others);
        let line = Line { flow, at: self.written, epoch: self.epoch, len: len as u16 };
        let Set(lines) = &mut self.sets[set_of(seeds, flow)];
        *lines = [line, lines[0]];
        self.written += len as u64;
    }
}

fn set_of(seeds: Seeds, flow: u128) -> usize {
    (seeds.hash(flow).0 >> 20) as usize % SETS
}

const _: () = assert!(SETS <= 1 << 16 && size_of::<Set>() == 64);

#[cfg(test)]
mod tests {
    use super::*;

    /// What is known of one flow.
    fn recall(recent: &mut Recent, seeds: Seeds, flow: u32) -> Option<Vec<u32>> {
        let known = recent.find(recent.set(seeds, flow.into()), flow.into());
        recent.judge(1, known.is_known().into());
        let (from, to) = known.run();
        known.is_known().then(|| recent.hits()[from..to].to_vec())
    }

    #[test]
    fn recalls_what_it_was_told_until_the_rules_change() {
        let (mut recent, seeds) = (Recent::default(), Seeds::from_seed(1));
        assert!(recent.begin(7));
        assert_eq!(recall(&mut recent, seeds, 1), None);
        recent.remember(seeds, 1, &[3, 4], &[5]);
        recent.remember(seeds, 2, &[], &[]);
        recent.remember(seeds, 3, &[0; LONGEST + 1], &[]);
        assert_eq!(recall(&mut recent, seeds, 1), Some(vec![3, 4, 5]));
        assert_eq!(recall(&mut recent, seeds, 2), Some(vec![]));
        assert_eq!(recall(&mut recent, seeds, 3), None, "too long");
        for stamp in [8, 7] {
            assert!(recent.begin(stamp));
            assert_eq!(recall(&mut recent, seeds, 1), None, "of another classifier");
        }
    }

    /// Flows by the ten thousand, so that sets and ring wrap many times: what is recalled is right, and what is fresh is
    /// recalled.
    #[test]
    fn forgets_and_does_not_invent() {
        let (mut recent, seeds) = (Recent::default(), Seeds::from_seed(2));
        assert!(recent.begin(1));
        let hits = |flow: u32| vec![flow; flow as usize % (LONGEST + 1)];
        let mut recalled = 0;
        for flow in 0..100_000 {
            recent.remember(seeds, flow.into(), &hits(flow), &[]);
            assert_eq!(recall(&mut recent, seeds, flow), Some(hits(flow)));
            if let Some(found) = recall(&mut recent, seeds, flow / 2) {
                assert_eq!(found, hits(flow / 2));
                recalled += 1;
            }
        }
        assert!(recalled > 1000 && recent.written > 4 * RING as u64, "{recalled}, {}", recent.written);
    }

    #[test]
    fn rests_when_no_flow_comes_again() {
        let (mut recent, seeds) = (Recent::default(), Seeds::useless());
        for flow in 0..TRIAL {
            assert!(recent.begin(1));
            assert_eq!(recall(&mut recent, seeds, flow), None);
        }
        assert!((0..REST).all(|_| !recent.begin(1)));
        assert!(recent.begin(1), "another trial");
        recent.remember(seeds, 0, &[1], &[]);
        for _ in 0..10 * TRIAL {
            assert!(recent.begin(1));
            assert_eq!(recall(&mut recent, seeds, 0), Some(vec![1]));
        }
    }
}
