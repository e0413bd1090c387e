//! Cached decisions: what the rules that do not depend on each packet decide for a flow.
//!
//! Theory of operation. The decision of a flow follows from the list of its session's rules and of the rules
//! that match all packets of the flow. Flows with the same list share one decision. A decision is valid under
//! one *stamp*: the generation of the rules and the input port. A packet with another stamp has the decision
//! computed anew. A generation that differs from the one before in elements of sets is noted with them: a
//! flow that these do not concern carries its decision over ([`super::carry_over`]).
//!
//! The packet path reads and writes 16 bytes of a decision ([`HotDecision`]). Packets and bytes are counted
//! there, and added to the counters of the rules later, since a decision stands for many packets and often
//! for many rules.
//!
//! Number 0 is no decision. It is never valid.

use std::collections::VecDeque;
use std::sync::Arc;

use bitflags::bitflags;
use mmb_packet::prefetch;
use mmb_policy::{Decision, ElementChange, Policy};

use crate::Environment;
use crate::rules::lists::{EMPTY, InternedLists, ListHint};

/// Upper bound of decision numbers: a flow has 24 bits for the number.
const NUMBER_LIMIT: u32 = 1 << 24;

/// With more decisions than this, decisions are not in the L2 cache. Small in builds with assertions, so that
/// tests reach it.
const L2_DECISIONS: usize = if cfg!(debug_assertions) { 4 } else { 4096 };
/// With more decisions than this, decisions are not in the L1 cache.
const L1_DECISIONS: usize = if cfg!(debug_assertions) { 2 } else { 128 };
/// If more sessions than this share a decision on average, avoiding the read of decisions gains nothing.
const SHARED_SESSIONS: usize = 4;
/// Most changes of elements that are kept. With more of them, asking the rules is faster. Small in builds
/// with assertions, so that tests reach it.
const MOST_CHANGES: usize = if cfg!(debug_assertions) { 4 } else { 32 };
/// In place of a slot: the decision does not stand for exactly one rule.
const NOT_SINGLE: u32 = u32::MAX;
/// Counters that are prefetched before they are added to the rules.
const PREFETCH: usize = 32;

bitflags! {
    /// What a decision demands besides letting packets pass.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct DecisionFlags: u8 {
        /// Rules edit the packet.
        const EDIT = 1 << 0;
        /// The packet is dropped.
        const DROP = 1 << 1;
        /// The packet may be dropped at random.
        const RANDOM = 1 << 2;
        /// The packet is dropped, always or at random.
        const MAY_DROP = Self::DROP.bits() | Self::RANDOM.bits();
    }
}

/// The part of a decision that the packet path reads and writes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HotDecision {
    /// The stamp under which the decision is valid; 0: never.
    stamp: u32,
    /// Packets not yet added to the rules.
    packets: u32,
    /// Their bytes in the lower 56 bits, [`DecisionFlags`] in the upper 8.
    bytes: u64,
}

impl HotDecision {
    /// Position of the flags in `bytes`.
    const FLAGS_SHIFT: u32 = 56;
    /// Mask of the byte count.
    const BYTES: u64 = (1 << Self::FLAGS_SHIFT) - 1;

    #[inline(always)]
    fn flags(&self) -> DecisionFlags {
        DecisionFlags::from_bits_retain((self.bytes >> Self::FLAGS_SHIFT) as u8)
    }
}

/// All decisions of a worker.
#[derive(Debug)]
pub(crate) struct Decisions {
    lists: InternedLists,
    hot: Vec<HotDecision>,
    full: Vec<Decision>,
    /// The slot of a decision that stands for exactly one rule, so that counting need not read the rest; else
    /// [`NOT_SINGLE`].
    single: Vec<u32>,
    /// Generation of the rules, from [`Decisions::FIRST_EPOCH`].
    epoch: u16,
    /// The changes of elements with which the last generations have begun, the current one last.
    changes: VecDeque<Arc<ElementChange>>,
    /// Decisions with packets not yet added to rules, in the order of their first packet.
    counted: VecDeque<u32>,
    /// Decisions acquired since start.
    acquired: u64,
}

impl Decisions {
    /// The first generation.
    const FIRST_EPOCH: u16 = 1;

