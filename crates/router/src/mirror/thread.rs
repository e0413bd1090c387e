//! The thread that runs the mirror.
//!
//! Theory of operation. The thread sleeps until the kernel reports a change, a worker requests a neighbour,
//! or a caller requests other ports. It applies changes as long as there are any. It publishes routes when
//! none are left, or after some milliseconds of continuous changes.
//!
//! At the start, after lost messages, and when the model requests it, the thread dumps the kernel's whole
//! state, class by class, on a socket of its own. It applies changes meanwhile, and the known routes stay in
//! use. State that was neither in the dump nor in a change is removed at the end. A class whose dump was
//! disturbed, so that parts may be missing, is dumped again. If it is never undisturbed, nothing of this
//! class is removed.
//!
//! A message about a neighbour only tells that the neighbour has changed: the thread asks for its present
//! state, and reads the answer before anything else. The kernel writes and sends these messages without a
//! common lock, so that an older one may come last. An answer on another socket than the changes would be
//! read later than changes that are newer. See "Order of the kernel's messages" in `docs/routing.md`.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mmb_route::L3Interface;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustc_hash::FxHashMap;

use super::settings::SettingsStore;
use super::shared::{Shared, State};
use super::twins::{self, TwinInterfaces};
use crate::error::PortFault;
use crate::model::{self, Model};
use crate::netlink::{Dump, Event, NetlinkSocket, ReadResult, decode};
use crate::plane::{ForwardingPlane, LocalTraffic, PortNumber, RoutedPort};

/// Maximum number of datagrams that are processed under one lock.
const BATCH: usize = 1_000;
/// Maximum delay of a publication during continuous changes.
const MAX_PUBLISH_DELAY: Duration = Duration::from_millis(10);
/// Interval of checks of the ports' states.
const PORT_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Delay of a resynchronisation, since the first change is usually followed by more.
const RESYNC_DELAY: Duration = Duration::from_millis(300);

/// The thread's state; see the module's theory of operation.
pub(crate) struct Mirror<P> {
    plane: Arc<P>,
    shared: Arc<Shared>,
    events: NetlinkSocket,
    /// Size of the receive buffer of `events`, in bytes.
    buffer: usize,
    /// For dumps.
    requests: NetlinkSocket,
    twins: TwinInterfaces,
    /// For requests that the kernel answers at once.
    questions: NetlinkSocket,
    dump: Option<Dump>,
    /// Whether the first dump is complete.
    synced: bool,
    /// Time of the next resynchronisation, if one is due.
    resync_at: Option<Instant>,
    /// Earliest time of the next resynchronisation on request of the model.
    next_resync: Instant,
    /// Arrival time of the first change that is not published yet.
    pending_since: Option<Instant>,
    /// Time of the next check of the ports' states.
    next_port_check: Instant,
    /// Whether twins were just changed; the kernel will report it.
    twins_changed: bool,
    /// Number of the last request for ports that was handled.
    handled: u64,
    interfaces: Vec<Option<L3Interface>>,
    local_traffic: FxHashMap<PortNumber, LocalTraffic>,
}

impl<P: ForwardingPlane> Mirror<P> {
    pub fn new(
        plane: Arc<P>,
        shared: Arc<Shared>,
        buffer: usize,
        store: SettingsStore,
    ) -> io::Result<Mirror<P>> {
        let now = Instant::now();
        shared.lock().model = Model::new();
        Ok(Mirror {
            plane,
            shared,
            events: NetlinkSocket::events(buffer)?,
            buffer,
            requests: NetlinkSocket::requests()?,
            questions: NetlinkSocket::requests()?,
            twins: TwinInterfaces::new(store),
            dump: None,
            synced: false,
            resync_at: None,
            next_resync: now,
            pending_since: None,
            next_port_check: now,
            twins_changed: false,
            handled: 0,
            interfaces: Vec::new(),
            local_traffic: FxHashMap::default(),
        })
    }

    /// Runs until the handle stops it.
    pub fn run(mut self) {
        self.begin_dump();
        while !self.shared.lock().stop {
            self.wait();
            // Reading fails only if there is nothing to read.
            let _ = self.shared.wake.read();
            let more = self.take_changes();
            self.take_dump();
            self.forward_neighbor_requests();
            self.update_ports();
            if !more || self.pending_since.is_some_and(|since| since.elapsed() > MAX_PUBLISH_DELAY) {
                self.publish();
            }
            self.start_due_resync();
        }
        for port in self.local_traffic.keys() {
            // It fails only if the port is closed, which has the same effect.
            let _ = self.plane.set_local_traffic(*port, None);
        }
        self.shared.done.notify_all();
    }

