//! The arithmetic of token buckets.
//!
//! Theory of operation. A bucket is one word, so that workers can share it without a lock: 40 bits say what
//! is *missing* in the bucket, in units, and 24 bits the millisecond at which that was so. Zeros are a full
//! bucket. A rate is a number of units per millisecond, so that nothing is divided.
//!
//! The clock of 24 bits wraps after 4.6 hours. A bucket that had no packet for that long may count as less
//! full than it is. It never counts as fuller.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bits of a word that say what is missing.
const MISSING_BITS: u32 = 40;
const MISSING: u64 = (1 << MISSING_BITS) - 1;
/// Bits of the time.
const TIME: u32 = (1 << (u64::BITS - MISSING_BITS)) - 1;
/// Milliseconds by which the clock of one worker may be behind that of another one.
const BEHIND: u32 = 1000;

/// How buckets are filled, and what they hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Filling {
    /// Units per millisecond.
    rate: u64,
    /// Units that fit.
    burst: u64,
    /// A unit is two to this power of the caller's.
    shift: u32,
}

impl Filling {
    /// `rate` in units per millisecond and `burst` in units. Units are made coarser, with rounding, if the
    /// burst has more than 2^39 of them (68 MB in thousandths of a bit).
    pub fn new(rate: u64, burst: u64) -> Filling {
        let shift = (u64::BITS - burst.leading_zeros()).saturating_sub(MISSING_BITS - 1);
        Filling { rate: round_up(rate, shift), burst: burst >> shift, shift }
    }

    /// Returns the units of something that costs `units` of the caller's.
    #[inline(always)]
    pub fn cost(&self, units: u64) -> u64 {
        round_up(units, self.shift)
    }

    /// Returns what is missing now, and the time to write down with it.
    #[inline(always)]
    fn missing(&self, word: u64, now: u32) -> (u64, u32) {
        let (missing, at) = (word & MISSING, (word >> MISSING_BITS) as u32);
        let elapsed = now.wrapping_sub(at) & TIME;
        if elapsed > TIME - BEHIND && missing > 0 {
            return (missing, at);
        }
        (missing.saturating_sub(self.rate.saturating_mul(u64::from(elapsed))), now & TIME)
    }

    /// Takes between `least` and `most` units out of a bucket, and leaves half of what is beyond `least` to
    /// others. Returns the bucket and what was taken: zero if there is less than `least`.
    #[inline(always)]
    pub fn take(&self, word: u64, now: u32, least: u64, most: u64) -> (u64, u64) {
        let (missing, at) = self.missing(word, now);
        let room = self.burst.saturating_sub(missing);
        let taken = if least <= room { most.min(room / 2).max(least) } else { 0 };
        (pack(missing + taken, at), taken)
    }

    /// Takes units from a bucket that workers share; see [`Filling::take`].
    #[inline(always)]
    pub fn take_shared(&self, bucket: &AtomicU64, now: u32, least: u64, most: u64) -> u64 {
        let mut word = bucket.load(Relaxed);
        loop {
            let (new, taken) = self.take(word, now, least, most);
            if new == word {
                return taken;
            }
            match bucket.compare_exchange_weak(word, new, Relaxed, Relaxed) {
                Ok(_) => return taken,
                Err(current) => word = current,
            }
        }
    }

    /// Takes units from a bucket that may have less, which is then missing.
    pub fn take_always(&self, bucket: &AtomicU64, now: u32, units: u64) {
        let taken = |word: u64| {
            let (missing, at) = self.missing(word, now);
            Some(pack((missing + units).min(MISSING), at))
        };
        let _ = bucket.fetch_update(Relaxed, Relaxed, taken);
    }

    /// Gives units back that were taken.
    #[inline(always)]
    pub fn give_back(&self, bucket: &AtomicU64, units: u64) {
        let given = |word: u64| Some((word & !MISSING) | (word & MISSING).saturating_sub(units));
        let _ = bucket.fetch_update(Relaxed, Relaxed, given);
    }

    /// Whether a bucket has this many units.
    pub fn has(&self, word: u64, now: u32, units: u64) -> bool {
        self.missing(word, now).0 + units <= self.burst
    }

    /// Whether nothing is missing.
    pub fn is_full(&self, word: u64, now: u32) -> bool {
        self.missing(word, now).0 == 0
    }
}

fn pack(missing: u64, at: u32) -> u64 {
    u64::from(at) << MISSING_BITS | missing
}

#[inline(always)]
fn round_up(units: u64, shift: u32) -> u64 {
    (units + ((1 << shift) - 1)) >> shift
}
