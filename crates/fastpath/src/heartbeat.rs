//! The heartbeat of the workers that have entries.
//!
//! # Theory of operation A worker that stands still neither ends its sessions nor adopts a change, but the
//! kernel would forward the packets of its entries for ever. So each worker that has entries notes the time
//! every few milliseconds, and writes the earliest of these times to the kernel's table. The program ignores
//! all entries when that time is a second ago: the process is stopped, or one of the workers hangs. With the
//! next heartbeat the entries count again.

use std::sync::atomic::{AtomicU64, Ordering};

/// Workers at most.
const WORKERS: usize = 256;
/// Milliseconds between two heartbeats of a worker.
pub(crate) const INTERVAL: u32 = 20;

/// The times of the last heartbeats.
pub(crate) struct Heartbeats {
    /// By worker: milliseconds of the workers' clock, plus 2^32; 0: the worker has no entries.
    times: [AtomicU64; WORKERS],
}

impl Default for Heartbeats {
    fn default() -> Heartbeats {
        Heartbeats { times: [const { AtomicU64::new(0) }; WORKERS] }
    }
}

impl Heartbeats {
    /// Notes that a worker with entries is alive at `now`. Returns the age of the earliest heartbeat.
    pub fn note(&self, worker: usize, now: u32) -> u32 {
        if let Some(time) = self.times.get(worker) {
            time.store(u64::from(now) | 1 << 32, Ordering::Release);
        }
        let times = self.times.iter().map(|time| time.load(Ordering::Acquire)).filter(|&time| time != 0);
        // The clocks of workers differ by little; a later time is no age.
        let age = |time: u64| now.wrapping_sub(time as u32);
        times.map(age).filter(|&age| age < u32::MAX / 2).max().unwrap_or(0)
    }

    /// Notes that a worker has no entries.
    pub fn clear(&self, worker: usize) {
        if let Some(time) = self.times.get(worker) {
            time.store(0, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_worker_with_entries_counts() {
        let beats = Heartbeats::default();
        let start = u32::MAX - 100;
        assert_eq!(beats.note(0, start), 0);
        assert_eq!(beats.note(1, start.wrapping_add(300)), 300);
        assert_eq!(beats.note(1, start.wrapping_add(1300)), 1300);
        assert_eq!(beats.note(0, start.wrapping_add(1290)), 0, "the other clock is ahead");
        beats.clear(0);
        assert_eq!(beats.note(1, start.wrapping_add(9000)), 0);
        assert_eq!(beats.note(WORKERS, start.wrapping_add(9001)), 1, "no such worker");
    }
}
