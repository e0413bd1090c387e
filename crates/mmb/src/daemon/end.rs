//! The end of the daemon: what ends it, and how long that may take.

use std::process::exit;
use std::sync::Once;
use std::thread;
use std::time::Duration;

use mmb_control::Control;
use mmb_dataplane::WorkerFailure;
use mmb_system::log;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::failure::{FAILED, Failure};

/// Time that the daemon has to stop.
const LIMIT: Duration = Duration::from_secs(5);
/// Time that output has to be written at the end.
pub const FLUSH: Duration = Duration::from_millis(500);

/// What ends the daemon.
pub enum End {
    /// A signal with this name.
    Signal(&'static str),
    /// The engine works no longer.
    Failure(WorkerFailure),
    /// The process with this number has taken over.
    TakenOver(u32),
}

/// Makes the process end [`LIMIT`] from now at the latest. Something may hold it: a device that does not
/// close, a request that does not end, a full pipe.
pub fn limit_time() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let watchdog = || {
            thread::sleep(LIMIT);
            let seconds = LIMIT.as_secs();
            log::error(format!("error: the daemon has not stopped within {seconds} seconds; it ends now\n"));
            log::flush(FLUSH);
            // Even the functions that run at the exit of a process may wait.
            let _ = thread::Builder::new().spawn(|| exit(i32::from(FAILED)));
            thread::sleep(FLUSH);
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
        };
        // Without the thread, the daemon stops as fast as it can.
        let _ = thread::Builder::new().name("mmb-watchdog".into()).spawn(watchdog);
    });
}

/// Listens for a signal. Call it in the runtime.
pub fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|e| Failure::new(format!("cannot listen for signals: {e}")))
}

/// The signals that stop the daemon.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Listens for the signals. Call it in the runtime.
    pub fn new() -> Result<Signals, Failure> {
        Ok(Signals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// Waits for a signal. From then on, the process has a limited time.
    pub async fn wait(mut self) -> End {
        let name = tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        };
        limit_time();
        End::Signal(name)
    }
}

/// Waits for a failure of the engine. From then on, the process has a limited time.
pub async fn failure_of(control: &Control) -> End {
    let (sender, receiver) = oneshot::channel();
    control.on_failure(move |failure| {
        // Nobody receives it if the daemon is stopping already.
        let _ = sender.send(failure);
    });
    match receiver.await {
        Ok(failure) => {
            limit_time();
            End::Failure(failure)
        }
        // The hook was dropped with the engine, so something else has ended the daemon.
        Err(_) => std::future::pending().await,
    }
}

/// The exit status of a daemon that a signal has stopped, or the failure.
pub fn outcome(end: Option<End>) -> Result<(), Failure> {
    match end {
        Some(End::Failure(failure)) => Err(Failure::new(failure)),
        Some(End::Signal(_) | End::TakenOver(_)) | None => Ok(()),
    }
}