    pub fn new() -> Decisions {
        Decisions {
            lists: InternedLists::new(NUMBER_LIMIT),
            hot: vec![HotDecision::default()],
            full: vec![Decision::default()],
            single: vec![NOT_SINGLE],
            epoch: Decisions::FIRST_EPOCH,
            changes: VecDeque::new(),
            counted: VecDeque::new(),
            acquired: 0,
        }
    }

    /// Returns the number of decisions.
    pub fn len(&self) -> usize {
        self.lists.len()
    }

    /// Returns how many decisions were acquired since start.
    pub fn acquired(&self) -> u64 {
        self.acquired
    }

    /// Whether decisions are out of the near caches, so that it is faster not to read them.
    #[inline]
    pub fn exceeds_cache(&self, sessions: usize) -> bool {
        let n = self.hot.len();
        n > L2_DECISIONS || (n > L1_DECISIONS && sessions <= n * SHARED_SESSIONS)
    }

    /// Returns the current stamp of packets that come in by a port.
    #[inline(always)]
    pub fn stamp(&self, in_port: u16) -> u32 {
        u32::from(self.epoch) << 16 | u32::from(in_port)
    }

    /// Returns the current generation of the rules.
    pub fn epoch(&self) -> u16 {
        self.epoch
    }

    /// Begins a new generation: all decisions become invalid.
    pub fn renew(&mut self) {
        self.changes.clear();
        self.begin_epoch();
    }

    /// Begins a new generation whose rules differ by a change of elements.
    pub fn renew_elements(&mut self, change: Arc<ElementChange>) {
        if self.changes.len() == MOST_CHANGES {
            self.changes.pop_front();
        }
        self.changes.push_back(change);
        self.begin_epoch();
    }

    fn begin_epoch(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        if self.epoch == 0 {
            // Decisions that remain from the first generations must not become valid again.
            self.epoch = Decisions::FIRST_EPOCH;
            self.hot.iter_mut().for_each(|hot| hot.stamp = 0);
        }
    }

    /// Whether decisions of earlier generations may still hold.
    #[inline(always)]
    pub fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Returns the changes of elements since a decision about packets of a port was computed. None: more than
    /// elements has changed, or too much.
    pub fn changes_since(&self, number: u32, in_port: u16) -> Option<impl Iterator<Item = &ElementChange>> {
        let stamp = self.hot.get(number as usize)?.stamp;
        let age = usize::from(self.epoch.wrapping_sub((stamp >> 16) as u16));
        let is_of_port = stamp != 0 && stamp & 0xffff == u32::from(in_port);
        let first = self.changes.len().checked_sub(age).filter(|_| is_of_port)?;
        Some(self.changes.range(first..).map(|change| &**change))
    }

    /// Returns the slots of the rules from which a decision follows.
    pub fn slots(&self, number: u32) -> &[u32] {
        self.lists.get(number)
    }

    /// Prefetches what [`Decisions::count`] reads.
    #[inline(always)]
    pub fn prefetch(&self, number: u32) {
        if let Some(hot) = self.hot.get(number as usize) {
            prefetch::read(hot);
        }
    }

    /// Whether a decision is valid under this stamp.
    #[inline(always)]
    pub fn is_current(&self, number: u32, stamp: u32) -> bool {
        self.hot.get(number as usize).is_some_and(|hot| hot.stamp == stamp)
    }

    /// Counts packets and their bytes, and returns the decision's flags. `None`: the decision is not valid,
    /// and nothing was counted.
    #[inline(always)]
    pub fn count(&mut self, number: u32, stamp: u32, (packets, bytes): (u32, u32)) -> Option<DecisionFlags> {
        let hot = self.hot.get_mut(number as usize).filter(|hot| hot.stamp == stamp)?;
        hot.packets += packets;
        hot.bytes += u64::from(bytes);
        if hot.packets == packets {
            self.counted.push_back(number);
        }
        Some(hot.flags())
    }

    /// Returns the flags of a decision.
    pub fn flags(&self, number: u32) -> DecisionFlags {
        self.hot.get(number as usize).map_or(DecisionFlags::empty(), HotDecision::flags)
    }

    /// Returns the full decision.
    pub fn full(&self, number: u32) -> Option<&Decision> {
        self.full.get(number as usize)
    }

    /// Adds a reference to the decision of the rules in `slots`, ascending and unique, and returns its
    /// number; 0 if no number is free.
    pub fn acquire(&mut self, policy: &Policy, stamp: u32, slots: &[u32]) -> u32 {
        self.acquired += 1;
        let Some(acquired) = self.lists.acquire(stamp, slots) else { return EMPTY };
        if acquired.is_new {
            self.insert(acquired.number as usize, policy.decision(slots.iter().copied()), stamp, slots);
        }
        acquired.number
    }

