//! A worker's flows in the kernel: which slots they have, whom to credit with their packets, and when they go.
//!
//! All slots are looked at several times a second, some at a time between two walks. A flow goes when its connection has been closed or
//! reset, when it has had no packet for a while, and soon if it never had one. A slot is given to another flow some time after it was
//! revoked; what the kernel has counted until then is credited first. That a packet of the old flow is still under way then does no harm but
//! to be counted as one of the new flow: what is done to it was read before, as a whole. But a packet is under way for
//! microseconds only, with the interrupts of its processor held off, so that the pause need not be long.

use std::collections::HashMap;
use std::ops::Range;

use mmb_dpdk::{FastAction, FastFlowStats, FastGranularity, FastKey, FastPort};
use mmb_policy::RuleId;
use mmb_session::OffloadCandidate;

use super::Kernel;
use super::allowance::Allowance;

/// Milliseconds between revoking a flow and giving its slot away.
const GRACE: u32 = 100;
/// Milliseconds without a packet after which a flow goes.
const IDLE: u32 = 10_000;
/// … if it has never had one.
const UNUSED: u32 = 1000;
/// Milliseconds between two looks at all slots.
pub(super) const SWEEP: u32 = 50;
/// Slots that are looked at between two walks.
const SLICE: usize = 128;

/// A rule that matches all packets of a flow, and its slot.
pub(super) type Matched = (u32, RuleId);

/// What a flow's packets are credited to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Credit {
    /// The port that they come in by, and its number in the kernel.
    pub from: (u16, FastPort),
    /// The port that they go out by.
    pub to: (u16, FastPort),
    pub rules: Box<[Matched]>,
    /// The session that they are of, which credits its rules itself.
    pub session: Option<OffloadCandidate>,
}

/// A flow in the kernel.
struct Entry {
    key: FastKey,
    generation: u64,
    credit: Credit,
    /// Credited so far.
    packets: u64,
    bytes: u64,
    /// When it was revoked, or when a packet was seen last.
    since: u32,
    revoked: bool,
}

/// All of a worker.
pub(super) struct Entries {
    /// The first slot of this worker.
    first: u32,
    by_slot: Vec<Option<Box<Entry>>>,
    /// The slot that a flow has in the kernel, by the last word.
    by_key: HashMap<FastKey, u32>,
    /// Slots that are in use, in no order.
    used: Vec<u32>,
    free: Vec<u32>,
    /// How many of `used` the look that goes on has still before it.
    left: usize,
    swept: u32,
}

/// Packets of a flow, and their bytes, that nobody has been credited with yet.
pub(super) struct Due<'a> {
    pub credit: &'a Credit,
    pub slot: u32,
    pub packets: u64,
    pub bytes: u64,
    /// What its flow has earned since ([`Allowance`]).
    pub earned: u32,
    /// There will be no more.
    pub over: bool,
}

impl Entries {
    pub fn new(slots: Range<u32>) -> Entries {
        Entries {
            first: slots.start,
            by_slot: slots.clone().map(|_| None).collect(),
            by_key: HashMap::new(),
            used: Vec::new(),
            free: slots.rev().collect(),
            left: 0,
            swept: 0,
        }
    }

    /// Flows that have a slot, those included that were revoked.
    pub fn len(&self) -> usize {
        self.used.len()
    }

    /// Whether a look at all slots goes on.
    pub fn is_sweeping(&self) -> bool {
        self.left > 0
    }

    fn entry(&mut self, slot: u32) -> Option<&mut Option<Box<Entry>>> {
        self.by_slot.get_mut(slot.checked_sub(self.first)? as usize)
    }

    /// Whether the kernel has a flow under this generation.
    pub fn has(&mut self, key: &FastKey, generation: u64) -> bool {
        let Some(&slot) = self.by_key.get(key) else { return false };
        let entry = self.entry(slot).and_then(|entry| entry.as_ref());
        entry.is_some_and(|entry| entry.generation == generation && !entry.revoked)
    }

