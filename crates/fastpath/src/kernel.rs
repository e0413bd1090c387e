//! The kernel's table of entries; tests use one in memory.

use std::sync::Arc;

use mmb_dpdk::{FastAction, FastFlowStats, FastGranularity, FastKey, FastPath};
use mmb_session::{OffloadCounters, OffloadDriver};
use nix::time::{ClockId, clock_gettime};

/// The kernel's table.
pub trait KernelTable: Send + Sync {
    /// Forwards only by entries of this generation, whose keys have this granularity. Generation 0 stops all
    /// forwarding.
    fn set_generation(&self, generation: u64, granularity: FastGranularity);
    /// Tells the kernel that the workers were alive `age` milliseconds ago. It ignores all entries of workers
    /// that were not for a second.
    fn beat(&self, age: u32);
    /// Writes an entry to a free slot.
    ///
    /// # Errors
    /// The error number (positive).
    fn install(&self, slot: u32, generation: u64, key: &FastKey, action: &FastAction) -> Result<(), i32>;
    /// Stops forwarding by an entry. Its counters stay readable.
    fn revoke(&self, slot: u32);
    /// Removes the index entry that leads from a key to a slot.
    fn remove(&self, key: &FastKey, slot: u32);
    /// Counters of a slot.
    fn flow_stats(&self, slot: u32) -> FastFlowStats;
    /// Milliseconds since the last packet of an entry.
    fn age(&self, stats: &FastFlowStats) -> u32;
}

impl KernelTable for FastPath {
    fn set_generation(&self, generation: u64, granularity: FastGranularity) {
        self.set_generation(generation, granularity);
    }

    fn beat(&self, age: u32) {
        if let Some(now) = coarse_time() {
            self.beat(now.saturating_sub(u64::from(age) * 1_000_000));
        }
    }

    fn install(&self, slot: u32, generation: u64, key: &FastKey, action: &FastAction) -> Result<(), i32> {
        self.install(slot, generation, key, action)
    }

    fn revoke(&self, slot: u32) {
        self.revoke(slot);
    }

    fn remove(&self, key: &FastKey, slot: u32) {
        self.remove(key, slot);
    }

    fn flow_stats(&self, slot: u32) -> FastFlowStats {
        self.flow_stats(slot)
    }

    fn age(&self, stats: &FastFlowStats) -> u32 {
        // Without a clock, the age is the highest.
        let now = coarse_time().unwrap_or(u64::MAX);
        u32::try_from(now.saturating_sub(stats.last) / 1_000_000).unwrap_or(u32::MAX)
    }
}

/// The program's clock, in nanoseconds.
fn coarse_time() -> Option<u64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE).ok()?;
    Some(now.tv_sec().cast_unsigned() * 1_000_000_000 + now.tv_nsec().cast_unsigned())
}

/// The kernel's table as sessions use it.
pub(crate) struct SessionDriver(pub Arc<dyn KernelTable>);

impl OffloadDriver for SessionDriver {
    fn revoke(&self, slot: u32) {
        self.0.revoke(slot);
    }

    fn counters(&self, slot: u32) -> OffloadCounters {
        let stats = self.0.flow_stats(slot);
        let FastFlowStats { packets, bytes, ack, .. } = stats;
        OffloadCounters { packets, bytes, age: self.0.age(&stats), ack }
    }
}