    fn wait(&self) {
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut fds = [
            readable(self.events.fd()),
            readable(self.requests.fd()),
            readable(self.plane.neighbor_requests_fd()),
            readable(self.shared.wake.as_fd()),
        ];
        let next = self.resync_at.map_or(self.next_port_check, |at| at.min(self.next_port_check));
        let pause = next.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        // An interrupted wait is only shorter.
        let _ = poll(&mut fds, PollTimeout::try_from(pause).unwrap_or(PollTimeout::MAX));
    }

    /// Applies pending changes, up to a batch. Returns whether there may be more.
    fn take_changes(&mut self) -> bool {
        let shared = self.shared.clone();
        let mut state = None;
        for _ in 0..BATCH {
            match self.events.read() {
                Ok(ReadResult::Some) => {}
                Ok(ReadResult::Empty) => return false,
                Ok(ReadResult::Overrun) => {
                    state.get_or_insert_with(|| shared.lock()).counters.overruns += 1;
                    state = None;
                    self.begin_dump();
                    continue;
                }
                Err(_) => {
                    // The socket is unusable. A new one starts with a dump.
                    drop(state);
                    self.reopen();
                    return false;
                }
            }
            let state = state.get_or_insert_with(|| shared.lock());
            self.pending_since.get_or_insert_with(Instant::now);
            for message in self.events.messages() {
                state.counters.messages += 1;
                match decode(message.kind, message.flags, message.body, false) {
                    Ok(Some(event)) => {
                        if let Some(dump) = &mut self.dump {
                            dump.mark_disturbed(&event);
                        }
                        state.model.apply(current(event, &mut self.questions));
                    }
                    Ok(None) => {}
                    Err(_) => state.counters.malformed += 1,
                }
            }
        }
        true
    }

    fn reopen(&mut self) {
        match NetlinkSocket::events(self.buffer) {
            Ok(events) => {
                self.events = events;
                self.begin_dump();
            }
            // The next turn tries again, after a pause.
            Err(_) => std::thread::sleep(PORT_CHECK_INTERVAL),
        }
    }

    fn begin_dump(&mut self) {
        self.resync_at = None;
        let mut state = self.shared.lock();
        state.counters.resyncs += u64::from(self.synced);
        state.model.begin_dump();
        if self.dump.is_some()
            && let Ok(requests) = NetlinkSocket::requests()
        {
            // The kernel is still sending the previous dump.
            self.requests = requests;
        }
        self.dump = Some(Dump::begin(&mut self.requests));
    }

    /// Applies one datagram of the dump.
    fn take_dump(&mut self) {
        let read = self.requests.read();
        if read.is_err() || read.as_ref().is_ok_and(|read| *read == ReadResult::Overrun) {
            self.begin_dump();
            return;
        }
        let mut state = self.shared.lock();
        if let Ok(ReadResult::Some) = read {
            for message in self.requests.messages() {
                state.counters.messages += 1;
                let mut is_dump = false;
                if let Some(dump) = &mut self.dump {
                    is_dump = dump.record(&message);
                }
                if !is_dump {
                    continue;
                }
                match decode(message.kind, message.flags, message.body, true) {
                    Ok(Some(event)) => state.model.confirm(event),
                    Ok(None) => {}
                    Err(_) => state.counters.malformed += 1,
                }
            }
            if !self.synced {
                self.pending_since = None;
            }
        }
        let Some(dump) = &mut self.dump else { return };
        if dump.advance(&mut self.requests) {
            return;
        }
        let (dump, now) = (self.dump.take(), Instant::now());
        if let Some(dump) = dump {
            state.model.end_dump(|class| dump.is_complete(class));
            self.next_resync = now + 10 * dump.began.elapsed();
            if !dump.is_consistent() {
                self.resync_at = Some(self.next_resync.max(now + RESYNC_DELAY));
            }
        }
        state.model.interfaces_stale = true;
        self.synced = true;
    }

