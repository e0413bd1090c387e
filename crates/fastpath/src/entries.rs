//! A worker's entries in the kernel: their slots, what their counters are credited to, and their end.
//!
//! # Theory of operation
//! All slots are checked several times a second, some of them between two walks. An entry is revoked when
//! its connection has been closed or reset, when it had no packet for a while, and soon if it never had
//! one. A session revokes its flows itself when it has been closed, so that a forged FIN does not. A slot
//! is reused some time after it was revoked; what the kernel has counted until then is credited first. A
//! packet that the kernel still handles then is counted for the new flow, but treated by the old action,
//! which was read as a whole. The kernel handles a packet within microseconds and without interruption, so
//! a short pause suffices.

use std::collections::HashMap;
use std::ops::Range;

use foldhash::quality::RandomState;
use mmb_dpdk::{FastAction, FastFlowStats, FastGranularity, FastKey, FastPort};
use mmb_policy::RuleId;
use mmb_session::OffloadCandidate;

use crate::kernel::KernelTable;
use crate::learn::LearningBudget;

/// Milliseconds between the revocation of an entry and the reuse of its slot.
const REUSE_DELAY: u32 = 100;
/// Milliseconds without a packet after which an entry is revoked.
const IDLE_TIMEOUT: u32 = 10_000;
/// Milliseconds after which an entry without any packet is revoked.
const UNUSED_TIMEOUT: u32 = 1000;
/// Milliseconds between two checks of all slots.
pub(crate) const SWEEP_INTERVAL: u32 = 50;
/// Slots that are checked between two walks.
const SWEEP_SLICE: usize = 128;

/// A port and its number in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortRef {
    pub id: u16,
    pub number: FastPort,
}

/// A rule and its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RuleRef {
    pub slot: u32,
    pub id: RuleId,
}

/// What the counters of an entry are credited to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreditTargets {
    pub ingress: PortRef,
    pub egress: PortRef,
    /// The rules that match all packets of the flow.
    pub rules: Box<[RuleRef]>,
    /// The flow's session, which credits its rules itself.
    pub session: Option<OffloadCandidate>,
}

/// An entry in the kernel.
struct Entry {
    key: FastKey,
    generation: u64,
    credit: CreditTargets,
    /// Credited so far.
    packets: u64,
    bytes: u64,
    /// The time of the revocation, or of the check that saw the last packet.
    since: u32,
    is_revoked: bool,
}

/// All entries of a worker.
pub(crate) struct Entries {
    /// The first slot of this worker.
    first: u32,
    by_slot: Vec<Option<Box<Entry>>>,
    /// The current slot of each flow.
    by_key: HashMap<FastKey, u32, RandomState>,
    /// Slots in use, in no order.
    used: Vec<u32>,
    free: Vec<u32>,
    /// How many of `used` the current sweep has yet to check.
    unchecked: usize,
    last_sweep: u32,
}

/// What an entry has counted since the last check.
pub(crate) struct CounterDelta<'a> {
    pub credit: &'a CreditTargets,
    pub slot: u32,
    pub packets: u64,
    pub bytes: u64,
    /// What the flow has earned ([`LearningBudget`]).
    pub earned: u32,
    /// The entry ends; no more packets follow.
    pub is_final: bool,
}

/// Why a flow was not installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InstallError {
    /// This worker's slots are all in use.
    #[error("all slots are in use")]
    Full,
    /// The kernel's table has refused the entry.
    #[error("the kernel refuses the entry: error {0}")]
    Kernel(i32),
}

impl Entries {
    pub fn new(slots: Range<u32>) -> Entries {
        Entries {
            first: slots.start,
            by_slot: slots.clone().map(|_| None).collect(),
            by_key: HashMap::default(),
            used: Vec::new(),
            free: slots.rev().collect(),
            unchecked: 0,
            last_sweep: 0,
        }
    }

    /// Number of slots in use, including revoked ones.
    pub fn len(&self) -> usize {
        self.used.len()
    }

    /// Whether a sweep is in progress.
    pub fn is_sweeping(&self) -> bool {
        self.unchecked > 0
    }

    fn entry(&mut self, slot: u32) -> Option<&mut Option<Box<Entry>>> {
        self.by_slot.get_mut(slot.checked_sub(self.first)? as usize)
    }