    /// Stores a new decision.
    fn insert(&mut self, at: usize, decision: Decision, stamp: u32, slots: &[u32]) {
        let mut flags = match decision.verdict() {
            Some(true) => DecisionFlags::DROP,
            Some(false) => DecisionFlags::empty(),
            None => DecisionFlags::RANDOM,
        };
        flags.set(DecisionFlags::EDIT, !decision.edits().is_empty());
        if at >= self.hot.len() {
            self.hot.resize(at + 1, HotDecision::default());
            self.full.resize_with(at + 1, Decision::default);
            self.single.resize(at + 1, NOT_SINGLE);
        }
        self.single[at] = if let &[slot] = slots { slot } else { NOT_SINGLE };
        let bytes = u64::from(flags.bits()) << HotDecision::FLAGS_SHIFT;
        self.hot[at] = HotDecision { stamp, packets: 0, bytes };
        self.full[at] = decision;
    }

    /// Returns a hint for a decision, as [`InternedLists::hint`].
    pub fn hint(&self, number: u32) -> ListHint {
        self.lists.hint(number)
    }

    /// Adds a reference to the decision of a hint, as [`InternedLists::acquire_by_hint`].
    #[inline]
    pub fn acquire_by_hint(&mut self, hint: ListHint) -> Option<u32> {
        let number = self.lists.acquire_by_hint(hint)?;
        self.acquired += 1;
        Some(number)
    }

    /// Removes a reference to a decision.
    pub fn release(&mut self, number: u32, env: &impl Environment) {
        if number == EMPTY {
            return;
        }
        // The decision is about to be freed: its counts go to the rules now.
        if self.lists.refs(number) == 1 {
            self.flush_one(number, env);
        }
        self.lists.release(number);
    }

    /// Adds the counts of at most `limit` decisions to the rules. Returns `true` if more decisions have
    /// counts.
    pub fn flush(&mut self, env: &impl Environment, limit: usize) -> bool {
        for &number in self.counted.iter().take(limit.min(PREFETCH)) {
            self.prefetch(number);
            self.prefetch_single(number);
        }
        for _ in 0..limit {
            let Some(number) = self.counted.pop_front() else { return false };
            self.flush_one(number, env);
        }
        !self.counted.is_empty()
    }

    /// Whether some decision has counts that are not yet added to the rules.
    pub fn has_counts(&self) -> bool {
        !self.counted.is_empty()
    }

    /// Adds counts to the rules of a decision.
    #[inline]
    pub fn credit(&self, number: u32, packets: u64, bytes: u64, env: &impl Environment) {
        let packets = u32::try_from(packets).unwrap_or(u32::MAX);
        match self.single.get(number as usize) {
            Some(&slot) if slot != NOT_SINGLE => env.count(slot, packets, bytes),
            _ => {
                let Some(full) = self.full.get(number as usize) else { return };
                full.slots().iter().for_each(|&slot| env.count(slot, packets, bytes));
                // Drops are counted as they happen.
                if let Some(slot) = full.accepting() {
                    env.count_decided(slot, packets);
                }
            }
        }
    }

    /// Prefetches the counters of the rule, if the decision stands for one.
    #[inline]
    pub fn prefetch_credit(&self, number: u32, env: &impl Environment) {
        if let Some(&slot) = self.single.get(number as usize) {
            env.prefetch_count(slot);
        }
    }

    /// Prefetches the slot of the rule, if the decision stands for one.
    #[inline]
    pub fn prefetch_single(&self, number: u32) {
        if let Some(slot) = self.single.get(number as usize) {
            prefetch::read(slot);
        }
    }

    /// Adds the counts of a decision to its rules.
    fn flush_one(&mut self, number: u32, env: &impl Environment) {
        let Some(hot) = self.hot.get_mut(number as usize) else { return };
        let (packets, bytes) = (std::mem::take(&mut hot.packets), hot.bytes & HotDecision::BYTES);
        hot.bytes &= !HotDecision::BYTES;
        if packets == 0 {
            return;
        }
        self.credit(number, packets.into(), bytes, env);
    }
}

#[cfg(test)]
mod tests;