    /// Gives a flow to the kernel, and says in which slot it is.
    pub fn install(
        &mut self,
        kernel: &dyn Kernel,
        (key, action): (&FastKey, &FastAction),
        generation: u64,
        credit: Credit,
        now: u32,
    ) -> Result<u32, NoPlace> {
        let slot = self.free.pop().ok_or(NoPlace::Full)?;
        if let Some(&old) = self.by_key.get(key) {
            self.revoke(kernel, old, now);
        }
        if kernel.install(slot, generation, key, action).is_err() {
            // Nothing leads to the slot.
            kernel.revoke(slot);
            self.free.push(slot);
            return Err(NoPlace::Refused);
        }
        let entry = Entry { key: *key, generation, credit, packets: 0, bytes: 0, since: now, revoked: false };
        if let Some(place) = self.entry(slot) {
            *place = Some(Box::new(entry));
        }
        self.by_key.insert(*key, slot);
        self.used.push(slot);
        Ok(slot)
    }

    /// A flow's packets come to the engine again, from now on.
    pub fn revoke(&mut self, kernel: &dyn Kernel, slot: u32, now: u32) {
        if let Some(Some(entry)) = self.entry(slot)
            && !entry.revoked
        {
            kernel.revoke(slot);
            kernel.forget(&entry.key, slot);
            (entry.revoked, entry.since) = (true, now);
        }
    }

    /// Goes on looking at all slots, or begins to if it is time: says what is due to whom, and lets flows go that have no
    /// packets or are of another generation than the one that is in force.
    pub fn sweep(&mut self, kernel: &dyn Kernel, in_force: u64, now: u32, mut pay: impl FnMut(Due<'_>)) {
        if self.left == 0 {
            if now.wrapping_sub(self.swept) < SWEEP {
                return;
            }
            (self.left, self.swept) = (self.used.len(), now);
        }
        for _ in 0..SLICE.min(self.left) {
            self.left -= 1;
            let Some(&slot) = self.used.get(self.left) else { continue };
            if self.look(kernel, slot, in_force, now, &mut pay) {
                self.used.swap_remove(self.left);
            }
        }
    }

    /// Looks at one slot. True: it is free now.
    fn look(
        &mut self,
        kernel: &dyn Kernel,
        slot: u32,
        in_force: u64,
        now: u32,
        pay: &mut impl FnMut(Due<'_>),
    ) -> bool {
        let Some(Some(entry)) = self.entry(slot) else { return true };
        let FastFlowStats { packets, bytes, ended, .. } = kernel.tally(slot);
        let due = packets.wrapping_sub(entry.packets);
        let age = now.wrapping_sub(entry.since);
        let over = entry.revoked && age >= GRACE;
        if due > 0 || over {
            let (credit, bytes) = (&entry.credit, bytes.wrapping_sub(entry.bytes));
            let earned = Allowance::worth(packets).saturating_sub(Allowance::worth(entry.packets));
            pay(Due { credit, slot, packets: due, bytes, earned, over });
        }
        (entry.packets, entry.bytes) = (packets, bytes);
        if !entry.revoked {
            if due > 0 {
                entry.since = now;
            }
            // Other connections of a pair, or to the same destination, go on.
            let ended = ended != 0 && entry.key.granularity == FastGranularity::Flow;
            let idle = due == 0 && age >= if packets == 0 { UNUSED } else { IDLE };
            if entry.generation != in_force || ended || idle {
                self.revoke(kernel, slot, now);
            }
            return false;
        }
        if !over {
            return false;
        }
        let key = entry.key;
        if self.by_key.get(&key) == Some(&slot) {
            self.by_key.remove(&key);
        }
        if let Some(place) = self.entry(slot) {
            *place = None;
        }
        self.free.push(slot);
        true
    }
}

/// Why a flow was not given to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// This worker's slots are all in use.
    Full,
    /// The kernel says no.
    Refused,
}

#[cfg(test)]
#[path = "entries_test.rs"]
mod tests;
