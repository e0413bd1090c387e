//! What a process does while there are no packets: spin, yield the processor, or sleep.
//!
//! # Theory of operation
//! With `poll`, the process spins and then yields, and never sleeps. With `event`, it sleeps at once.
//!
//! With `adaptive`, it looks for packets for a while before it sleeps, and the while follows the traffic: it
//! doubles if a sleep was so short that a longer look would have found the packets, and halves if a sleep was
//! long. So packets that come close together find the process awake, as with `poll`, and rare ones wake it
//! up, as with `event`. Within the while, the process spins first and yields then, since the sender may need
//! this processor.

use std::time::{Duration, Instant};

use mmb_nf::ProcessMode;

/// How long the process spins before it yields.
const SPIN: Duration = Duration::from_micros(20);
/// The shortest look of an adaptive process that looks at all, and the longest one.
const SHORTEST: Duration = Duration::from_micros(10);
const LONGEST: Duration = Duration::from_micros(200);

/// What to do next without packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleStep {
    Spin,
    Yield,
    Sleep,
}

/// Decides what a process does without packets.
#[derive(Debug)]
pub struct Idle {
    mode: ProcessMode,
    /// How long an adaptive process looks for packets.
    look: Duration,
    /// Since when there are no packets.
    since: Option<Instant>,
}

impl Idle {
    pub fn new(mode: ProcessMode) -> Idle {
        Idle { mode, look: LONGEST, since: None }
    }

    /// There were packets.
    #[inline]
    pub fn reset(&mut self) {
        self.since = None;
    }

    /// There are no packets. `now`: the clock.
    pub fn step(&mut self, now: impl FnOnce() -> Instant) -> IdleStep {
        if self.mode == ProcessMode::Event {
            return IdleStep::Sleep;
        }
        let now = now();
        let idle = now.duration_since(*self.since.get_or_insert(now));
        if self.mode == ProcessMode::Adaptive && idle >= self.look {
            IdleStep::Sleep
        } else if idle < SPIN {
            IdleStep::Spin
        } else {
            IdleStep::Yield
        }
    }

    /// The process has slept for so long.
    pub fn note_sleep(&mut self, slept: Duration) {
        self.since = None;
        self.look = if slept < LONGEST {
            (self.look * 2).clamp(SHORTEST, LONGEST)
        } else if self.look > SHORTEST {
            self.look / 2
        } else {
            Duration::ZERO
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The steps in the given microseconds without packets.
    fn steps(idle: &mut Idle, micros: &[u64]) -> Vec<IdleStep> {
        let begin = Instant::now();
        micros.iter().map(|micros| idle.step(|| begin + Duration::from_micros(*micros))).collect()
    }

    #[test]
    fn a_polling_process_never_sleeps_and_an_event_process_always_does() {
        use IdleStep::{Sleep, Spin, Yield};
        assert_eq!(
            steps(&mut Idle::new(ProcessMode::Poll), &[0, 10, 30, 1_000_000]),
            [Spin, Spin, Yield, Yield]
        );
        assert_eq!(steps(&mut Idle::new(ProcessMode::Event), &[0, 10]), [Sleep, Sleep]);
        assert_eq!(
            steps(&mut Idle::new(ProcessMode::Adaptive), &[0, 10, 30, 199, 200]),
            [Spin, Spin, Yield, Yield, Sleep]
        );
    }

    #[test]
    fn an_adaptive_process_follows_the_traffic() {
        let mut idle = Idle::new(ProcessMode::Adaptive);
        for _ in 0..6 {
            idle.note_sleep(Duration::from_millis(1));
        }
        // Rare packets: it sleeps at once.
        assert_eq!(steps(&mut idle, &[0]), [IdleStep::Sleep]);
        idle.note_sleep(Duration::from_micros(50));
        assert_eq!(steps(&mut idle, &[0, 10]), [IdleStep::Spin, IdleStep::Sleep]);
        for _ in 0..10 {
            idle.note_sleep(Duration::from_micros(50));
        }
        assert_eq!(steps(&mut idle, &[0, 199, 200]), [IdleStep::Spin, IdleStep::Yield, IdleStep::Sleep]);
    }

    #[test]
    fn packets_begin_the_look_anew() {
        let mut idle = Idle::new(ProcessMode::Adaptive);
        assert_eq!(steps(&mut idle, &[0, 300]), [IdleStep::Spin, IdleStep::Sleep]);
        idle.reset();
        assert_eq!(steps(&mut idle, &[300]), [IdleStep::Spin]);
    }
}
