//! Counters of an instance that its workers write and `show functions` reads.

use std::sync::atomic::{AtomicU64, Ordering};

/// `N` counters for each worker. A worker writes only its own, so that no cache line is shared, and additions
/// need not be atomic.
pub struct WorkerCounters<const N: usize>(Box<[Row<N>]>);

#[repr(align(64))]
struct Row<const N: usize>([AtomicU64; N]);

impl<const N: usize> WorkerCounters<N> {
    /// Makes counters with the value zero.
    pub fn new(workers: u16) -> Self {
        WorkerCounters((0..workers.max(1)).map(|_| Row(std::array::from_fn(|_| AtomicU64::new(0)))).collect())
    }

    /// Adds to counter `which` of the calling worker.
    #[inline]
    pub fn add(&self, worker: u16, which: usize, n: u64) {
        if let Some(counter) = self.0.get(usize::from(worker)).and_then(|row| row.0.get(which)) {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
        }
    }

    /// Returns the sum of counter `which` over all workers.
    pub fn sum(&self, which: usize) -> u64 {
        self.0.iter().filter_map(|row| row.0.get(which)).map(|n| n.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_add_up() {
        let tally = WorkerCounters::<2>::new(2);
        for (worker, which, n) in [(0, 0, 1), (1, 0, 10), (1, 1, 5), (0, 0, 2)] {
            tally.add(worker, which, n);
        }
        tally.add(9, 0, 1000);
        assert_eq!((tally.sum(0), tally.sum(1), tally.sum(2)), (13, 5, 0));
    }
}
