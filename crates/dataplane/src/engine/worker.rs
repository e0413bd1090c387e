//! One worker: the state that the nodes of its graph share.
//!
//! Theory of operation. A worker owns everything it writes: its receive queues, buffers, sessions, counters
//! and random numbers. The state is divided into parts; a node uses the parts that it needs. Other threads
//! share the published snapshot and routes (read only), two rings per worker, a mailbox, and a sleep flag.
//! [`Worker::begin`] runs between two walks: it takes over a new snapshot, reads the clock, and ends sessions
//! whose time has come. The time does not change within a walk.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

use mmb_dpdk::{FastGranularity, Graph};
use mmb_fastpath::FlowLearner;
use mmb_session::Sessions;

use crate::engine::counters::WorkerCounters;
use crate::engine::handoff::Handoff;
use crate::engine::node::packet_io::PacketIo;
use crate::engine::node::vector::VECTOR;
use crate::engine::shared::{Shared, has_multipath};
use crate::engine::snapshot::Snapshot;
use crate::engine::thread::clock::Clock;
use crate::engine::thread::mailbox::WorkerTask;
use crate::features::classify::state::{FRAME_BYTES, RuleScratch};
use crate::features::port::state::PortState;
use crate::features::route::state::{RoutingState, SlowPath};
use crate::features::session::state::FlowManager;
use crate::features::trace::tracer::{LIVE_SINK, Tracer, observe};

/// The state of one worker.
pub(crate) struct Worker {
    pub id: usize,
    pub shared: Arc<Shared>,
    /// The rules, ports and settings of this walk.
    pub snapshot: Arc<Snapshot>,
    pub clock: Clock,
    /// The routes of this walk.
    pub routing: RoutingState,
    /// Packets that are not simply forwarded.
    pub slow_path: SlowPath,
    /// Sessions, and fragments that wait for theirs.
    pub flows: FlowManager,
    /// Buffers of rule matching.
    pub rules: RuleScratch,
    pub ports: PortState,
    pub handoff: Handoff,
    /// Flows that the kernel forwards for this worker.
    pub fast: FlowLearner,
    /// Source and sink of a worker without ports.
    pub io: Option<Box<dyn PacketIo>>,
    /// Follows packets for somebody; none most of the time.
    pub tracer: Option<Box<Tracer>>,
}

impl Worker {
    /// A worker that receives its own flows only.
    pub fn new(id: usize, shared: Arc<Shared>, seed: u64, sessions: Sessions) -> Worker {
        let snapshot = shared.current();
        let mut flows = FlowManager::new(sessions, &snapshot.for_worker(id));
        let mut fast = FlowLearner::default();
        fast.adopt(snapshot.fast.as_ref(), (id, shared.workers.len()), &mut flows.sessions);
        Worker {
            id,
            clock: Clock::monotonic(shared.start),
            routing: RoutingState::load(&shared, 0),
            slow_path: SlowPath::new(VECTOR, FRAME_BYTES),
            flows,
            rules: RuleScratch::new(seed),
            ports: PortState::default(),
            handoff: Handoff::none(),
            fast,
            io: None,
            tracer: None,
            snapshot,
            shared,
        }
    }

    /// The counters that this worker alone writes.
    #[inline]
    pub fn counters(&self) -> &WorkerCounters {
        &self.shared.workers[self.id].counters
    }

    /// Does the work between two walks. Returns whether a new snapshot was taken over.
    #[inline]
    pub fn begin(&mut self) -> bool {
        self.rules.edits.clear();
        let is_published = self.shared.generation.load(Acquire) != self.snapshot.generation;
        let fast_generation = self.snapshot.fast_generation;
        if self.routing.is_outdated(&self.shared) {
            self.adopt_routes();
        }
        let has_tasks = !self.shared.workers[self.id].mailbox.is_empty();
        if is_published
            || has_tasks
            || self.snapshot.needs_sessions()
            || self.flows.has_timers
            || !self.slow_path.waiting.is_empty()
        {
            self.maintain(is_published);
        }
        if self.snapshot.fast_generation != fast_generation {
            let position = (self.id, self.shared.workers.len());
            self.fast.adopt(self.snapshot.fast.as_ref(), position, &mut self.flows.sessions);
        }
        if self.fast.needs_maintenance() {
            self.maintain_fast_path();
        }
        is_published
    }

