//! Tasks that other threads leave for a worker.
//!
//! Theory of operation. Sessions belong to one worker, and nobody may block it. A thread that needs something
//! of them leaves a task: a closure that the worker runs between two walks. The worker tests one flag, takes
//! one task at a time, and never waits for the lock. A task takes microseconds; longer work is divided into
//! several tasks. The thread that left a task waits for the answer in a channel that the closure owns.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mmb_session::Sessions;

use crate::engine::shared::WorkerShared;
use crate::engine::snapshot::WorkerSnapshot;
use crate::engine::thread::failure::PATIENCE;
use crate::features::trace::record::TraceRequest;

/// Time of one turn of waiting for a result.
const TURN: Duration = Duration::from_millis(50);

/// A closure that a worker runs with its sessions, its snapshot, and its time in milliseconds.
type SessionTask = Box<dyn FnOnce(&mut Sessions, &WorkerSnapshot<'_>, u32) + Send>;

/// Something that a worker does for another thread.
pub(crate) enum WorkerTask {
    /// The worker runs a closure.
    Sessions(SessionTask),
    /// The worker begins to trace packets; none: it ends.
    Trace(Option<Box<TraceRequest>>),
}

/// Tasks for one worker.
#[derive(Default)]
pub(crate) struct Mailbox {
    /// Whether there is a task; all that the worker reads while there is none.
    has_task: AtomicBool,
    tasks: Mutex<Tasks>,
}

#[derive(Default)]
struct Tasks {
    waiting: VecDeque<WorkerTask>,
    /// Whether the worker has ended. Then tasks are dropped, and who waits for their answers gets none.
    closed: bool,
}

impl Mailbox {
    pub fn push(&self, task: WorkerTask) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if !tasks.closed {
            tasks.waiting.push_back(task);
            self.has_task.store(true, Ordering::Release);
        }
    }

    /// Drops all tasks, those that come later too: the worker has ended.
    pub fn close(&self) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.closed = true;
        let waiting = std::mem::take(&mut tasks.waiting);
        drop(tasks);
        drop(waiting);
    }

    /// Whether there is no task.
    #[inline]
    pub fn is_empty(&self) -> bool {
        !self.has_task.load(Ordering::Acquire)
    }

    /// Takes the oldest task; none while another thread holds the lock.
    pub fn take(&self) -> Option<WorkerTask> {
        let mut tasks = self.tasks.try_lock().ok()?;
        let task = tasks.waiting.pop_front();
        self.has_task.store(!tasks.waiting.is_empty(), Ordering::Release);
        task
    }
}

/// Runs `f` on `worker` and waits for its result; none if the worker has ended or does not respond.
pub(crate) fn run_on_worker<R: Send + 'static>(
    worker: &WorkerShared,
    f: impl FnOnce(&mut Sessions, &WorkerSnapshot<'_>, u32) -> R + Send + 'static,
) -> Option<R> {
    let (sender, receiver) = mpsc::sync_channel(1);
    worker.mailbox.push(WorkerTask::Sessions(Box::new(move |sessions, snapshot, now| {
        // The receiver waits below, so sending does not fail.
        let _ = sender.send(f(sessions, snapshot, now));
    })));
    worker.wake_if_sleeping();
    // Turns and not a time are counted: the process may have stood still.
    for _ in 0..PATIENCE.as_millis() / TURN.as_millis() {
        match receiver.recv_timeout(TURN) {
            Err(RecvTimeoutError::Timeout) => {}
            other => return other.ok(),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_a_worker_that_has_ended() {
        let worker = WorkerShared::new(None).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| run_on_worker(&worker, |_, _, _| ()));
            while worker.mailbox.is_empty() {
                std::thread::yield_now();
            }
            worker.mailbox.close();
            assert_eq!(waiting.join().unwrap(), None);
        });
        assert_eq!(run_on_worker(&worker, |_, _, _| ()), None);
    }
}
