//! Why flows are not installed, and a worker's counters.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Why a flow is not installed although it was sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// Its packet was not sent in the walk in which it was received: it was dropped, held or handed off.
    NotSent,
    /// Its packet was changed otherwise than by a rewrite of addresses, ports and Ethernet header.
    Otherwise,
    /// Its egress is no af-xdp port, or one whose interface takes no redirected frames.
    Target,
    /// Its next hop is not resolved.
    NextHop,
    /// It has no session, or one of which the engine must see each packet.
    Session,
    /// Too many rules match.
    Rules,
    /// All slots are taken.
    Full,
    /// The kernel refused it.
    Kernel,
}

impl RefusalReason {
    /// All reasons.
    pub const ALL: [RefusalReason; 8] = [
        RefusalReason::NotSent,
        RefusalReason::Otherwise,
        RefusalReason::Target,
        RefusalReason::NextHop,
        RefusalReason::Session,
        RefusalReason::Rules,
        RefusalReason::Full,
        RefusalReason::Kernel,
    ];

    /// Milliseconds for which the flow is not sampled again. Short where its first packet waited for its next
    /// hop, or was in a walk in which a session ended.
    pub(crate) fn suspension(self) -> u32 {
        match self {
            RefusalReason::NotSent | RefusalReason::NextHop | RefusalReason::Session => 100,
            _ => 10_000,
        }
    }

    /// Whether the next packets of the flow may be treated otherwise: a function makes a handshake in the
    /// place of both ends.
    pub(crate) fn may_pass(self) -> bool {
        matches!(self, RefusalReason::NotSent | RefusalReason::Session)
    }

    /// The reason in one word.
    pub fn name(self) -> &'static str {
        match self {
            RefusalReason::NotSent => "not-sent",
            RefusalReason::Otherwise => "other-change",
            RefusalReason::Target => "no-redirect",
            RefusalReason::NextHop => "next-hop",
            RefusalReason::Session => "session",
            RefusalReason::Rules => "many-rules",
            RefusalReason::Full => "full",
            RefusalReason::Kernel => "kernel",
        }
    }
}

/// A counter with one writer.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds; only the owner may call this.
    pub(crate) fn add(&self, n: u64) {
        self.set(self.get().wrapping_add(n));
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Sets the value; only the owner may call this.
    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }
}

/// A worker's counters. The worker writes them, every thread may read them.
#[derive(Debug, Default)]
pub struct FastCounters {
    pub(crate) entries: Counter,
    pub(crate) installed: Counter,
    pub(crate) packets: Counter,
    pub(crate) bytes: Counter,
    refused: [Counter; RefusalReason::ALL.len()],
}

impl FastCounters {
    /// Counts a flow that was not installed.
    pub(crate) fn count_refusal(&self, reason: RefusalReason) {
        self.refused[reason as usize].add(1);
    }

    /// Flows that were not installed for this reason.
    pub fn refused(&self, reason: RefusalReason) -> u64 {
        self.refused[reason as usize].get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_counter_and_name() {
        for (at, reason) in RefusalReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, at);
            assert!(RefusalReason::ALL.iter().filter(|other| other.name() == reason.name()).count() == 1);
        }
    }
}
