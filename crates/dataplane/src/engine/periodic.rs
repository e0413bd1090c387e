//! A thread that does something from time to time, beside the workers.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// A pause that only [`PeriodicThread::wake`] ends.
pub(crate) const UNTIL_WOKEN: Duration = Duration::MAX;

/// The thread. It ends when this is dropped.
pub(crate) struct PeriodicThread {
    thread: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl PeriodicThread {
    /// Starts a thread that calls `work`, which returns the pause until the next call. None ends the thread.
    pub fn start(
        name: &str,
        mut work: impl FnMut() -> Option<Duration> + Send + 'static,
    ) -> io::Result<PeriodicThread> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let body = move || {
            while !stopped.load(Ordering::Acquire) {
                match work() {
                    Some(pause) => std::thread::park_timeout(pause),
                    None => return,
                }
            }
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body)?;
        Ok(PeriodicThread { thread: Some(thread), stop })
    }

    /// Ends the current or the next pause.
    pub fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    /// Whether the thread has ended.
    #[cfg(test)]
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }
}

impl Drop for PeriodicThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has nothing to clean up.
            let _ = thread.join();
        }
    }
}

/// Keeps this thread from some CPUs. To allocate a huge page takes a CPU for milliseconds, in which a worker
/// there would wait.
pub(crate) fn leave_cpus(cpus: impl Iterator<Item = usize>) {
    let caller = nix::unistd::Pid::from_raw(0);
    let mut set = nix::sched::sched_getaffinity(caller).unwrap_or_default();
    for cpu in cpus {
        let _ = set.unset(cpu);
    }
    // Without the permission, or without any other CPU, the thread stays where it is.
    let _ = nix::sched::sched_setaffinity(caller, &set);
}
