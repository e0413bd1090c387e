//! Workers without threads, devices or a clock: frames go into their graphs and come out, one walk at a time. For tests, and
//! for looking at what a configuration does to a packet.

use std::net::IpAddr;
use std::sync::Arc;

use mmb_dpdk::{
    Eal, EalConfig, Emit, Graph, HugePages, NodeDef, NodeKind, ThreadGuard, Vector, register_thread,
};
use mmb_packet::DropReason;
use mmb_route::Routes;
#[cfg(test)]
use mmb_session::DumpCursor;

use crate::engine::config::{DEFAULT_SCRATCHPAD, Forwarding, PortId};
use crate::engine::control::{Room, drops, sessions, shares};
use crate::engine::counters::RuleTable;
use crate::engine::error::EngineError;
use crate::engine::pools::Pools;
use crate::engine::shared::Shared;
use crate::engine::snapshot::Snapshot;
use crate::engine::vector::VECTOR;
use crate::engine::worker::{Clock, Worker};
use crate::features::fastpath::learn::learn_from_tx;
use crate::features::route::control::RoutingCounters;
use crate::features::route::requests::Want;
use crate::graph::{self, Ends};

const MEMORY_MB: u32 = 64;
/// Of everything random.
const SEED: u64 = 1;

/// Workers between two hands; see the module's description.
pub struct Lab {
    workers: Vec<Graph<Worker>>,
    shared: Arc<Shared>,
    _registration: ThreadGuard,
}

/// Frames on their way, by the port where they come in or go out.
#[derive(Default)]
struct Table {
    coming: std::collections::VecDeque<(PortId, Vec<u8>)>,
    hints: Hints,
    gone: Vec<(PortId, Vec<u8>)>,
}

/// What a device says about all frames.
#[derive(Clone, Copy, Default)]
struct Hints {
    mark: Option<u32>,
    hash: Option<u32>,
}

impl Lab {
    /// A worker with room for so many sessions; starts DPDK if it does not run yet. No device is opened, port ids are just
    /// numbers.
    ///
    /// # Errors
    /// What is missing: memory, mostly.
    pub fn new(forwarding: Forwarding, routes: Routes, most_sessions: usize) -> Result<Lab, EngineError> {
        Lab::with_workers(1, forwarding, routes, most_sessions)
    }

    /// The same with several workers, which share the sessions out among themselves. All frames come to the first one.
    ///
    /// # Errors
    /// As [`Lab::new`].
    pub fn with_workers(
        n: usize,
        forwarding: Forwarding,
        routes: Routes,
        most_sessions: usize,
    ) -> Result<Lab, EngineError> {
        let failed = |e: &dyn std::fmt::Display| EngineError(e.to_string());
        let config = EalConfig {
            memory_mb: MEMORY_MB,
            huge: HugePages::Never,
            privileged: false,
            ..EalConfig::default()
        };
        Eal::get().map_or_else(|| Eal::init(&config), Ok).map_err(|e| failed(&e))?;
        let pools = Pools::create(MEMORY_MB)?;
        let (shared, inboxes) = shares(snapshot(1, forwarding, n), n)?;
        shared.publish_routes(routes);
        let shared = Arc::new(shared);
        let registration = register_thread().map_err(|e| failed(&e))?;
        let mut workers = Vec::with_capacity(n);
        for (id, inbox) in inboxes.into_iter().enumerate() {
            let room = Room { sessions: most_sessions, scratchpad: DEFAULT_SCRATCHPAD };
            let sessions = sessions(id, n, room, SEED)?;
            let mut worker = Box::new(Worker::new(id, shared.clone(), SEED, sessions));
            worker.clock = Clock::Stands(0);
            worker.spread = n as u32;
            worker.pool = Some(pools.ordinary());
            worker.ends = Some(Box::new(Table::default()));
            let nodes = graph::between(ends(), inbox.is_some());
            worker.inbox = inbox;
            workers.push(Graph::build(&format!("lab-{id}"), &nodes, worker).map_err(|e| failed(&e))?);
        }
        Ok(Lab { workers, shared, _registration: registration })
    }

    /// Lets frames in, each by its port, at a time in milliseconds; what goes out meanwhile, and by which port.
    pub fn run(&mut self, now: u32, frames: Vec<(PortId, Vec<u8>)>) -> Vec<(PortId, Vec<u8>)> {
        if let Some(table) = self.workers.first_mut().and_then(|graph| table(graph.state_mut())) {
            table.coming = frames.into();
        }
        let mut gone = Vec::new();
        loop {
            let mut more = false;
            for graph in &mut self.workers {
                graph.state_mut().clock = Clock::Stands(now);
                graph.state_mut().begin();
                graph.walk();
                if let Some(table) = table(graph.state_mut()) {
                    gone.append(&mut table.gone);
                    more |= !table.coming.is_empty();
                }
                more |= !graph.state_mut().sessions.emissions().is_empty();
            }
            if !more && self.shared.workers.iter().all(|worker| worker.inbox_len() == 0) {
                return gone;
            }
        }
    }

    /// The same with frames that a port has marked.
    pub fn run_marked(
        &mut self,
        now: u32,
        mark: u32,
        frames: Vec<(PortId, Vec<u8>)>,
    ) -> Vec<(PortId, Vec<u8>)> {
        self.run_with(Hints { mark: Some(mark), hash: None }, now, frames)
    }

    /// The same with frames of which a port says that this is their flow's hash.
    pub fn run_hashed(
        &mut self,
        now: u32,
        hash: u32,
        frames: Vec<(PortId, Vec<u8>)>,
    ) -> Vec<(PortId, Vec<u8>)> {
        self.run_with(Hints { mark: None, hash: Some(hash) }, now, frames)
    }