    /// Forwards the neighbour requests of the workers to the kernel.
    fn forward_neighbor_requests(&mut self) {
        let wanted = self.plane.take_neighbor_requests();
        if wanted.is_empty() {
            return;
        }
        let mut state = self.shared.lock();
        state.counters.requests += wanted.len() as u64;
        for request in wanted {
            // If the kernel refuses it now, the worker repeats the request after a second.
            if let Ok(event) = self.questions.probe_neighbor(request.interface, request.address) {
                state.model.apply(event);
                self.pending_since.get_or_insert_with(Instant::now);
            }
        }
    }

    /// Handles requests for ports, and updates twins to the states of their ports.
    fn update_ports(&mut self) {
        let now = Instant::now();
        let shared = self.shared.clone();
        let mut state = shared.lock();
        let state = &mut *state;
        if self.handled != state.requested {
            self.handled = state.requested;
            state.faults = self.twins.isolate(&state.ports);
            state.model.interfaces_stale = true;
        }
        // A request for ports is complete only when their twins are configured.
        let requested = state.completed != self.handled && self.synced;
        if now < self.next_port_check && !requested {
            return;
        }
        self.next_port_check = now + PORT_CHECK_INTERVAL;
        let (faults, changed) =
            self.twins.update(&*self.plane, &state.model, &state.ports, &mut self.questions);
        let punt = twins::prepare_punt(&state.model, &state.ports, &mut self.questions);
        if requested {
            state.faults.extend(faults.into_iter().chain(punt));
        }
        self.twins_changed = changed;
    }

    /// Publishes pending changes.
    fn publish(&mut self) {
        let shared = self.shared.clone();
        let mut state = shared.lock();
        let state = &mut *state;
        if !self.synced {
            return;
        }
        if state.model.interfaces_stale && self.update_interfaces(state) {
            state.model.paths.note_change(true);
        }
        if let Some(routes) = state.model.publication(&self.interfaces) {
            self.plane.publish_routes(routes);
            state.counters.publications += 1;
        }
        if let Some(since) = self.pending_since.take() {
            let lag = since.elapsed().as_micros() as u64;
            state.counters.lag_last_us = lag;
            state.counters.lag_max_us = state.counters.lag_max_us.max(lag);
        }
        if state.completed != self.handled && !self.twins_changed {
            state.completed = self.handled;
            let missing = state.ports.iter().filter(|port| model::link_of(&state.model, port).is_none());
            let fault = |port: &RoutedPort| PortFault::NoInterface {
                port: port.name.clone(),
                ifname: port.ifname.clone(),
            };
            state.faults.extend(missing.map(fault).collect::<Vec<_>>());
            shared.done.notify_all();
        }
    }

    /// Updates the ports' interfaces and local traffic. Returns whether the interfaces changed.
    fn update_interfaces(&mut self, state: &mut State) -> bool {
        state.model.interfaces_stale = false;
        let ports = model::by_interface(&state.model, &state.ports);
        state.model.set_ports(ports);
        let new = model::local_traffic(&state.model, &state.ports, &state.nat_addresses);
        let finished = self.local_traffic.keys().filter(|port| !new.contains_key(port));
        let changes: Vec<(PortNumber, Option<&LocalTraffic>)> = finished
            .map(|port| (*port, None))
            .chain(
                new.iter()
                    .filter(|(port, new)| self.local_traffic.get(port) != Some(new))
                    .map(|(p, s)| (*p, Some(s))),
            )
            .collect();
        for (port, new) in changes {
            if let Err(e) = self.plane.set_local_traffic(port, new) {
                state.faults.push(PortFault::Engine(Box::new(e)));
            }
        }
        self.local_traffic = new;
        let interfaces = model::l3_interfaces(&state.model, &state.ports);
        let changed = interfaces != self.interfaces;
        self.interfaces = interfaces;
        changed
    }

    /// Starts a resynchronisation if one is due.
    fn start_due_resync(&mut self) {
        if !self.synced || self.dump.is_some() {
            return;
        }
        let now = Instant::now();
        if self.shared.lock().model.take_resync_request() && self.resync_at.is_none() {
            self.resync_at = Some(self.next_resync.max(now + RESYNC_DELAY));
        }
        if self.resync_at.is_some_and(|at| at <= now) {
            self.begin_dump();
        }
    }
}

/// The event to apply in place of this one: for a neighbour, its present state.
fn current(event: Event, questions: &mut NetlinkSocket) -> Event {
    match &event {
        Event::Neighbor(neighbor) | Event::NeighborGone(neighbor) => {
            questions.neighbor(neighbor.interface, neighbor.address).unwrap_or(event)
        }
        _ => event,
    }
}
