//! The handle of the mirror: other threads' side of it.
//!
//! Theory of operation. One thread keeps the mirror ([`crate::mirror`]). It shares its state with the handle under a lock, which it
//! holds while it takes in some milliseconds' worth of messages at most. Whoever changes the ports leaves them there, wakes the
//! thread, and waits until it says that routes with them are published.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use mmb_dataplane::PortId;

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::mirror::{self, State};
use crate::netlink::ROOM;
use crate::plane::ForwardingPlane;
use crate::query::{FibPage, FibQuery, NeighborEntry, RouterCounters};

/// Why the mirror does not work; displays as one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RouterError(pub(crate) String);

/// What stands between a routed port and the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Device {
    /// The port shares the kernel's interface, by XDP.
    Xdp,
    /// The kernel has a TAP of the port's name.
    Twin {
        /// The kernel's interface that the port is on, if any, which the kernel itself is to leave alone.
        real: Option<String>,
    },
}

/// A port that routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutedPort {
    /// The port.
    pub port: PortId,
    /// The operator's name for it.
    pub name: String,
    /// The kernel's interface that has its addresses: its own, or its twin.
    pub ifname: String,
    /// What stands between it and the kernel.
    pub device: Device,
}

/// Longest wait for the mirror to know the kernel and publish.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the thread and the handle share.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Something that was waited for has been done.
    pub done: Condvar,
    /// There is something to do.
    pub wake: EventFd,
}

impl Shared {
    pub fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in the thread panics on what it reads; if it does all the same, answers are as of then.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // A full counter means that it is awake.
        let _ = self.wake.write(1);
    }
}

/// The running mirror. What it changed in the kernel is put back when it is dropped.
pub struct Router {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Router {
    /// Starts the mirror, with no port, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// One sentence, if there is no netlink.
    pub fn start<P: ForwardingPlane>(plane: Arc<P>) -> Result<Router, RouterError> {
        Router::start_with_room(plane, ROOM)
    }

    /// The same with room for as many bytes of messages that wait to be read; when they are more, the mirror
    /// compares itself with the kernel as a whole.
    ///
    /// # Errors
    /// As [`Router::start`].
    pub fn start_with_room<P: ForwardingPlane>(plane: Arc<P>, room: usize) -> Result<Router, RouterError> {
        let failed = |what: &str, e: &dyn std::fmt::Display| {
            RouterError(format!("cannot mirror the kernel's routes: {what}: {e}"))
        };
        let wake = EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)
            .map_err(|e| failed("no eventfd", &e))?;
        let shared = Arc::new(Shared { state: Mutex::default(), done: Condvar::new(), wake });
        let mirror =
            mirror::Mirror::new(plane, shared.clone(), room).map_err(|e| failed("no netlink socket", &e))?;
        let thread = std::thread::Builder::new()
            .name("mmb-router".into())
            .spawn(move || mirror.run())
            .map_err(|e| failed("no thread", &e))?;
        Ok(Router { shared, thread: Some(thread) })
    }

    /// Makes these the routed ports, in place of those before. Returns once routes with them are published.
    ///
    /// `keep` are addresses that reach mmb though they are the machine's own: those of NAT pools.
    ///
    /// # Errors
    /// One sentence; the ports are taken all the same, as far as they go.
    pub fn set_ports(
        &self,
        ports: Vec<RoutedPort>,
        keep: Vec<RangeInclusive<IpAddr>>,
    ) -> Result<(), RouterError> {
        let mut state = self.shared.lock();
        let asked = state.ask_for(ports, keep);
        self.shared.wake();
        let waiting = |state: &mut State| !state.has_done(asked);
        let (state, waited) = self
            .shared
            .done
            .wait_timeout_while(state, PATIENCE, waiting)
            .unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            let seconds = PATIENCE.as_secs();
            return Err(RouterError(format!(
                "the kernel's routes are not all known after {seconds} s; they are used once they are"
            )));
        }
        if state.failed.is_empty() { Ok(()) } else { Err(RouterError(state.failed.join("; "))) }
    }

    /// Entries of the tables, at most `limit`.
    pub fn fib(&self, query: &FibQuery, limit: usize) -> FibPage {
        self.shared.lock().model.fib(query, limit)
    }

    /// Neighbours whose addresses lie within a prefix, in order.
    pub fn neighbors(&self, within: Option<(IpAddr, u8)>) -> Vec<NeighborEntry> {
        self.shared.lock().model.neighbors_within(within)
    }

    /// What the mirror has done, and holds.
    pub fn counters(&self) -> RouterCounters {
        self.shared.lock().counters()
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has put back what it changed, as it was unwound.
            let _ = thread.join();
        }
    }
}
