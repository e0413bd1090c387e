//! A cache of the matches of recent packets.
//!
//! Theory of operation. If rules read only the first chunk of the window (addresses, ports, protocol, input
//! port), packets with equal first chunks match the same rules. A cache in front of the tree then saves the
//! walk, as in Open vSwitch (Pfaff et al., "The design and implementation of Open vSwitch", NSDI 2015,
//! section 4.2). The key is the packet's class ([`super::packet_classes`]), so that successive connections
//! between two hosts mostly share an entry.
//!
//! Each worker has a cache of its own. A key selects a set of two lines. A line refers to the hits in a ring
//! of slots. The position is a count of all slots ever written, which tells whether the ring has overwritten
//! them. New lines replace the older one of a set. Every change of the classifier changes its stamp, which
//! invalidates all lines.
//!
//! If keys do not recur (scans, floods), the cache costs time. It measures its hit rate. If the rate is too
//! low, the cache is off for a while, and then tries again. It is not used in front of a tree that is cheap
//! to walk.

use std::hint::select_unpredictable;

use mmb_packet::prefetch;

use crate::table::Seeds;

/// Number of sets: room for twice as many keys, 1 MiB.
const SETS: usize = 1 << 14;
/// Number of slots in the ring: 1 MiB.
const RING: usize = 1 << 18;
/// Maximum number of hits that are cached for a key.
const MAX_HITS: usize = 64;
/// Length of a trial, in vectors. The first half only fills the cache.
const TRIAL: u32 = 512;
/// Length of the pause after a trial in which fewer than one in [`MIN_HIT_SHARE`] lookups succeeded, in
/// vectors.
const REST: u32 = 8192;
const MIN_HIT_SHARE: u32 = 4;

/// A cached key and its hits.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    key: u128,
    /// Position of the hits, as the number of slots written before them.
    at: u64,
    /// Epoch of the line; 0 if it is empty.
    epoch: u32,
    len: u16,
}

/// A cached result: the position of the hits in the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedHits {
    at: u32,
    len: u16,
}

impl CachedHits {
    /// No result.
    pub const NONE: CachedHits = CachedHits { at: 0, len: u16::MAX };

    /// Whether there is a result.
    #[inline(always)]
    pub fn is_known(self) -> bool {
        self.len <= MAX_HITS as u16
    }

    /// Start and end of the hits.
    #[inline(always)]
    pub fn run(self) -> (usize, usize) {
        (self.at as usize, self.at as usize + usize::from(self.len))
    }
}

/// The two lines of a hash: one cache line.
#[repr(align(64))]
#[derive(Clone, Copy, Debug, Default)]
struct Set([Line; 2]);

/// Whether the cache is in use.
#[derive(Clone, Copy, Debug)]
enum Mode {
    Trial { vectors: u32, looked: u32, found: u32 },
    Rest { vectors: u32 },
}

const NEW_TRIAL: Mode = Mode::Trial { vectors: 0, looked: 0, found: 0 };

/// The cache of a worker; see the module's documentation.
#[derive(Clone, Debug)]
pub(crate) struct MatchCache {
    /// Empty until the first use.
    sets: Vec<Set>,
    ring: Vec<u32>,
    written: u64,
    stamp: u64,
    epoch: u32,
    mode: Mode,
}

impl Default for MatchCache {
    fn default() -> Self {
        MatchCache { sets: Vec::new(), ring: Vec::new(), written: 0, stamp: 0, epoch: 0, mode: NEW_TRIAL }
    }
}

impl MatchCache {
    /// Starts a vector for a classifier with this stamp. Returns whether the cache is in use.
    pub fn start_vector(&mut self, stamp: u64) -> bool {
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

    /// The set of a key; prefetches it.
    #[inline(always)]
    pub fn prefetch_set(&self, seeds: Seeds, key: u128) -> u16 {
        let set = set_of(seeds, key);
        prefetch::read(&self.sets[set]);
        set as u16
    }

    /// Looks up a key. The hits are in [`MatchCache::hits`] until the next insertion. It has no branches,
    /// since which line matches is hard to predict.
    #[inline(always)]
    pub fn find(&self, set: u16, key: u128) -> CachedHits {
        let known = |line: &Line| {
            let is_it = (line.key == key)
                & (line.epoch == self.epoch)
                & (self.written - line.at <= (RING - MAX_HITS) as u64);
            select_unpredictable(
                is_it,
                CachedHits { at: line.at as u32 % RING as u32, len: line.len },
                CachedHits::NONE,
            )
        };
        let Set([first, second]) = &self.sets[usize::from(set)];
        let (first, second) = (known(first), known(second));
        let found = select_unpredictable(first.is_known(), first, second);
        prefetch::read(&self.ring[found.at as usize % RING]);
        found
    }

    /// The hits of all cached keys.
    pub fn hits(&self) -> &[u32] {
        &self.ring
    }

    /// Records the number of lookups and of successful lookups in a vector.
    pub fn record_lookups(&mut self, looked: u32, found: u32) {
        let Mode::Trial { vectors, looked: all, found: found_total } = &mut self.mode else { return };
        *vectors += 1;
        if *vectors > TRIAL / 2 {
            *all += looked;
            *found_total += found;
        }
        if *vectors == TRIAL {
            let pays = *found_total >= *all / MIN_HIT_SHARE;
            self.mode = if pays { NEW_TRIAL } else { Mode::Rest { vectors: REST } };
        }
    }

    /// Inserts the hits of a key.
    pub fn insert(&mut self, seeds: Seeds, key: u128, slots: &[u32], others: &[u32]) {
        let len = slots.len() + others.len();
        if len > MAX_HITS || self.sets.is_empty() {
            return;
        }
        let mut at = self.written as usize % RING;
        if at + MAX_HITS > RING {
            self.written += (RING - at) as u64;
            at = 0;
        }
        self.ring[at..at + slots.len()].copy_from_slice(slots);
        self.ring[at + slots.len()..at + len].copy_from_slice(others);
        let line = Line { key, at: self.written, epoch: self.epoch, len: len as u16 };
        let Set(lines) = &mut self.sets[set_of(seeds, key)];
        *lines = [line, lines[0]];
        self.written += len as u64;
    }
}

fn set_of(seeds: Seeds, key: u128) -> usize {
    (seeds.hash(key).0 >> 20) as usize % SETS
}

const _: () = assert!(SETS <= 1 << 16 && size_of::<Set>() == 64);

#[cfg(test)]
mod tests;