    /// Whether a flow is installed under this generation.
    pub fn contains(&mut self, key: &FastKey, generation: u64) -> bool {
        let Some(&slot) = self.by_key.get(key) else { return false };
        let entry = self.entry(slot).and_then(|entry| entry.as_ref());
        entry.is_some_and(|entry| entry.generation == generation && !entry.is_revoked)
    }

    /// Installs a flow and returns its slot.
    pub fn install(
        &mut self,
        kernel: &dyn KernelTable,
        (key, action): (&FastKey, &FastAction),
        generation: u64,
        credit: CreditTargets,
        now: u32,
    ) -> Result<u32, InstallError> {
        let slot = self.free.pop().ok_or(InstallError::Full)?;
        if let Some(&old) = self.by_key.get(key) {
            self.revoke(kernel, old, now);
        }
        if let Err(errno) = kernel.install(slot, generation, key, action) {
            // No key leads to the slot.
            kernel.revoke(slot);
            self.free.push(slot);
            return Err(InstallError::Kernel(errno));
        }
        let entry =
            Entry { key: *key, generation, credit, packets: 0, bytes: 0, since: now, is_revoked: false };
        if let Some(place) = self.entry(slot) {
            *place = Some(Box::new(entry));
        }
        self.by_key.insert(*key, slot);
        self.used.push(slot);
        Ok(slot)
    }

    /// Revokes an entry: its packets go to the engine.
    pub fn revoke(&mut self, kernel: &dyn KernelTable, slot: u32, now: u32) {
        if let Some(Some(entry)) = self.entry(slot)
            && !entry.is_revoked
        {
            kernel.revoke(slot);
            kernel.remove(&entry.key, slot);
            (entry.is_revoked, entry.since) = (true, now);
        }
    }

    /// Continues a sweep over all slots, or starts one if it is time. Reports new counts to `credit`, and
    /// revokes entries that are idle, ended or of another generation than the one in force.
    pub fn sweep(
        &mut self,
        kernel: &dyn KernelTable,
        in_force: u64,
        now: u32,
        mut credit: impl FnMut(CounterDelta<'_>),
    ) {
        if self.unchecked == 0 {
            if now.wrapping_sub(self.last_sweep) < SWEEP_INTERVAL {
                return;
            }
            (self.unchecked, self.last_sweep) = (self.used.len(), now);
        }
        for _ in 0..SWEEP_SLICE.min(self.unchecked) {
            self.unchecked -= 1;
            let Some(&slot) = self.used.get(self.unchecked) else { continue };
            if self.check(kernel, slot, in_force, now, &mut credit) {
                self.used.swap_remove(self.unchecked);
            }
        }
    }

    /// Checks one slot. True: it is free now.
    fn check(
        &mut self,
        kernel: &dyn KernelTable,
        slot: u32,
        in_force: u64,
        now: u32,
        credit: &mut impl FnMut(CounterDelta<'_>),
    ) -> bool {
        let Some(Some(entry)) = self.entry(slot) else { return true };
        let FastFlowStats { packets, bytes, ended, .. } = kernel.flow_stats(slot);
        let more = packets.wrapping_sub(entry.packets);
        let age = now.wrapping_sub(entry.since);
        let is_final = entry.is_revoked && age >= REUSE_DELAY;
        if more > 0 || is_final {
            let earned =
                LearningBudget::earnings(packets).saturating_sub(LearningBudget::earnings(entry.packets));
            let bytes = bytes.wrapping_sub(entry.bytes);
            credit(CounterDelta { credit: &entry.credit, slot, packets: more, bytes, earned, is_final });
        }
        (entry.packets, entry.bytes) = (packets, bytes);
        if !entry.is_revoked {
            if more > 0 {
                entry.since = now;
            }
            // An entry of several flows outlives each of their connections. Sessions end by themselves.
            let ends_here = entry.key.granularity == FastGranularity::Flow && entry.credit.session.is_none();
            let has_ended = ended != 0 && ends_here;
            let is_idle = more == 0 && age >= if packets == 0 { UNUSED_TIMEOUT } else { IDLE_TIMEOUT };
            if entry.generation != in_force || has_ended || is_idle {
                self.revoke(kernel, slot, now);
            }
            return false;
        }
        if !is_final {
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

#[cfg(test)]
mod tests;
