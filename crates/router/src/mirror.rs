//! The thread that keeps the mirror true.
//!
//! Theory of operation. The thread sleeps until the kernel tells of a change, a worker wants a neighbour, or somebody asks for
//! other ports. Changes are taken in as long as there are any, and routes are published when there are none left, or
//! after some milliseconds of a flood. At the start, and whenever messages were lost or the model has doubts, everything is
//! asked for again, class by class, on a socket of its own. Its lines are taken in between the changes; meanwhile the
//! routes known so far go on being used, and what was not told of is removed at the end. A class whose dump was disturbed, so
//! that lines may be missing, is asked for again, and is not cleaned up if it never comes undisturbed.

use std::io;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mmb_dataplane::{PortId, Steering};
use mmb_route::L3Interface;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustc_hash::FxHashMap;

use crate::decode::decode;
use crate::dump::{Dump, Heard};
use crate::faces;
use crate::model::Model;
use crate::netlink::{Channel, Read};
use crate::plane::ForwardingPlane;
use crate::query::RouterCounters;
use crate::router::{RoutedPort, Shared};
use crate::twins::{self, Twins};

/// Messages that are taken in under one lock.
const BATCH: usize = 1_000;
/// How long a flood of changes goes on before routes are published in the middle of it.
const FLOOD: Duration = Duration::from_millis(10);
/// Time between two looks at the states of ports.
const LOOK: Duration = Duration::from_millis(500);
/// How long a doubt may wait: more changes usually follow the first.
const DOUBT: Duration = Duration::from_millis(300);

/// What the thread shares with whoever asks.
#[derive(Default)]
pub(crate) struct State {
    pub model: Model,
    pub stop: bool,
    /// What could not be done for the ports.
    pub failed: Vec<String>,
    ports: Vec<RoutedPort>,
    keep: Vec<RangeInclusive<IpAddr>>,
    /// Number of the last question for other ports, and of the last one that was answered.
    asked: u64,
    answered: u64,
    counters: RouterCounters,
}

impl State {
    /// Leaves other ports; the number of the question.
    pub fn ask_for(&mut self, ports: Vec<RoutedPort>, keep: Vec<RangeInclusive<IpAddr>>) -> u64 {
        (self.ports, self.keep) = (ports, keep);
        self.asked += 1;
        self.asked
    }

    /// Whether routes with the ports of this question are published.
    pub fn has_done(&self, asked: u64) -> bool {
        self.answered >= asked
    }

    pub fn counters(&self) -> RouterCounters {
        let model = &self.model;
        RouterCounters {
            routes4: model.v4.count() as u64,
            routes6: model.v6.count() as u64,
            next_hops: model.ways.count() as u64,
            neighbors: model.ways.neighbors.len() as u64,
            ..self.counters
        }
    }
}

/// The thread's own; see the module's theory of operation.
pub(crate) struct Mirror<P> {
    plane: Arc<P>,
    shared: Arc<Shared>,
    events: Channel,
    /// Bytes that `events` has room for.
    room: usize,
    questions: Channel,
    twins: Twins,
    settings: Channel,
    dump: Option<Dump>,
    /// The kernel's state has been known as a whole once.
    synced: bool,
    /// When to compare the mirror with the kernel.
    doubt: Option<Instant>,
    /// No comparison for doubt before.
    rest: Instant,
    /// When the first change came that is not published yet.
    news: Option<Instant>,
    /// When to look at the ports.
    look: Instant,
    /// Twins have just been changed, of which the kernel will tell.
    settling: bool,
    /// The question for ports that was dealt with last.
    heard: u64,
    faces: Vec<Option<L3Interface>>,
    steered: FxHashMap<PortId, Steering>,
}

impl<P: ForwardingPlane> Mirror<P> {
    pub fn new(plane: Arc<P>, shared: Arc<Shared>, room: usize) -> io::Result<Mirror<P>> {
        let now = Instant::now();
        shared.lock().model = Model::new();
        Ok(Mirror {
            plane,
            shared,
            events: Channel::events(room)?,
            room,
            questions: Channel::questions()?,
            settings: Channel::questions()?,
            twins: Twins::default(),
            dump: None,
            synced: false,
            doubt: None,
            rest: now,
            news: None,
            look: now,
            settling: false,
            heard: 0,
            faces: Vec::new(),
            steered: FxHashMap::default(),
        })
    }