    fn run_with(&mut self, hints: Hints, now: u32, frames: Vec<(PortId, Vec<u8>)>) -> Vec<(PortId, Vec<u8>)> {
        self.hint(hints);
        let gone = self.run(now, frames);
        self.hint(Hints::default());
        gone
    }

    fn hint(&mut self, hints: Hints) {
        if let Some(table) = self.workers.first_mut().and_then(|graph| table(graph.state_mut())) {
            table.hints = hints;
        }
    }

    /// Puts other routes in force.
    pub fn publish_routes(&mut self, routes: Routes) {
        self.shared.publish_routes(routes);
    }

    /// Says what the machine's own addresses are, of which rules are not to know, for packets that come in by a port.
    pub fn set_locals(&mut self, port: PortId, local: &[IpAddr]) {
        self.shared.set_locals(port, local);
    }

    /// Puts other rules and ports in force.
    pub fn publish(&mut self, forwarding: Forwarding) {
        let generation = self.shared.current().generation + 1;
        self.shared.publish(snapshot(generation, forwarding, self.workers.len()));
    }

    /// The same, and that ports mark packets so that need no flow manager under these rules.
    pub fn publish_marked(&mut self, forwarding: Forwarding, mark: u32) {
        let generation = self.shared.current().generation + 1;
        self.shared.publish(Snapshot { mark, ..snapshot(generation, forwarding, self.workers.len()) });
    }

    /// Puts other rules and ports in force, with this fast path.
    #[cfg(test)]
    pub(crate) fn publish_fast(&mut self, forwarding: Forwarding, fast: Arc<mmb_fastpath::FastPathConfig>) {
        let generation = self.shared.current().generation + 1;
        let snapshot = snapshot(generation, forwarding, self.workers.len());
        self.shared.publish(Snapshot { fast: Some(fast), ..snapshot });
    }

    /// What crosses threads, where there are some.
    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// What the worker wants the kernel to find out.
    pub fn wants(&self) -> Vec<Want> {
        self.shared.wants.take()
    }

    /// What routing has counted.
    pub fn routing_counters(&self) -> RoutingCounters {
        RoutingCounters::of(&self.shared)
    }

    /// Sessions that each worker has.
    pub fn sessions(&self) -> Vec<u64> {
        self.workers.iter().map(|graph| graph.state().sessions.counters().sessions).collect()
    }

    /// The states of the first worker's sessions, as `show connections` prints them.
    #[cfg(test)]
    pub(crate) fn states(&self) -> Vec<&'static str> {
        let mut states = Vec::new();
        if let Some(worker) = self.workers.first().map(|graph| graph.state()) {
            let (host, mut cursor) = (worker.snapshot.of(worker.id), DumpCursor::default());
            worker.sessions.dump(worker.now, &host, &mut cursor, 100, |view| states.push(view.state));
        }
        states
    }

    /// Packets dropped, by those reasons that occurred.
    pub fn drops(&self) -> Vec<(DropReason, u64)> {
        drops(&self.shared).into_iter().filter(|(_, n)| *n > 0).collect()
    }

    /// The same of packets that had come in by a port.
    pub fn port_drops(&self, port: PortId) -> Vec<(DropReason, u64)> {
        let workers = &self.shared.workers;
        let of = |&reason| {
            (reason, workers.iter().map(|worker| worker.counters.drops.of_port(port.0, reason)).sum())
        };
        DropReason::ALL.iter().map(of).filter(|(_, n)| *n > 0).collect()
    }

    /// Milliseconds until some worker has something to do without a packet.
    pub fn next_tick(&self) -> Option<u32> {
        self.workers.iter().filter_map(|graph| graph.state().timers()).min()
    }
}

fn snapshot(generation: u64, forwarding: Forwarding, workers: usize) -> Snapshot {
    let mut table = RuleTable::default();
    table.grow(forwarding.policy.slots());
    Snapshot::new(generation, forwarding, |_| None, vec![table; workers])
}

fn ends() -> Ends {
    Ends {
        source: NodeDef { name: "lab-rx", kind: NodeKind::Source(emit), next: &["l2-input"] },
        sink: NodeDef { name: "lab-tx", kind: NodeKind::Inner(collect), next: &[] },
    }
}

fn table(worker: &mut Worker) -> Option<&mut Table> {
    worker.ends.as_mut()?.downcast_mut()
}

fn emit(worker: &mut Worker, emit: &mut Emit<'_>) -> usize {
    let Some(pool) = worker.pool.clone() else { return 0 };
    emit.emit(0, VECTOR, |slots| {
        let Some(table) = table(worker) else { return };
        while slots.room() > 0
            && let Some((port, frame)) = table.coming.pop_front()
        {
            // Without a buffer the frame is missing among those that come out, which is noticed.
            let Some(mut packet) = pool.alloc_from(&frame) else { continue };
            packet.set_port(port.0);
            table.hints.mark.into_iter().for_each(|mark| packet.set_mark(mark));
            table.hints.hash.into_iter().for_each(|hash| packet.set_rss_hash(hash));
            let _ = slots.push(packet);
        }
        if worker.fast.is_learning() {
            worker.fast.sample(slots, false);
        }
    })
}

fn collect(worker: &mut Worker, mut vector: Vector<'_>) {
    if worker.fast.has_samples() {
        learn_from_tx(worker, vector.packets());
    }
    if let Some(table) = table(worker) {
        let gone = vector.packets().iter().map(|packet| (PortId(packet.meta().out_port), packet.to_vec()));
        table.gone.extend(gone);
    }
    vector.free();
}
