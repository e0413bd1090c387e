//! Counters that one worker writes and everyone may read.
//!
//! Theory of operation. A worker owns its counters: it alone adds to them, with a relaxed load and a relaxed
//! store. So counting takes no locked instruction, and workers do not share cache lines that are written.
//! Readers add up the workers' values. Rule counters live in pages, indexed by the rule's slot. A snapshot
//! holds the pages that its rules need. Pages are never removed, so a counter keeps its address while
//! policies change. The control side zeroes a slot after the grace period of the policy that freed it, when
//! no worker can add to it any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use mmb_fastpath::FastCounters;
use mmb_lang::PuntClass;
use mmb_packet::{DropReason, prefetch};
use serde::Serialize;

use crate::engine::config::MAX_PORTS;

/// Reasons for which edits fail. The configuration says whether such a packet is forwarded unedited or
/// dropped.
pub const EDIT_FAILURES: [DropReason; 4] =
    [DropReason::OptionSpace, DropReason::OptionMtu, DropReason::OptionFragment, DropReason::OptionRoom];

/// What a rule matched and decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RuleCounters {
    /// Packets that the rule matched.
    pub packets: u64,
    /// Bytes of their frames.
    pub bytes: u64,
    /// Packets that the rule dropped, or accepted although a rule with `drop` matched.
    pub decided: u64,
}

impl std::ops::AddAssign for RuleCounters {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.decided += other.decided;
    }
}

/// Takes an earlier reading of the same rule away.
impl std::ops::SubAssign for RuleCounters {
    fn sub_assign(&mut self, earlier: Self) {
        self.packets -= earlier.packets;
        self.bytes -= earlier.bytes;
        self.decided -= earlier.decided;
    }
}

/// A counter with one writer.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`; only the owner may call this.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Sets the value; only the owner may call this.
    pub fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    fn zero(&self) {
        self.set(0);
    }
}

const PAGE: usize = 2048;

#[derive(Debug, Default)]
struct Cell {
    packets: Counter,
    bytes: Counter,
}

/// Counters of neighboring slots. What rules decide lies apart: most rules only match.
#[derive(Debug)]
struct Page {
    matched: [Cell; PAGE],
    decided: [Counter; PAGE],
}

/// One worker's rule counters, by slot.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuleTable {
    pages: Vec<Arc<Page>>,
}

impl RuleTable {
    /// Makes room for the slots below `slots`.
    pub fn grow(&mut self, slots: usize) {
        while self.pages.len() * PAGE < slots {
            self.pages.push(Arc::new(Page {
                matched: std::array::from_fn(|_| Cell::default()),
                decided: std::array::from_fn(|_| Counter::default()),
            }));
        }
    }

    /// Whether no rule is counted.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    fn cell(&self, slot: u32) -> Option<&Cell> {
        let slot = slot as usize;
        self.pages.get(slot / PAGE).map(|page| &page.matched[slot % PAGE])
    }

    fn decided(&self, slot: u32) -> Option<&Counter> {
        let slot = slot as usize;
        self.pages.get(slot / PAGE).map(|page| &page.decided[slot % PAGE])
    }

    /// Starts loading a slot's counters into the cache.
    #[inline]
    pub fn prefetch(&self, slot: u32) {
        if let Some(cell) = self.cell(slot) {
            prefetch::read(cell);
        }
    }

    /// Counts packets and the bytes of their frames; only the owner may call this.
    #[inline]
    pub fn count(&self, slot: u32, packets: u32, bytes: u64) {
        if let Some(cell) = self.cell(slot) {
            cell.packets.add(packets.into());
            cell.bytes.add(bytes);
        }
    }

    /// Counts packets that the rule decided about; only the owner may call this.
    #[inline]
    pub fn count_decided(&self, slot: u32, packets: u32) {
        if let Some(decided) = self.decided(slot) {
            decided.add(packets.into());
        }
    }

    pub fn get(&self, slot: u32) -> RuleCounters {
        self.cell(slot).map_or_else(RuleCounters::default, |c| RuleCounters {
            packets: c.packets.get(),
            bytes: c.bytes.get(),
            decided: self.decided(slot).map_or(0, Counter::get),
        })
    }

    /// Sets a slot's counters to zero; no worker may be counting it.
    pub fn zero(&self, slot: u32) {
        if let Some(cell) = self.cell(slot) {
            cell.packets.zero();
            cell.bytes.zero();
        }
        if let Some(decided) = self.decided(slot) {
            decided.zero();
        }
    }
}