    /// Mirrors until it is told to stop.
    pub fn run(mut self) {
        self.begin_dump();
        while !self.shared.lock().stop {
            self.wait();
            // Nothing to read is no error.
            let _ = self.shared.wake.read();
            let more = self.take_changes();
            self.take_dump();
            self.take_wants();
            self.see_to_ports();
            if !more || self.news.is_some_and(|since| since.elapsed() > FLOOD) {
                self.publish();
            }
            self.see_to_doubts();
        }
        for port in self.steered.keys() {
            // Whoever closes the port ends this too.
            let _ = self.plane.steer(*port, None);
        }
        self.shared.done.notify_all();
    }

    fn wait(&self) {
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut fds = [
            readable(self.events.fd()),
            readable(self.questions.fd()),
            readable(self.plane.wants_fd()),
            readable(self.shared.wake.as_fd()),
        ];
        let next = self.doubt.map_or(self.look, |doubt| doubt.min(self.look));
        let pause = next.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        // An interrupted wait is a short one.
        let _ = poll(&mut fds, PollTimeout::try_from(pause).unwrap_or(PollTimeout::MAX));
    }

    /// Takes in changes, a batch at most. Whether there may be more.
    fn take_changes(&mut self) -> bool {
        let shared = self.shared.clone();
        let mut state = None;
        for _ in 0..BATCH {
            match self.events.read() {
                Ok(Read::Some) => {}
                Ok(Read::Empty) => return false,
                Ok(Read::Overrun) => {
                    state.get_or_insert_with(|| shared.lock()).counters.overruns += 1;
                    state = None;
                    self.begin_dump();
                    continue;
                }
                Err(_) => {
                    // The socket is of no use any more; a new one starts with all there is.
                    drop(state);
                    self.reopen();
                    return false;
                }
            }
            let state = state.get_or_insert_with(|| shared.lock());
            self.news.get_or_insert_with(Instant::now);
            for message in self.events.messages() {
                state.counters.messages += 1;
                match decode(message.kind, message.flags, message.body, false) {
                    Ok(Some(event)) => {
                        if let Some(dump) = &mut self.dump {
                            dump.disturb(&event);
                        }
                        state.model.apply(event);
                    }
                    Ok(None) => {}
                    Err(_) => state.counters.malformed += 1,
                }
            }
        }
        true
    }

    fn reopen(&mut self) {
        match Channel::events(self.room) {
            Ok(events) => {
                self.events = events;
                self.begin_dump();
            }
            // Tried again at the next turn, which must not come at once.
            Err(_) => std::thread::sleep(LOOK),
        }
    }

    fn begin_dump(&mut self) {
        self.doubt = None;
        let mut state = self.shared.lock();
        state.counters.resyncs += u64::from(self.synced);
        state.model.begin();
        if self.dump.is_some()
            && let Ok(questions) = Channel::questions()
        {
            // The kernel is still answering the old questions.
            self.questions = questions;
        }
        self.dump = Some(Dump::begin(&mut self.questions));
    }

    /// Takes in what the kernel has answered: one read.
    fn take_dump(&mut self) {
        let read = self.questions.read();
        if read.is_err() || read.as_ref().is_ok_and(|read| *read == Read::Overrun) {
            self.begin_dump();
            return;
        }
        let mut state = self.shared.lock();
        if let Ok(Read::Some) = read {
            for message in self.questions.messages() {
                state.counters.messages += 1;
                let mut is_dump = false;
                if let Some(dump) = &mut self.dump {
                    match dump.hear(&message) {
                        Heard::Line => is_dump = true,
                        Heard::Other => {}
                    }
                }
                match decode(message.kind, message.flags, message.body, is_dump) {
                    Ok(Some(event)) if is_dump => state.model.confirm(event),
                    Ok(Some(event)) => state.model.apply(event),
                    Ok(None) => {}
                    Err(_) => state.counters.malformed += 1,
                }
            }
            if !self.synced {
                self.news = None;
            }
        }
        let Some(dump) = &mut self.dump else { return };
        if dump.proceed(&mut self.questions) {
            return;
        }
        let (dump, now) = (self.dump.take(), Instant::now());
        if let Some(dump) = dump {
            state.model.end(|class| dump.is_complete(class));
            self.rest = now + 10 * dump.began.elapsed();
            if !dump.is_clean() {
                self.doubt = Some(self.rest.max(now + DOUBT));
            }
        }
        state.model.faces_stale = true;
        self.synced = true;
    }

