//! Kernel interfaces that disappear and return.
//!
//! Theory of operation. A thread listens to the kernel's messages about interfaces. When the interface of a
//! port has disappeared, the port is closed, and its interface is down with the reason. Rules, wires, routes
//! and sessions stay. Interfaces that are down are opened again as soon as the kernel has an interface of
//! this name that is up: after each message, and once a second in case that opening fails. A returned
//! interface is another one for the kernel, even with the same name; interfaces are known by their indexes.
//!
//! The thread also gives NAT pools the addresses of the interfaces that they follow.
//!
//! Without a free descriptor the thread cannot listen. It then looks at the interfaces once a second, and
//! tries again to listen.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use mmb_dataplane::{PortId, is_interface_up};
use mmb_lang::PortKind;
use mmb_router::{LinkWaker, LinkWatch};

use super::control::Control;
use super::state::State;
use crate::config::Interface;

/// Time between two attempts to open an interface, or to listen.
const RETRY: Duration = Duration::from_secs(1);
/// Time between two looks at the interfaces without a message.
const CHECK: Duration = Duration::from_secs(5);

/// How the thread is stopped.
#[derive(Default)]
pub(super) struct LinkThread {
    is_stopped: AtomicBool,
    /// The thread while it cannot listen.
    parked: OnceLock<Thread>,
    /// Ends a wait of the thread when it listens.
    waker: OnceLock<LinkWaker>,
}

impl LinkThread {
    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::SeqCst)
    }

    /// Makes the thread end, whatever it waits for.
    fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        if let Some(thread) = self.parked.get() {
            thread.unpark();
        }
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// Begins to listen. An error that `reason` does not have yet is logged and stored there.
    fn listen(&self, reason: &mut Option<String>) -> Option<LinkWatch> {
        match LinkWatch::new() {
            Ok(watch) => {
                let _ = self.waker.set(watch.waker());
                if reason.take().is_some() {
                    mmb_system::log::error("watching the kernel's interfaces again\n");
                }
                Some(watch)
            }
            Err(error) => {
                let new = error.to_string();
                if reason.as_ref() != Some(&new) {
                    let line = format!("cannot watch the kernel's interfaces: {new}; trying every second\n");
                    mmb_system::log::error(line);
                    *reason = Some(new);
                }
                None
            }
        }
    }
}

/// Writes a line about an interface to the log.
fn log(name: &str, what: &str) {
    mmb_system::log::error(format!("interface {name}: {what}\n"));
}

/// The kernel interface on which an interface is opened; none for kinds of interfaces without one.
fn kernel_name(interface: &Interface) -> Option<&str> {
    match &interface.kind {
        PortKind::AfXdp { ifname } | PortKind::AfPacket { ifname } => Some(ifname),
        _ => None,
    }
}

impl Control {
    /// Closes and opens interfaces as the kernel's interfaces disappear and return, until
    /// [`Control::stop_link_watch`]. Call it on a thread of its own.
    pub fn run_link_watch(&self) {
        let thread = self.link_thread();
        let _ = thread.parked.set(thread::current());
        let (mut watch, mut reason) = (None, None);
        let mut attempts = HashMap::new();
        loop {
            watch = watch.or_else(|| thread.listen(&mut reason));
            // Behind `listen`: who stops the thread from now on finds its waker.
            if thread.is_stopped() {
                return;
            }
            self.close_vanished();
            if let Some(watch) = &watch {
                self.addresses().set_waker(watch.waker());
            }
            self.follow_addresses();
            let is_waiting = self.open_returned(&mut attempts, Instant::now());
            match &mut watch {
                Some(watch) => watch.wait(if is_waiting { RETRY } else { CHECK }),
                None => thread::park_timeout(RETRY),
            }
        }
    }

    /// Makes [`Control::run_link_watch`] return.
    pub fn stop_link_watch(&self) {
        self.link_thread().stop();
    }

    /// Closes the ports whose kernel interface has disappeared.
    fn close_vanished(&self) {
        if self.engine().vanished_ports().is_empty() {
            return;
        }
        let (_turn, state) = self.begin();
        // A change may have replaced a port before.
        let vanished = self.engine().vanished_ports();
        let mut next = state.clone();
        let mut names = Vec::new();
        for interface in state.config.interfaces() {
            if vanished.contains(&interface.id)
                && state.is_up(interface.id)
                && let Some(kernel) = kernel_name(interface)
            {
                let reason = format!("the kernel's interface {kernel} has disappeared");
                next.down.insert(interface.id, reason.clone());
                names.push((interface.name.clone(), reason));
            }
        }
        if names.is_empty() {
            return;
        }
        match self.transition(state, &next) {
            Ok(()) => {
                self.commit(next);
                for (name, reason) in names {
                    log(&name, &format!("{reason}; it is opened again when the interface returns"));
                }
            }
            Err(error) => names.iter().for_each(|(name, _)| log(name, &error.reason())),
        }
    }

    /// Opens interfaces that are down and whose kernel interface is there and up. Returns whether some
    /// interface stays down that may be opened later.
    fn open_returned(&self, attempts: &mut HashMap<PortId, Instant>, now: Instant) -> bool {
        let state = self.state();
        attempts.retain(|id, _| !state.is_up(*id));
        let waiting: Vec<PortId> = candidates(&state).map(|(id, _)| id).collect();
        for id in &waiting {
            let is_due = attempts.get(id).is_none_or(|last| now.duration_since(*last) >= RETRY);
            if is_due && self.open_again(*id) {
                attempts.insert(*id, now);
            }
        }
        candidates(&self.state()).next().is_some()
    }

    /// Opens an interface that is down, if its kernel interface is up. Returns whether that was tried.
    fn open_again(&self, id: PortId) -> bool {
        let (_turn, state) = self.begin();
        let Some((_, kernel)) = candidates(&state).find(|(other, _)| *other == id) else { return false };
        if !is_interface_up(kernel) {
            return false;
        }
        let name = state.config.interface_by_id(id).map(|i| i.name.clone()).unwrap_or_default();
        let what = format!("opened on the kernel's interface {kernel}");
        let mut next = state.clone();
        next.down.remove(&id);
        match self.transition(state, &next) {
            Ok(()) => {
                self.commit(next);
                log(&name, &what);
            }
            Err(error) => {
                let mut state = self.state();
                let reason = error.reason();
                if state.down.get(&id) != Some(&reason) {
                    log(&name, &reason);
                    state.down.insert(id, reason);
                    self.commit(state);
                }
            }
        }
        true
    }
}

/// The interfaces that are down and have a kernel interface, each with its name.
fn candidates(state: &State) -> impl Iterator<Item = (PortId, &str)> {
    let down = state.config.interfaces().iter().filter(|i| !state.is_up(i.id));
    down.filter_map(|i| Some((i.id, kernel_name(i)?)))
}
