//! State that the mirror's thread shares with its handle.

use std::io;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::error::PortFault;
use crate::model::Model;
use crate::plane::RoutedPort;
use crate::query::RouterCounters;

/// The shared state with its lock and its events.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Notified when a request is complete.
    pub done: Condvar,
    /// Wakes the thread.
    pub wake: EventFd,
}

impl Shared {
    pub fn new() -> io::Result<Shared> {
        let wake = EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        Ok(Shared { state: Mutex::default(), done: Condvar::new(), wake })
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        // The thread does not panic on its input. If it did, queries would see its last state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the thread.
    pub fn wake(&self) {
        // The write fails only if the counter is full, and then the thread is awake.
        let _ = self.wake.write(1);
    }
}

/// State under the lock.
#[derive(Default)]
pub(crate) struct State {
    pub model: Model,
    /// The thread has to end.
    pub stop: bool,
    /// What could not be done for the ports of the last request.
    pub faults: Vec<PortFault>,
    pub ports: Vec<RoutedPort>,
    /// Addresses of the machine whose packets stay with the engine.
    pub nat_addresses: Vec<RangeInclusive<IpAddr>>,
    /// Number of the last request for other ports.
    pub requested: u64,
    /// Number of the last completed request.
    pub completed: u64,
    pub counters: RouterCounters,
}

impl State {
    /// Requests other ports; returns the request's number.
    pub fn request_ports(
        &mut self,
        ports: Vec<RoutedPort>,
        nat_addresses: Vec<RangeInclusive<IpAddr>>,
    ) -> u64 {
        (self.ports, self.nat_addresses) = (ports, nat_addresses);
        self.requested += 1;
        self.requested
    }

    /// Whether routes with the ports of this request are published.
    pub fn is_complete(&self, request: u64) -> bool {
        self.completed >= request
    }

    pub fn counters(&self) -> RouterCounters {
        let model = &self.model;
        RouterCounters {
            routes4: model.v4.count() as u64,
            routes6: model.v6.count() as u64,
            next_hops: model.paths.count() as u64,
            neighbors: model.paths.neighbors.len() as u64,
            ..self.counters
        }
    }
}
