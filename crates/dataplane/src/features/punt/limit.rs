//! Limits of the packets that the kernel gets.
//!
//! Theory of operation. Each class of packets has a bucket that all workers share. It is a generic cell rate
//! algorithm (ITU-T I.371, annex A): one number, the time at which the bucket is full again. A vector takes
//! all its packets of a class in one step.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use mmb_lang::PuntClass;

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;
/// A bucket holds the packets of this time.
const BURST: u64 = SECOND / 10;
/// Least packets that a bucket holds.
const BURST_MIN: u64 = 32;

/// Packets per second that the kernel gets, for each class. None: no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PuntLimits([Option<u32>; PuntClass::ALL.len()]);

impl Default for PuntLimits {
    fn default() -> Self {
        PuntLimits(PuntClass::ALL.map(|class| {
            Some(match class {
                PuntClass::Neighbor => 2_000,
                PuntClass::Routing | PuntClass::Local => 10_000,
                PuntClass::Other => 2_000,
            })
        }))
    }
}

impl PuntLimits {
    /// The limit of a class.
    pub fn get(&self, class: PuntClass) -> Option<u32> {
        self.0[class as usize]
    }

    /// Sets the limit of a class.
    pub fn set(&mut self, class: PuntClass, rate: Option<u32>) {
        self.0[class as usize] = rate;
    }
}

/// The buckets of all classes.
#[derive(Debug, Default)]
pub(crate) struct PuntBuckets([Bucket; PuntClass::ALL.len()]);

impl PuntBuckets {
    /// Takes packets of each class out of the buckets. Returns how many of each class may go on. `now`:
    /// nanoseconds.
    pub fn take(&self, limits: &PuntLimits, wanted: &PuntCount, now: u64) -> PuntCount {
        PuntClass::ALL.map(|class| match (limits.get(class), wanted[class as usize]) {
            (Some(rate), n @ 1..) => self.0[class as usize].take(rate, n, now),
            (_, n) => n,
        })
    }
}

/// Packets of each class.
pub(crate) type PuntCount = [u32; PuntClass::ALL.len()];

/// One bucket: the time at which it is full again, in nanoseconds.
#[derive(Debug, Default)]
struct Bucket(AtomicU64);

impl Bucket {
    /// Takes at most `n` packets; returns how many there were. `rate`: packets per second, not 0.
    fn take(&self, rate: u32, n: u32, now: u64) -> u32 {
        let interval = SECOND / u64::from(rate.max(1));
        let burst = BURST.max(BURST_MIN * interval);
        let mut taken = 0;
        // Another worker may take at the same time; then the computation is repeated.
        let _ = self.0.fetch_update(Relaxed, Relaxed, |full| {
            let full = full.max(now);
            let room = (now + burst).saturating_sub(full) / interval;
            taken = u64::from(n).min(room);
            (taken > 0).then_some(full + taken * interval)
        });
        taken as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_keeps_its_rate_and_its_burst() {
        let bucket = Bucket::default();
        let mut now = 5 * SECOND;
        assert_eq!(bucket.take(1_000, 300, now), 100, "a tenth of a second");
        assert_eq!(bucket.take(1_000, 300, now), 0);
        let mut taken = 0;
        for _ in 0..1_000 {
            now += SECOND / 1_000;
            taken += bucket.take(1_000, 45, now);
        }
        assert_eq!(taken, 1_000, "packets of one second");
        assert_eq!(bucket.take(1_000, 300, now + 3_600 * SECOND), 100, "no more after a long pause");
    }

    #[test]
    fn a_slow_bucket_holds_some_packets() {
        let bucket = Bucket::default();
        assert_eq!(bucket.take(1, 300, SECOND), BURST_MIN as u32);
        assert_eq!(bucket.take(1, 300, 2 * SECOND), 1);
    }

    #[test]
    fn classes_do_not_share() {
        let buckets = PuntBuckets::default();
        let mut limits = PuntLimits::default();
        limits.set(PuntClass::Local, Some(1_000));
        limits.set(PuntClass::Other, None);
        assert_eq!(buckets.take(&limits, &[5, 5, 256, 256], SECOND), [5, 5, 100, 256]);
        assert_eq!(buckets.take(&limits, &[5, 5, 256, 256], SECOND), [5, 5, 0, 256]);
    }
}
