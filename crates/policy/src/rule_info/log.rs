//! What rules with the target `log` share between workers: the beginning of their lines, and their limit.
//!
//! Theory of operation. A rule may log [`BURST`] packets at once and one every [`INTERVAL`] milliseconds on
//! average. The bucket of tokens is one number, the time at which it is full again (the generic cell rate
//! algorithm, ITU-T I.371). All workers share it; their clocks have the same beginning. Packets beyond the
//! limit are counted, and the writer of the lines fetches the number.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use mmb_lang::{Action, Rule};

/// Milliseconds between two lines of a rule, on average.
const INTERVAL: u32 = 100;
/// Lines that a rule may write at once.
const BURST: u32 = 20;
/// Difference of workers' clocks, in milliseconds. A bucket that is full later than this after the longest
/// possible time was full long ago: the clock has wrapped.
const CLOCK_SKEW: u32 = 2_000;

/// How a rule logs packets.
#[derive(Debug)]
pub struct RuleLog {
    /// Name of the rule.
    pub name: Option<Box<str>>,
    /// Beginning of the lines.
    pub prefix: Option<Box<str>>,
    /// When the bucket is full, in milliseconds of the workers' clocks.
    full_at: AtomicU32,
    /// Packets beyond the limit that have not been reported.
    suppressed: AtomicU64,
}

impl RuleLog {
    /// How this rule logs. `None`: it does not.
    pub(crate) fn of(rule: &Rule) -> Option<RuleLog> {
        rule.targets.iter().find_map(|target| match &target.action {
            Action::Log { prefix } => Some(RuleLog {
                name: rule.name().map(|name| name.text.clone()),
                prefix: prefix.clone(),
                full_at: 0.into(),
                suppressed: 0.into(),
            }),
            _ => None,
        })
    }

    /// Whether the limit allows one more line at this time of the worker's clock, in milliseconds. If not,
    /// the packet is counted.
    pub fn take(&self, now: u32) -> bool {
        let taken = self.full_at.fetch_update(Relaxed, Relaxed, |full_at| {
            let missing = full_at.wrapping_sub(now);
            let missing = if missing > BURST * INTERVAL + CLOCK_SKEW { 0 } else { missing };
            (missing <= (BURST - 1) * INTERVAL).then(|| now.wrapping_add(missing + INTERVAL))
        });
        if taken.is_err() {
            self.suppressed.fetch_add(1, Relaxed);
        }
        taken.is_ok()
    }

    /// Fetches the number of packets beyond the limit since the last call.
    pub fn take_suppressed(&self) -> u64 {
        self.suppressed.swap(0, Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(line: &str) -> RuleLog {
        match mmb_lang::parse_line(line) {
            Ok(Some(mmb_lang::Command::Add(rule))) => RuleLog::of(&rule).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_burst_passes_and_then_ten_a_second() {
        for start in [0, 5_000, u32::MAX - 500] {
            let log = log("add all log prefix \"a b\" drop name web");
            assert_eq!((log.name.as_deref(), log.prefix.as_deref()), (Some("web"), Some("a b")));
            let lines =
                |at: u32, packets: u32| (0..packets).filter(|_| log.take(start.wrapping_add(at))).count();
            assert!(log.take(start.wrapping_sub(10_000)));
            assert_eq!(lines(0, 100), 20, "from {start}");
            assert_eq!(lines(99, 10), 0);
            assert_eq!(lines(1_000, 50), 10);
            assert_eq!(log.take_suppressed(), 80 + 10 + 40);
            assert_eq!(log.take_suppressed(), 0);
            // A month later the bucket is full, whatever the clock shows.
            assert_eq!(lines(2_600_000_000, 100), 20);
        }
    }
}
