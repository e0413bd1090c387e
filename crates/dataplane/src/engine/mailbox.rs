//! How other threads ask a worker for something about its sessions.
//!
//! Theory of operation. Sessions belong to one worker, which nobody may hold up. A thread that wants something leaves an
//! errand: a closure that the worker runs between two walks. The worker looks at one flag, takes one errand at a
//! time, and never waits for the lock; whoever leaves an errand sees to it that it takes microseconds, in pieces if need
//! be, and waits for the answer in a channel that the closure carries.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};

use mmb_session::Sessions;

use crate::engine::shared::WorkerShared;
use crate::engine::snapshot::OfWorker;

/// What a worker runs: with its sessions, the snapshot it is on, and the time of its clock.
pub(crate) type Errand = Box<dyn FnOnce(&mut Sessions, &OfWorker<'_>, u32) + Send>;

/// Errands left for one worker.
#[derive(Default)]
pub(crate) struct Mailbox {
    /// Whether there is one; the only thing that a worker looks at while there is none.
    full: AtomicBool,
    errands: Mutex<VecDeque<Errand>>,
}

impl Mailbox {
    fn leave(&self, errand: Errand) {
        let mut errands = self.errands.lock().unwrap_or_else(PoisonError::into_inner);
        errands.push_back(errand);
        self.full.store(true, Ordering::Release);
    }

    /// Whether nothing was left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        !self.full.load(Ordering::Acquire)
    }

    /// The errand that was left first; none, too, while somebody leaves one right now.
    pub fn take(&self) -> Option<Errand> {
        let mut errands = self.errands.try_lock().ok()?;
        let errand = errands.pop_front();
        self.full.store(!errands.is_empty(), Ordering::Release);
        errand
    }
}

/// Has `worker` run `f` and waits for what it answers; `None` if the worker has ended.
pub(crate) fn ask<R: Send + 'static>(
    worker: &WorkerShared,
    f: impl FnOnce(&mut Sessions, &OfWorker<'_>, u32) -> R + Send + 'static,
) -> Option<R> {
    let (tell, told) = mpsc::sync_channel(1);
    worker.mailbox.leave(Box::new(move |sessions, host, now| {
        // Whoever asked waits for this.
        let _ = tell.send(f(sessions, host, now));
    }));
    worker.wake_if_sleeping();
    told.recv().ok()
}