    /// Prepares a walk of a worker whose graph is observed. Returns whether it is to be observed further.
    #[cold]
    pub fn begin_traced(&mut self) -> bool {
        let Some(mut tracer) = self.tracer.take() else { return false };
        if tracer.is_over() {
            tracer.finish_all(self);
            return false;
        }
        tracer.begin_walk(self);
        self.tracer = Some(tracer);
        true
    }

    #[inline(never)]
    fn maintain_fast_path(&mut self) {
        let Worker { id, shared, snapshot, fast, clock, flows, .. } = self;
        let (time, counters) = ((clock.read(), &*shared.fast), &shared.workers[*id].counters.fast);
        fast.maintain(time, &mut flows.sessions, &snapshot.for_worker(*id), counters);
    }

    /// The generation of what the kernel learns from this walk.
    pub fn fast_generation(&self) -> u64 {
        let has_multipath = has_multipath(&self.routing.routes);
        let granularity = self
            .snapshot
            .fast
            .as_ref()
            .map_or(FastGranularity::Flow, |config| config.granularity(has_multipath));
        self.shared.fast.generation(self.snapshot.fast_generation, self.routing.flow_generation, granularity)
    }

    /// Whether sessions may keep next hops: routes have not changed for a while.
    pub fn routes_stable(&self) -> bool {
        self.routing.is_stable(self.clock.now)
    }

    #[cold]
    fn adopt_routes(&mut self) {
        if self.routing.adopt(&self.shared, self.clock.read()) {
            self.flows.sessions.routes_changed();
        }
        self.slow_path.waiting.routes_changed();
    }

    /// The part of [`Worker::begin`] that reads the clock: snapshot, timers, tasks of other threads.
    fn maintain(&mut self, is_published: bool) {
        self.clock.update();
        if is_published {
            let new = self.shared.current();
            self.flows.adopt(&self.snapshot.for_worker(self.id), &new.for_worker(self.id));
            self.snapshot = new;
        }
        let Worker { id, shared, snapshot, clock, flows, tracer, .. } = self;
        let (shared, snapshot) = (&shared.workers[*id], snapshot.for_worker(*id));
        flows.expire(clock.now, &snapshot, snapshot.needs_sessions(), &shared.counters.drops);
        if let Some(task) = shared.mailbox.take() {
            match task {
                WorkerTask::Sessions(task) => task(&mut flows.sessions, &snapshot, clock.now),
                WorkerTask::Trace(Some(request)) => {
                    *tracer = Some(Box::new(Tracer::new(*request, LIVE_SINK)))
                }
                WorkerTask::Trace(None) => tracer.iter_mut().for_each(|tracer| tracer.stop()),
            }
        }
        self.flows.has_timers = self.next_timer().is_some();
    }

    /// Milliseconds until the worker has work without a packet; none when no timer runs.
    pub fn next_timer(&self) -> Option<u32> {
        let timers = [self.flows.next_timer(), self.slow_path.waiting.next_timer(self.clock.now)];
        timers.into_iter().flatten().min()
    }

    /// Reads the clock for a rare path, unless [`Worker::begin`] has read it for this walk.
    pub fn update_clock(&mut self) {
        if !self.snapshot.needs_sessions() {
            self.clock.update();
        }
    }

    /// Tells the publisher that this worker uses nothing of an older snapshot.
    pub fn acknowledge(&self) {
        self.shared.workers[self.id].seen.store(self.snapshot.generation, Release);
    }
}

/// Does the work between two walks ([`Worker::begin`]), and shows the packets of nodes to the worker's
/// tracer, if it has one. Returns whether a new snapshot was taken over.
#[inline]
pub(crate) fn begin(graph: &mut Graph<Worker>) -> bool {
    let is_published = graph.state_mut().begin();
    if graph.state().tracer.is_some() || graph.is_observed() {
        let is_traced = graph.state_mut().begin_traced();
        if is_traced != graph.is_observed() {
            graph.observe(is_traced.then_some(observe));
        }
    }
    is_published
}
