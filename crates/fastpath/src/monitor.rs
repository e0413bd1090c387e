//! A thread that knows which interfaces take redirected frames, while flows are learned.
//!
//! It asks the kernel at first, and again when the kernel reports that an interface has changed: its XDP
//! features, or that it goes up, down or away. Frames may be lost in between: from when an interface stops
//! taking them until this thread has run.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mmb_dpdk::redirect_reports;
use mmb_router::{LinkWaker, LinkWatch};

use crate::generation::FastPathState;

/// Time without a report after which ports are checked anyway.
const LONGEST: Duration = Duration::from_secs(1);
/// Time between two checks, at least: a container that starts or ends causes many reports.
const SPACING: Duration = Duration::from_millis(5);

/// The thread. It ends when this is dropped.
pub struct PortMonitor {
    thread: Option<JoinHandle<()>>,
    waker: LinkWaker,
    stop: Arc<AtomicBool>,
}

impl PortMonitor {
    /// Starts the thread. `update_ports` checks all ports and updates [`crate::FastPathPort::can_redirect`];
    /// it returns whether one has changed. No port may close while it is checked, or this thread might close
    /// it.
    ///
    /// # Errors
    /// There is no descriptor left, or the thread cannot be started.
    pub fn start(
        state: Arc<FastPathState>,
        update_ports: impl Fn() -> bool + Send + 'static,
    ) -> io::Result<PortMonitor> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let mut watch = LinkWatch::new()?;
        if let Ok(reports) = redirect_reports() {
            watch.listen_to(reports);
        }
        let waker = watch.waker();
        let body = move || {
            while !stopped.load(Ordering::Acquire) {
                if state.is_learning() {
                    let checked = Instant::now();
                    if update_ports() {
                        state.ports_changed();
                    }
                    watch.wait(LONGEST);
                    std::thread::sleep(SPACING.saturating_sub(checked.elapsed()));
                } else {
                    watch.sleep();
                }
            }
        };
        let thread = std::thread::Builder::new().name("mmb-fast-path".to_owned()).spawn(body)?;
        Ok(PortMonitor { thread: Some(thread), waker, stop })
    }

    /// Makes the thread go on, which sleeps while flows are not learned.
    pub fn resume(&self) {
        self.waker.wake();
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
