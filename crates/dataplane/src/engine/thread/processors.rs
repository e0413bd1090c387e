//! Whether the machine's processors are short.
//!
//! Theory of operation. The kernel tells how many threads want to run (`/proc/loadavg`, proc_loadavg(5)). The
//! average of the last looks is compared with the number of processors. A thread that polls counts itself,
//! and those that bring its packets run only now and then. So processors become short when an eighth more
//! threads than processors want to run, and stay so until there are fewer threads than processors.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use nix::unistd::{SysconfVar, sysconf};

/// Least time between two looks, each of which takes about a microsecond.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);
/// What the average counts in, so that a new number may have a small weight.
const PARTS: u32 = 256;
/// A new number is one of so many in the average.
const AVERAGED: u32 = 8;

/// Compares the threads that want to run with the processors.
pub(super) struct Processors {
    /// None: the kernel does not tell, so processors are never short.
    file: Option<File>,
    /// Number of processors, and average of the threads that want to run, in [`PARTS`].
    count: u32,
    running: u32,
    next_look: Instant,
    are_short: bool,
}

impl Processors {
    /// Those of this machine.
    pub fn new(now: Instant) -> Processors {
        let online = sysconf(SysconfVar::_NPROCESSORS_ONLN).ok().flatten();
        let count = online.and_then(|count| u32::try_from(count).ok());
        let file = count.and_then(|_| File::open("/proc/loadavg").ok());
        let count = count.unwrap_or(1).saturating_mul(PARTS);
        Processors { file, count, running: 0, next_look: now, are_short: false }
    }

    /// Whether more threads want to run than there are processors.
    pub fn are_short(&mut self, now: Instant) -> bool {
        if now >= self.next_look {
            self.next_look = now + BETWEEN_LOOKS;
            if let Some(running) = self.file.as_ref().and_then(read_running) {
                self.note(running);
            }
        }
        self.are_short
    }

    /// Takes a number of threads into the average.
    fn note(&mut self, running: u32) {
        let sum = u64::from(self.running) * u64::from(AVERAGED - 1) + u64::from(running) * u64::from(PARTS);
        self.running = (sum / u64::from(AVERAGED)) as u32;
        let limit = if self.are_short { self.count } else { self.count + self.count / 8 };
        self.are_short = self.running >= limit;
    }
}

/// Reads how many threads want to run.
fn read_running(file: &File) -> Option<u32> {
    let mut text = [0; 128];
    let len = file.read_at(&mut text, 0).ok()?;
    parse_running(std::str::from_utf8(text.get(..len)?).ok()?)
}

/// `0.20 0.18 0.12 1/80 11206`: three averages, threads that want to run and all threads, the last process.
fn parse_running(text: &str) -> Option<u32> {
    text.split_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two processors of which nothing is known.
    fn two() -> Processors {
        Processors { file: None, count: 2 * PARTS, running: 0, next_look: Instant::now(), are_short: false }
    }

    #[test]
    fn the_kernel_tells() {
        assert_eq!(parse_running("0.20 0.18 0.12 3/80 11206\n"), Some(3));
        for other in ["", "0.20 0.18 0.12", "0.20 0.18 0.12 x/80 1", "0.20 0.18 0.12 3 80 1"] {
            assert_eq!(parse_running(other), None);
        }
        // This thread runs.
        let now = Instant::now();
        let mut here = Processors::new(now);
        here.are_short(now);
        assert!(here.running >= PARTS / AVERAGED, "{}", here.running);
    }

    #[test]
    fn processors_are_short_while_many_threads_want_to_run() {
        let mut processors = two();
        let mut after = |running, looks: u32| {
            (0..looks).for_each(|_| processors.note(running));
            processors.are_short
        };
        assert!(!after(2, 100), "each has one");
        assert!(!after(3, 1), "for a moment");
        assert!(!after(2, 100));
        assert!(after(3, 20));
        assert!(after(2, 10), "still more than processors");
        assert!(!after(1, 20));
        assert!(!after(2, 100), "not again");
    }

    #[test]
    fn looks_are_rare() {
        let now = Instant::now();
        let mut here = Processors::new(now);
        for times in 1..4 {
            let next_look = now + times * BETWEEN_LOOKS;
            let shown: Vec<_> =
                (0..3).map(|_| (here.are_short(next_look - BETWEEN_LOOKS), here.running)).collect();
            assert_eq!((here.next_look, shown[0]), (next_look, shown[2]));
        }
    }

    #[test]
    fn without_a_number_they_are_not_short() {
        let mut processors = two();
        let now = Instant::now();
        assert!((0..100).all(|n| !processors.are_short(now + n * BETWEEN_LOOKS)));
    }
}
