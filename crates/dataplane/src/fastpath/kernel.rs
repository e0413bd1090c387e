//! What the fast path asks of the kernel; tests have one of their own.

use std::sync::Arc;

use mmb_dpdk::{FAST_FIN, FastAction, FastFlowStats, FastGranularity, FastKey, FastPath};
use mmb_session::{OffloadCounters, OffloadDriver};
use nix::time::{ClockId, clock_gettime};

/// The kernel's side.
pub(crate) trait Kernel: Send + Sync {
    /// Heeds only entries of this generation, whose keys have that granularity; 0: none.
    fn set_generation(&self, generation: u64, granularity: FastGranularity);
    /// Puts an entry into a slot that nobody uses.
    fn install(&self, slot: u32, generation: u64, key: &FastKey, action: &FastAction) -> Result<(), i32>;
    /// Heeds an entry no more.
    fn revoke(&self, slot: u32);
    /// Forgets which slot a flow has.
    fn forget(&self, key: &FastKey, slot: u32);
    /// What has been counted in a slot.
    fn tally(&self, slot: u32) -> FastFlowStats;
    /// How long ago it counted something last, in milliseconds.
    fn age(&self, tally: &FastFlowStats) -> u32;
}

impl Kernel for FastPath {
    fn set_generation(&self, generation: u64, granularity: FastGranularity) {
        self.set_generation(generation, granularity);
    }

    fn install(&self, slot: u32, generation: u64, key: &FastKey, action: &FastAction) -> Result<(), i32> {
        self.install(slot, generation, key, action)
    }

    fn revoke(&self, slot: u32) {
        self.revoke(slot);
    }

    fn forget(&self, key: &FastKey, slot: u32) {
        self.remove(key, slot);
    }

    fn tally(&self, slot: u32) -> FastFlowStats {
        self.flow_stats(slot)
    }

    fn age(&self, tally: &FastFlowStats) -> u32 {
        // Without a clock, sessions are as old as they can be.
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE).map_or(u64::MAX, |now| {
            now.tv_sec().cast_unsigned() * 1_000_000_000 + now.tv_nsec().cast_unsigned()
        });
        u32::try_from(now.saturating_sub(tally.last) / 1_000_000).unwrap_or(u32::MAX)
    }
}

/// The kernel, as sessions see it: it has borrowed their packets.
pub(super) struct Borrowing(pub Arc<dyn Kernel>);

impl OffloadDriver for Borrowing {
    fn revoke(&self, slot: u32) {
        self.0.revoke(slot);
    }

    fn counters(&self, slot: u32) -> OffloadCounters {
        let tally = self.0.tally(slot);
        let FastFlowStats { packets, bytes, tcp, ended, .. } = tally;
        let fin = tcp.filter(|_| ended & FAST_FIN != 0).map(|tcp| tcp.end);
        OffloadCounters { packets, bytes, age: self.0.age(&tally), ack: tcp.map(|tcp| tcp.ack), fin }
    }
}
