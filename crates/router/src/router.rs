//! The handle of the mirror, for other threads.
//!
//! Theory of operation. One thread runs the mirror ([`crate::mirror`]). It shares its state with the handle
//! under a lock, and holds the lock for a batch of messages, which takes some milliseconds at most. A caller
//! that changes the routed ports stores them there, wakes the thread, and waits until routes with these ports
//! are published.

use std::io;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::RouterError;
use crate::mirror::{Mirror, SettingsStore, Shared, State};
use crate::netlink::RECEIVE_BUFFER;
use crate::plane::{ForwardingPlane, RoutedPort};
use crate::query::{FibPage, FibQuery, NeighborEntry, RouterCounters};

/// Longest wait for the first dump of the kernel's state and the publication.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A running mirror. Dropping it stops the thread and restores the kernel's settings.
pub struct Router {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Router {
    /// Starts the mirror without ports, in the network namespace of the calling thread. Previous values of
    /// the kernel's settings are kept in the directory `state` while they are changed.
    ///
    /// # Errors
    /// [`RouterError::Start`], for example if there is no netlink.
    pub fn start<P: ForwardingPlane>(plane: Arc<P>, state: Option<&Path>) -> Result<Router, RouterError> {
        Router::start_with(plane, RECEIVE_BUFFER, SettingsStore::new(state))
    }

    /// Starts the mirror with a receive buffer of this many bytes. When the buffer overflows, the mirror
    /// compares itself with the kernel's whole state.
    ///
    /// # Errors
    /// [`RouterError::Start`], for example if there is no netlink.
    pub fn start_with_buffer<P: ForwardingPlane>(
        plane: Arc<P>,
        buffer: usize,
    ) -> Result<Router, RouterError> {
        Router::start_with(plane, buffer, SettingsStore::default())
    }

    fn start_with<P: ForwardingPlane>(
        plane: Arc<P>,
        buffer: usize,
        store: SettingsStore,
    ) -> Result<Router, RouterError> {
        let no = |resource: &'static str| move |error: io::Error| RouterError::Start { resource, error };
        let shared = Arc::new(Shared::new().map_err(no("eventfd"))?);
        let mirror = Mirror::new(plane, shared.clone(), buffer, store).map_err(no("netlink socket"))?;
        let thread = std::thread::Builder::new()
            .name("mmb-router".into())
            .spawn(move || mirror.run())
            .map_err(no("thread"))?;
        Ok(Router { shared, thread: Some(thread) })
    }

    /// Replaces the routed ports. Returns when routes with these ports are published.
    ///
    /// `nat_addresses` are addresses of NAT pools: packets to them stay with the engine, even if the machine
    /// has them.
    ///
    /// # Errors
    /// [`RouterError::Ports`] or [`RouterError::TimedOut`]. The ports are in effect all the same, as far as
    /// possible.
    pub fn set_ports(
        &self,
        ports: Vec<RoutedPort>,
        nat_addresses: Vec<RangeInclusive<IpAddr>>,
    ) -> Result<(), RouterError> {
        let mut state = self.shared.lock();
        let request = state.request_ports(ports, nat_addresses);
        self.shared.wake();
        let is_waiting = |state: &mut State| !state.is_complete(request);
        let (mut state, waited) = self
            .shared
            .done
            .wait_timeout_while(state, TIMEOUT, is_waiting)
            .unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return Err(RouterError::TimedOut { seconds: TIMEOUT.as_secs() });
        }
        if state.faults.is_empty() {
            Ok(())
        } else {
            Err(RouterError::Ports(std::mem::take(&mut state.faults)))
        }
    }

    /// Entries of the forwarding tables, at most `limit`.
    pub fn fib(&self, query: &FibQuery, limit: usize) -> FibPage {
        self.shared.lock().model.fib(query, limit)
    }

    /// Neighbours in ascending order of addresses; those inside a prefix, or all.
    pub fn neighbors(&self, within: Option<(IpAddr, u8)>) -> Vec<NeighborEntry> {
        self.shared.lock().model.neighbors_within(within)
    }

    /// Counters of the mirror's work and its contents.
    pub fn counters(&self) -> RouterCounters {
        self.shared.lock().counters()
    }
}

/// Restores the kernel's settings that a killed process has left changed in the network namespace of the
/// calling thread. `state` is the directory of [`Router::start`].
pub fn restore_settings(state: &Path) {
    SettingsStore::new(Some(state)).restore_left();
}

impl Drop for Router {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            // A panicking thread has restored the kernel's settings while it was unwound.
            let _ = thread.join();
        }
    }
}