/// Room for drop reasons; a power of two.
const REASONS: usize = 128;

const _: () = assert!(DropReason::COUNT <= REASONS);

/// Counters of one worker, by drop reason.
#[derive(Debug)]
pub(crate) struct ReasonCounters([Counter; REASONS]);

impl Default for ReasonCounters {
    fn default() -> Self {
        ReasonCounters(std::array::from_fn(|_| Counter::default()))
    }
}

impl ReasonCounters {
    #[inline]
    pub fn add(&self, reason: u8, n: u64) {
        self.0[usize::from(reason) % REASONS].add(n);
    }

    pub fn get(&self, reason: DropReason) -> u64 {
        self.0[usize::from(reason as u8)].get()
    }
}

/// Packets that one worker dropped, by reason and by input port.
#[derive(Debug, Default)]
pub(crate) struct DropCounters {
    all: ReasonCounters,
    by_port: [ReasonCounters; MAX_PORTS],
}

impl DropCounters {
    #[inline]
    pub fn add(&self, port: u16, reason: u8, n: u64) {
        self.all.add(reason, n);
        if let Some(for_port) = self.by_port.get(usize::from(port)) {
            for_port.add(reason, n);
        }
    }

    /// Packets of all ports.
    pub fn get(&self, reason: DropReason) -> u64 {
        self.all.get(reason)
    }

    pub fn for_port(&self, port: u16, reason: DropReason) -> u64 {
        self.by_port.get(usize::from(port)).map_or(0, |for_port| for_port.get(reason))
    }

    /// Zeroes the counters of a port; no packet of the port may be in a graph.
    pub fn zero_port(&self, port: u16) {
        let for_port = self.by_port.get(usize::from(port));
        for_port.iter().flat_map(|for_port| &for_port.0).for_each(Counter::zero);
    }
}

/// Routing counters of one worker; see [`crate::RoutingCounters`].
#[derive(Debug, Default)]
pub(crate) struct RoutingTally {
    /// Packets given to the kernel, by class.
    pub punted: [Counter; PuntClass::ALL.len()],
    pub icmp_errors: Counter,
    pub icmp_suppressed: Counter,
    pub fragmented: Counter,
    pub fragments: Counter,
    pub queued: Counter,
    pub waiting: Counter,
    pub requests: Counter,
    pub requests_lost: Counter,
}

/// What one worker counts.
#[derive(Debug, Default)]
pub(crate) struct WorkerCounters {
    pub drops: DropCounters,
    pub routing: RoutingTally,
    /// Packets forwarded without their edits, because the edits failed.
    pub unedited: ReasonCounters,
    /// Packets whose bytes functions of chains have sent in other frames.
    pub consumed: Counter,
    /// Frames of functions of chains that were sent.
    pub emitted: Counter,
    /// Frames of functions that could not be sent. They count as drops too, although no received packet is
    /// missing.
    pub unsent: Counter,
    /// Transport checksums completed for kernel peers.
    pub repairs: Counter,
    /// Times the worker went to sleep.
    pub sleeps: Counter,
    /// What the kernel does by itself.
    pub fast: FastCounters,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_with_more_pages_shares_the_counters() {
        let mut old = RuleTable::default();
        old.grow(1);
        let mut new = old.clone();
        new.grow(PAGE + 1);
        old.count(0, 1, 60);
        new.count(0, 2, 40);
        new.count(PAGE as u32, 1, 1);
        new.count_decided(0, 2);
        assert_eq!(new.get(0), RuleCounters { packets: 3, bytes: 100, decided: 2 });
        assert_eq!(old.get(PAGE as u32), RuleCounters::default());
        new.zero(0);
        assert_eq!(old.get(0), RuleCounters::default());
    }
}
