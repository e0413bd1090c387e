//! Tasks that other threads leave for a worker.
//!
//! Theory of operation. Sessions belong to one worker, and nobody may block it. A thread that needs something
//! of them leaves a task: a closure that the worker runs between two walks. The worker tests one flag, takes
//! one task at a time, and never waits for the lock. A task takes microseconds; longer work is divided into
//! several tasks. The thread that left a task waits for the answer in a channel that the closure owns.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};

use mmb_session::Sessions;

use crate::engine::shared::WorkerShared;
use crate::engine::snapshot::WorkerSnapshot;

/// A closure that a worker runs with its sessions, its snapshot, and its time in milliseconds.
pub(crate) type WorkerTask = Box<dyn FnOnce(&mut Sessions, &WorkerSnapshot<'_>, u32) + Send>;

/// Tasks for one worker.
#[derive(Default)]
pub(crate) struct Mailbox {
    /// Whether there is a task; all that the worker reads while there is none.
    has_task: AtomicBool,
    tasks: Mutex<VecDeque<WorkerTask>>,
}

impl Mailbox {
    fn push(&self, task: WorkerTask) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.push_back(task);
        self.has_task.store(true, Ordering::Release);
    }

    /// Whether there is no task.
    #[inline]
    pub fn is_empty(&self) -> bool {
        !self.has_task.load(Ordering::Acquire)
    }

    /// Takes the oldest task; none while another thread holds the lock.
    pub fn take(&self) -> Option<WorkerTask> {
        let mut tasks = self.tasks.try_lock().ok()?;
        let task = tasks.pop_front();
        self.has_task.store(!tasks.is_empty(), Ordering::Release);
        task
    }
}

/// Runs `f` on `worker` and waits for its result; none if the worker has ended.
pub(crate) fn run_on_worker<R: Send + 'static>(
    worker: &WorkerShared,
    f: impl FnOnce(&mut Sessions, &WorkerSnapshot<'_>, u32) -> R + Send + 'static,
) -> Option<R> {
    let (sender, receiver) = mpsc::sync_channel(1);
    worker.mailbox.push(Box::new(move |sessions, snapshot, now| {
        // The receiver waits below, so sending does not fail.
        let _ = sender.send(f(sessions, snapshot, now));
    }));
    worker.wake_if_sleeping();
    receiver.recv().ok()
}
