//! A thread that asks the kernel repeatedly which interfaces take redirected frames, while flows are learned.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::generation::FastPathState;

/// Pause between two checks: frames may be lost for this long after an interface stopped taking them.
const PAUSE: Duration = Duration::from_millis(50);

/// The thread. It ends when this is dropped.
pub struct PortMonitor {
    thread: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl PortMonitor {
    /// Starts the thread. `update_ports` checks all ports and updates [`crate::FastPathPort::can_redirect`];
    /// it returns whether one has changed. No port may close while it is checked, or this thread might close
    /// it.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(
        state: Arc<FastPathState>,
        update_ports: impl Fn() -> bool + Send + 'static,
    ) -> io::Result<PortMonitor> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let body = move || {
            while !stopped.load(Ordering::Acquire) {
                if state.is_learning() {
                    if update_ports() {
                        state.ports_changed();
                    }
                    std::thread::park_timeout(PAUSE);
                } else {
                    std::thread::park();
                }
            }
        };
        let thread = std::thread::Builder::new().name("mmb-fast-path".to_owned()).spawn(body)?;
        Ok(PortMonitor { thread: Some(thread), stop })
    }

    /// Makes the thread go on, which sleeps while flows are not learned.
    pub fn resume(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for PortMonitor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.resume();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has nothing to clean up.
            let _ = thread.join();
        }
    }
}
