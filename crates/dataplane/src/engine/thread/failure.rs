//! Workers that end or stop responding although nobody stopped them.
//!
//! Theory of operation. A worker that panics outside a graph walk ends alone: its thread unwinds, and the
//! rest of the process goes on without it. (A panic inside a walk has DPDK's C code below it, so it aborts
//! the process.) Its packets are lost, and a thread that waits for it would wait for ever. So the worker's
//! thread reports its end, and other threads wait for a limited time. The process that runs the engine is
//! told, and should end.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Time that a worker has to respond. It takes microseconds, and milliseconds on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// Longest time that one turn of a waiting loop counts: time in which the whole process stood still
/// (SIGSTOP, a paused virtual machine) does not.
const TURN: Duration = Duration::from_millis(1);

/// Why the engine works no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkerFailure {
    /// The thread of a worker has ended.
    #[error("worker {worker} has ended unexpectedly; the output before this line has the reason")]
    Ended {
        /// The worker's number.
        worker: usize,
    },
    /// A worker does not respond.
    #[error("worker {worker} has not responded for {seconds} seconds")]
    Silent {
        /// The worker's number.
        worker: usize,
        /// How long it was waited for.
        seconds: u64,
    },
}

type Hook = Box<dyn FnOnce(WorkerFailure) + Send>;

/// The first failure of a worker, and who wants to know of it.
#[derive(Default)]
pub(crate) struct FailureReport {
    first: OnceLock<WorkerFailure>,
    hook: Mutex<Option<Hook>>,
}

impl FailureReport {
    /// The first failure.
    pub fn get(&self) -> Option<WorkerFailure> {
        self.first.get().copied()
    }

    /// Reports a failure. The first one counts.
    pub fn set(&self, failure: WorkerFailure) {
        if self.first.set(failure).is_ok() {
            self.notify();
        }
    }

    /// Calls `hook` with the first failure, at once if there is one already.
    pub fn on_failure(&self, hook: Hook) {
        *self.hook.lock().unwrap_or_else(PoisonError::into_inner) = Some(hook);
        self.notify();
    }

    fn notify(&self) {
        let Some(failure) = self.get() else { return };
        let hook = self.hook.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(hook) = hook {
            hook(failure);
        }
    }
}

/// Measures how long a loop has waited while the process ran.
pub(crate) struct Patience {
    last: Instant,
    waited: Duration,
}

impl Patience {
    /// Begins to measure.
    pub fn new() -> Patience {
        Patience { last: Instant::now(), waited: Duration::ZERO }
    }

    /// Counts a turn of the loop. Returns whether the patience is over.
    pub fn is_over(&mut self) -> bool {
        let now = Instant::now();
        self.waited += (now - self.last).min(TURN);
        self.last = now;
        self.waited >= PATIENCE
    }

    /// The time waited so far.
    pub fn waited(&self) -> Duration {
        self.waited
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn the_first_failure_is_reported_once_before_or_after_the_hook() {
        for before in [true, false] {
            let (report, (sender, receiver)) = (FailureReport::default(), mpsc::channel());
            let first = WorkerFailure::Ended { worker: 1 };
            let hook = Box::new(move |failure| sender.send(failure).unwrap());
            if before {
                report.set(first);
                report.on_failure(hook);
            } else {
                report.on_failure(hook);
                report.set(first);
            }
            report.set(WorkerFailure::Silent { worker: 0, seconds: 1 });
            assert_eq!((report.get(), receiver.iter().collect::<Vec<_>>()), (Some(first), vec![first]));
        }
    }

    #[test]
    fn time_in_which_the_process_stood_still_does_not_count() {
        let mut patience = Patience::new();
        patience.last -= 3 * PATIENCE;
        assert!(!patience.is_over() && patience.waited() <= TURN);
    }
}
