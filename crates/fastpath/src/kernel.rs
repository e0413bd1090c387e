//! The kernel's table of entries; tests use one in memory.

use std::fs;
use std::sync::{Arc, LazyLock};

use mmb_dpdk::{FAST_FIN, FastAction, FastFlowStats, FastGranularity, FastKey, FastPath};
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

/// The program's clock, in nanoseconds: that of the machine, also in a time namespace.
fn coarse_time() -> Option<u64> {
    static OFFSET: LazyLock<i64> = LazyLock::new(|| {
        monotonic_offset(&fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default())
    });
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE).ok()?;
    (now.tv_sec() * 1_000_000_000 + now.tv_nsec()).checked_sub(*OFFSET).map(i64::cast_unsigned)
}

/// By how many nanoseconds the monotonic clock of the process is ahead of the machine's
/// (time_namespaces(7)); 0 if the kernel has no time namespaces.
fn monotonic_offset(offsets: &str) -> i64 {
    let parse = |line: &str| {
        let [_, seconds, nanoseconds] = line.split_whitespace().collect::<Vec<_>>().try_into().ok()?;
        seconds.parse::<i64>().ok()?.checked_mul(1_000_000_000)?.checked_add(nanoseconds.parse().ok()?)
    };
    // Older kernels name the clock by its number.
    let line = offsets.lines().find(|line| line.starts_with("monotonic") || line.starts_with("1 "));
    line.and_then(parse).unwrap_or(0)
}

/// The kernel's table as sessions use it.
pub(crate) struct SessionDriver(pub Arc<dyn KernelTable>);

impl OffloadDriver for SessionDriver {
    fn revoke(&self, slot: u32) {
        self.0.revoke(slot);
    }

    fn counters(&self, slot: u32) -> OffloadCounters {
        let stats = self.0.flow_stats(slot);
        let FastFlowStats { packets, bytes, ack, ended, fin_end, .. } = stats;
        let fin = (ended & FAST_FIN != 0).then_some(fin_end);
        OffloadCounters { packets, bytes, age: self.0.age(&stats), ack, fin }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_of_a_time_namespace_is_read() {
        assert_eq!(monotonic_offset("monotonic           0         0\nboottime   7    1\n"), 0);
        assert_eq!(monotonic_offset("monotonic  -172800  5\nboottime 0 0\n"), -172_799_999_999_995);
        assert_eq!(monotonic_offset("1 864000 0\n7 0 0\n"), 864_000_000_000_000);
        for nothing in ["", "monotonic", "monotonic x 0", "monotonic 9223372036854775807 0"] {
            assert_eq!(monotonic_offset(nothing), 0, "{nothing}");
        }
    }
}