    /// Has the kernel find the neighbours that workers want.
    fn take_wants(&mut self) {
        let wants = self.plane.take_wants();
        if wants.is_empty() {
            return;
        }
        self.shared.lock().counters.requests += wants.len() as u64;
        for want in wants {
            // If the kernel cannot take it now, it is wanted again in a second.
            let _ = self.questions.use_neighbor(want.interface, want.address);
        }
    }

    /// Follows the ports that are asked for, and the states of those there are.
    fn see_to_ports(&mut self) {
        let now = Instant::now();
        let shared = self.shared.clone();
        let mut state = shared.lock();
        let state = &mut *state;
        if self.heard != state.asked {
            self.heard = state.asked;
            state.failed = self.twins.hush(&state.ports);
            state.model.faces_stale = true;
        }
        // Whoever has asked for ports waits until their twins are as they are.
        let asked = state.answered != self.heard && self.synced;
        if now < self.look && !asked {
            return;
        }
        self.look = now + LOOK;
        let (failed, changed) =
            self.twins.follow(&*self.plane, &state.model, &state.ports, &mut self.settings);
        let punt = twins::prepare_punt(&state.model, &state.ports, &mut self.settings);
        if asked {
            state.failed.extend(failed.into_iter().chain(punt));
        }
        self.settling = changed;
    }

    /// Publishes what has changed.
    fn publish(&mut self) {
        let shared = self.shared.clone();
        let mut state = shared.lock();
        let state = &mut *state;
        if !self.synced {
            return;
        }
        let faces_changed = state.model.faces_stale && self.renew_faces(state);
        let routes = state.model.publication(&self.faces);
        let routes = routes.or_else(|| faces_changed.then(|| state.model.routes(&self.faces)));
        if let Some(routes) = routes {
            self.plane.publish_routes(routes);
            state.counters.publications += 1;
        }
        if let Some(since) = self.news.take() {
            let lag = since.elapsed().as_micros() as u64;
            state.counters.lag_last_us = lag;
            state.counters.lag_max_us = state.counters.lag_max_us.max(lag);
        }
        if state.answered != self.heard && !self.settling {
            state.answered = self.heard;
            let missing = state.ports.iter().filter(|port| faces::link_of(&state.model, port).is_none());
            let sentence = |port: &RoutedPort| {
                format!(
                    "{}: the kernel has no interface {}; it routes once there is one",
                    port.name, port.ifname
                )
            };
            state.failed.extend(missing.map(sentence).collect::<Vec<_>>());
            shared.done.notify_all();
        }
    }

    /// Finds the ports' interfaces, faces and steering again. Whether faces are others now.
    fn renew_faces(&mut self, state: &mut State) -> bool {
        state.model.faces_stale = false;
        let ports = faces::by_interface(&state.model, &state.ports);
        state.model.set_ports(ports);
        let steering = faces::steering(&state.model, &state.ports, &state.keep);
        let over = self.steered.keys().filter(|port| !steering.contains_key(port));
        let changes: Vec<(PortId, Option<&Steering>)> = over
            .map(|port| (*port, None))
            .chain(
                steering
                    .iter()
                    .filter(|(port, new)| self.steered.get(port) != Some(new))
                    .map(|(p, s)| (*p, Some(s))),
            )
            .collect();
        for (port, steering) in changes {
            if let Err(e) = self.plane.steer(port, steering) {
                state.failed.push(e);
            }
        }
        self.steered = steering;
        let faces = faces::faces(&state.model, &state.ports);
        let changed = faces != self.faces;
        self.faces = faces;
        changed
    }

    /// Begins a comparison if it is time for one.
    fn see_to_doubts(&mut self) {
        if !self.synced || self.dump.is_some() {
            return;
        }
        let now = Instant::now();
        if self.shared.lock().model.take_doubt() && self.doubt.is_none() {
            self.doubt = Some(self.rest.max(now + DOUBT));
        }
        if self.doubt.is_some_and(|at| at <= now) {
            self.begin_dump();
        }
    }
}
