//! Workers without threads, devices or a running clock: the interface for the crate `mmb-simulate`.
//!
//! Theory of operation. A [`DetachedEngine`] holds what workers share: the published snapshot, routes and
//! counters. Each [`DetachedWorker`] has the graph of the daemon between a source and a sink that call its
//! [`PacketIo`]. The owner of a worker does what the worker's thread does in the daemon: it sets the clock,
//! calls [`DetachedWorker::maintain`] between two walks, and walks the graph. Packets come from
//! [`PacketMemory`].
//!
//! Workers either share sessions out among themselves and hand packets over, as in the daemon, or each has
//! its own flows, as with RSS ([`DetachedConfig::is_connected`]).

use std::any::Any;
use std::io;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use mmb_dpdk::{
    Eal, EalConfig, Emit, Graph, HugePages, Mempool, NodeDef, NodeKind, Packet, RingReceiver, Vector, rdtsc,
    segment,
};
use mmb_nf::StageCounters;
use mmb_packet::DropReason;
use mmb_route::Routes;
use mmb_session::{DumpCursor, SharedSessions};

use crate::engine::config::{Forwarding, PortId};
use crate::engine::control::Engine;
use crate::engine::counters::{EDIT_FAILURES, RuleCounters, RuleTable};
use crate::engine::error::EngineError;
use crate::engine::handoff::Inbox;
pub use crate::engine::node::packet_io::PacketIo;
use crate::engine::node::vector::VECTOR;
use crate::engine::pools::{ORDINARY, Pools, SharedScratchpads};
use crate::engine::shared::Shared;
use crate::engine::snapshot::Snapshot;
use crate::engine::start::{SessionCapacity, create_sessions, create_shared};
use crate::engine::stats::{NodeRuntime, drops, node_runtime, unedited};
use crate::engine::worker::{Worker, begin};
use crate::features::fastpath::learn::learn_from_tx;
use crate::features::port::device::OpenPort;
use crate::features::port::open::open_generating_null;
use crate::features::route::control::RoutingCounters;
use crate::features::route::requests::NeighborRequest;
use crate::features::trace::record::TraceRequest;
use crate::features::trace::tracer::Tracer;
use crate::graph::{self, Ends};

/// Seed of all random numbers: a simulation gives the same result each time.
const SEED: u64 = 1;

/// DPDK's environment and packet buffers.
pub struct PacketMemory {
    eal: Eal,
    pools: Pools,
}

impl PacketMemory {
    /// Creates packet buffers; starts DPDK without privileges and devices if it does not run yet.
    ///
    /// # Errors
    /// DPDK does not start, or the memory is not available.
    pub fn create(memory_mb: u32, huge: HugePages) -> Result<PacketMemory, EngineError> {
        let config = EalConfig { memory_mb, huge, privileged: false, ..EalConfig::default() };
        let eal = Eal::get().map_or_else(|| Eal::init(&config), Ok)?;
        Ok(PacketMemory { eal, pools: Pools::create(memory_mb)? })
    }

    /// A pool whose buffers hold frames of `frame_len` bytes; longer frames take several buffers.
    ///
    /// # Errors
    /// The memory is not available.
    pub fn pool(&self, frame_len: usize) -> Result<Mempool, EngineError> {
        if frame_len <= ORDINARY { Ok(self.pools.ordinary()) } else { Ok(self.pools.jumbo()?) }
    }

    /// Ticks of the time-stamp counter per second.
    pub fn tsc_hz(&self) -> u64 {
        self.eal.tsc_hz()
    }
}

/// Size of a detached engine.
#[derive(Clone, Debug)]
pub struct DetachedConfig {
    /// Names of the source and sink nodes.
    pub nodes: [&'static str; 2],
    /// Number of workers.
    pub workers: usize,
    /// Whether workers share the sessions and hand packets over. Otherwise each worker has its own flows.
    pub is_connected: bool,
    /// Maximum number of sessions: of all workers together if connected, of each worker otherwise.
    pub sessions: usize,
    /// Most bytes of a session for functions of chains.
    pub scratchpad: usize,
    /// Whether scratchpads lie in files that other processes can map ([`DetachedWorker::scratchpads`]).
    pub share_scratchpads: bool,
    /// Frame length of null ports; with it, workers poll and send on DPDK's null ports and use no
    /// [`PacketIo`].
    pub null_port_frame: Option<usize>,
}

/// What detached workers share.
pub struct DetachedEngine {
    shared: Arc<Shared>,
    /// What the sessions of connected workers share.
    sessions: Arc<SharedSessions>,
    inboxes: Mutex<Vec<Option<Inbox<RingReceiver>>>>,
    config: DetachedConfig,
    pool: Mempool,
}

impl DetachedEngine {
    /// An engine with these rules, ports and routes.
    ///
    /// # Errors
    /// Memory, or an operating system resource, is not available.
    pub fn new(
        memory: &PacketMemory,
        config: DetachedConfig,
        forwarding: Forwarding,
        routes: Option<Routes>,
    ) -> Result<DetachedEngine, EngineError> {
        let ports = match config.null_port_frame {
            Some(size) => open_null_ports(&memory.pools, &forwarding, size, config.workers)?,
            None => Vec::new(),
        };
        let open = |id: PortId| ports.iter().find(|(port, _)| *port == id).map(|(_, port)| port.clone());
        let first = snapshot(1, forwarding, open, config.workers);
        let (shared, inboxes) = if config.is_connected {
            create_shared(first, config.workers)?
        } else {
            let shared = Shared::detached(first, config.workers).map_err(EngineError::EventFd)?;
            (shared, (0..config.workers).map(|_| None).collect())
        };
        if let Some(routes) = routes {
            shared.publish_routes(routes);
        }
        let pool = memory.pools.ordinary();
        let sessions = Arc::new(SharedSessions::new(config.sessions, config.workers as u16, SEED));
        Ok(DetachedEngine { shared: Arc::new(shared), sessions, inboxes: Mutex::new(inboxes), config, pool })
    }

    /// Creates worker `id`, once per id, for the calling thread, which must be registered with DPDK.
    ///
    /// `io` is `None` if the engine has null ports.
    ///
    /// # Errors
    /// Memory for sessions or for the graph is not available.
    pub fn worker<I: PacketIo>(&self, id: usize, io: Option<I>) -> Result<DetachedWorker<I>, EngineError> {
        let DetachedConfig { sessions, scratchpad, share_scratchpads, .. } = self.config;
        let capacity = SessionCapacity { sessions, scratchpad, share_scratchpads };
        let (place, shared) = if self.config.is_connected {
            ((id, self.config.workers), self.sessions.clone())
        } else {
            ((0, 1), Arc::new(SharedSessions::new(sessions, 1, SEED)))
        };
        let mut sessions = create_sessions(place, capacity, SEED, shared)?;
        sessions.set_clock(rdtsc);
        let mut worker = Box::new(Worker::new(id, self.shared.clone(), SEED + id as u64, sessions));
        worker.handoff.spread = place.1 as u32;
        worker.ports.pool = Some(self.pool.clone());
        let mut inboxes = self.inboxes.lock().unwrap_or_else(PoisonError::into_inner);
        worker.handoff.inbox = inboxes.get_mut(id).and_then(Option::take);
        let has_inbox = worker.handoff.inbox.is_some();
        let nodes = match io {
            Some(io) => {
                worker.io = Some(Box::new(io));
                graph::between(ends(self.config.nodes), has_inbox)
            }
            None => graph::live(has_inbox),
        };
        let graph = Graph::build(&format!("sim-{id}"), &nodes, worker)?;
        Ok(DetachedWorker { graph, sink: self.config.nodes[1], io: PhantomData })
    }

    /// Publishes other rules and ports.
    pub fn publish(&self, forwarding: Forwarding) {
        self.shared.publish(self.next_snapshot(forwarding));
    }

    /// Publishes other rules and ports. Packets with this mark of the port need no session under these rules.
    pub fn publish_marked(&self, forwarding: Forwarding, mark: u32) {
        self.shared.publish(Snapshot { mark, ..self.next_snapshot(forwarding) });
    }

    /// Publishes rules that do not count packets, so that a measurement can tell what counting costs.
    pub fn publish_uncounted(&self, forwarding: Forwarding) {
        let counters = vec![RuleTable::default(); self.config.workers];
        self.shared.publish(Snapshot { counters, ..self.next_snapshot(forwarding) });
    }

    /// Publishes other rules and ports with this fast path.
    #[cfg(test)]
    pub(crate) fn publish_fast(&self, forwarding: Forwarding, fast: mmb_fastpath::FastPathConfig) {
        let snapshot = self.next_snapshot(forwarding);
        let fast = Arc::new(mmb_fastpath::FastPathConfig { is_plain: snapshot.is_plain(), ..fast });
        self.shared.publish(Snapshot { fast: Some(fast), ..snapshot });
    }

    /// Publishes rules that differ by a change of elements of sets, with this fast path.
    #[cfg(test)]
    pub(crate) fn publish_fast_elements(
        &self,
        forwarding: Forwarding,
        fast: Arc<mmb_fastpath::FastPathConfig>,
        change: mmb_policy::ElementChange,
    ) {
        let snapshot = Snapshot { fast: Some(fast), ..self.next_snapshot(forwarding) };
        self.shared.publish(snapshot.with_elements(change, &self.shared.current()));
    }

    fn next_snapshot(&self, forwarding: Forwarding) -> Snapshot {
        snapshot(self.shared.current().generation + 1, forwarding, |_| None, self.config.workers)
    }

    /// What the workers share.
    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Publishes other routes.
    pub fn publish_routes(&self, routes: Routes) {
        self.shared.publish_routes(routes);
    }

    /// Takes the routes and the machine's own addresses of a running engine with the same port ids.
    pub fn follow(&self, running: &Engine) {
        self.shared.follow(running.shared());
    }

    /// Sets the machine's own addresses for packets that arrive at a port; rules do not apply to these. Nor
    /// do they apply to packets to `shared`, unless a rule names the address and gives it away, or NAT has
    /// it.
    pub fn set_locals(&self, port: PortId, local: &[IpAddr], shared: &[IpAddr]) {
        self.shared.set_locals(port, local, shared);
    }

    /// Takes the workers' requests to the kernel.
    pub fn neighbor_requests(&self) -> Vec<NeighborRequest> {
        self.shared.requests.take()
    }

    /// Counters of routing.
    pub fn routing_counters(&self) -> RoutingCounters {
        RoutingCounters::sum(&self.shared)
    }

    /// Whether some worker has packets from another one in its rings.
    pub fn has_handoffs(&self) -> bool {
        self.shared.workers.iter().any(|worker| worker.inbox_len() > 0)
    }

    /// Dropped packets by reason; reasons that did not occur are left out.
    pub fn drops(&self) -> Vec<(DropReason, u64)> {
        drops(&self.shared).into_iter().filter(|(_, n)| *n > 0).collect()
    }

    /// Dropped packets that arrived at a port, by reason; reasons that did not occur are left out.
    pub fn port_drops(&self, port: PortId) -> Vec<(DropReason, u64)> {
        let workers = &self.shared.workers;
        let of = |reason| {
            (reason, workers.iter().map(|worker| worker.counters.drops.for_port(port.0, reason)).sum())
        };
        DropReason::known().map(of).filter(|(_, n)| *n > 0).collect()
    }

    /// Packets whose edits failed, by reason; reasons that did not occur are left out.
    pub fn edit_failures(&self) -> Vec<(DropReason, u64)> {
        unedited(&self.shared).into_iter().filter(|(_, n)| *n > 0).collect()
    }

    /// Packets whose bytes functions of chains have sent in other frames.
    pub fn consumed(&self) -> u64 {
        self.shared.workers.iter().map(|worker| worker.counters.consumed.get()).sum()
    }

    /// Frames that functions of chains made: sent, and not sent. The latter are among the drops.
    pub fn emissions(&self) -> (u64, u64) {
        let counters = self.shared.workers.iter().map(|worker| &worker.counters);
        counters.fold((0, 0), |sum, c| (sum.0 + c.emitted.get(), sum.1 + c.unsent.get()))
    }
}

/// Counters of one worker.
pub struct WorkerReading {
    /// Work of each node.
    pub nodes: Vec<NodeRuntime>,
    /// Dropped packets, by every reason.
    pub drops: Vec<(DropReason, u64)>,
    /// Packets whose edits failed, by every reason.
    pub edit_failures: Vec<(DropReason, u64)>,
    /// Matches of the rule in each slot.
    pub rules: Vec<RuleCounters>,
    /// Work of each function of chains.
    pub stages: Vec<StageCounters>,
}

/// A worker whose graph its owner walks.
pub struct DetachedWorker<I> {
    graph: Graph<Worker>,
    sink: &'static str,
    io: PhantomData<I>,
}

impl<I: PacketIo> DetachedWorker<I> {
    /// The worker's source and sink; `None` if it has null ports.
    pub fn io(&mut self) -> Option<&mut I> {
        let io: &mut dyn Any = self.graph.state_mut().io.as_deref_mut()?;
        io.downcast_mut()
    }

    /// Sets the clock to a time in milliseconds, and stops it there.
    pub fn set_time(&mut self, now: u32) {
        self.graph.state_mut().clock.set_fixed(now);
    }

    /// The time of the last walk in milliseconds.
    pub fn now(&self) -> u32 {
        self.graph.state().clock.now
    }

    /// Takes over what was published and serves timers, as a worker does between two walks.
    #[inline]
    pub fn maintain(&mut self) {
        begin(&mut self.graph);
    }

    /// As [`DetachedWorker::maintain`], without the test for traces and captures.
    #[inline]
    pub fn maintain_without_traces(&mut self) {
        self.graph.state_mut().begin();
    }

    /// Traces packets from the next [`DetachedWorker::maintain`] on.
    pub fn trace(&mut self, request: TraceRequest) {
        self.graph.state_mut().tracer = Some(Box::new(Tracer::new(request, self.sink)));
    }

    /// Ends the traces of packets that nodes keep, and traces no more.
    pub fn end_trace(&mut self) {
        let worker = self.graph.state_mut();
        if let Some(mut tracer) = worker.tracer.take() {
            tracer.finish_all(worker);
        }
        self.graph.observe(None);
    }

    /// Walks the graph once.
    #[inline]
    pub fn walk(&mut self) {
        self.graph.walk();
    }

    /// Whether functions of chains have made frames that the next walk sends.
    pub fn has_emissions(&mut self) -> bool {
        let emissions = self.graph.state_mut().flows.sessions.emissions();
        !emissions.is_empty() || emissions.has_reinjections()
    }

    /// Whether functions of chains have released or dropped packets: the next walk sends or frees them.
    pub fn has_released(&self) -> bool {
        self.graph.state().flows.sessions.has_held_events()
    }

    /// Whether packets wait: fragments for the first one of their datagram, or packets that functions hold.
    pub fn has_held_packets(&self) -> bool {
        let flows = &self.graph.state().flows;
        !flows.held.is_empty() || !flows.held_in_chains.is_empty()
    }

    /// Milliseconds that packets wait at most.
    pub fn held_timeout(&self) -> u32 {
        let timeouts = &self.graph.state().snapshot.settings.timeouts;
        timeouts.fragment.max(timeouts.held)
    }

    /// Milliseconds until the worker has work without a packet; `None`: never.
    pub fn next_timer(&self) -> Option<u32> {
        self.graph.state().next_timer()
    }

    /// Whether the rules need sessions.
    pub fn needs_sessions(&self) -> bool {
        self.graph.state().snapshot.needs_sessions()
    }

    /// Number of sessions.
    pub fn session_count(&self) -> u64 {
        self.graph.state().flows.sessions.counters().sessions
    }

    /// The states of the first hundred sessions, as `show connections` prints them.
    pub fn session_states(&self) -> Vec<&'static str> {
        let worker = self.graph.state();
        let (mut states, mut cursor) = (Vec::new(), DumpCursor::default());
        let host = worker.snapshot.for_worker(worker.id);
        worker.flows.sessions.dump(worker.clock.now, &host, &mut cursor, 100, |view| states.push(view.state));
        states
    }

    /// The file with the scratchpads of sessions; `None` if they are private.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn scratchpads(&self) -> io::Result<Option<SharedScratchpads>> {
        SharedScratchpads::of(&self.graph.state().flows.sessions)
    }

    /// Ends all sessions.
    pub fn clear_sessions(&mut self) {
        let Worker { id, snapshot, flows, .. } = self.graph.state_mut();
        while flows.sessions.clear_batch(VECTOR, &snapshot.for_worker(*id)) {}
    }

    /// Adds counts that sessions hold back to the rules' counters.
    pub fn flush_counters(&mut self) {
        let worker = self.graph.state_mut();
        worker.flows.sessions.flush(&worker.snapshot.for_worker(worker.id));
    }

    /// Reads the counters.
    pub fn reading(&self) -> WorkerReading {
        let worker = self.graph.state();
        let slots = worker.snapshot.policy.slots() as u32;
        let table = &worker.snapshot.counters[worker.id];
        let (drops, unedited) = (&worker.counters().drops, &worker.counters().unedited);
        WorkerReading {
            nodes: node_runtime(&self.graph.stats_handle()),
            drops: DropReason::known().map(|reason| (reason, drops.get(reason))).collect(),
            edit_failures: EDIT_FAILURES.iter().map(|&reason| (reason, unedited.get(reason))).collect(),
            rules: (0..slots).map(|slot| table.get(slot)).collect(),
            stages: worker.flows.sessions.chain_counters().to_vec(),
        }
    }
}

fn snapshot(
    generation: u64,
    forwarding: Forwarding,
    open: impl Fn(PortId) -> Option<Arc<OpenPort>>,
    workers: usize,
) -> Snapshot {
    let mut tables = vec![RuleTable::default(); workers];
    tables.iter_mut().for_each(|table| table.grow(forwarding.policy.slots()));
    Snapshot::new(generation, forwarding, open, tables)
}

/// Opens null ports for the first wire of `forwarding`.
fn open_null_ports(
    pools: &Pools,
    forwarding: &Forwarding,
    size: usize,
    workers: usize,
) -> Result<Vec<(PortId, Arc<OpenPort>)>, EngineError> {
    let wired = forwarding.ports.iter().filter(|p| p.peer.is_some()).take(2);
    wired
        .map(|p| {
            let port = open_generating_null(pools, size, workers)?;
            Ok((p.id, Arc::new(port)))
        })
        .collect()
}

fn ends([source, sink]: [&'static str; 2]) -> Ends {
    Ends {
        source: NodeDef { name: source, kind: NodeKind::Source(receive), next: &["l2-input"] },
        sink: NodeDef { name: sink, kind: NodeKind::Inner(transmit), next: &[] },
    }
}

fn receive(worker: &mut Worker, emit: &mut Emit<'_>) -> usize {
    emit.emit(0, VECTOR, |slots| {
        if let Some(io) = &mut worker.io {
            io.receive(slots);
        }
        if worker.fast.is_learning() {
            worker.fast.sample(slots, false);
        }
    })
}

fn transmit(worker: &mut Worker, mut vector: Vector<'_>) {
    if worker.fast.has_samples() {
        learn_from_tx(worker, vector.packets());
    }
    if let Some(io) = &mut worker.io {
        transmit_to(&mut **io, vector.packets());
    }
    vector.free();
}

/// Gives packets to what takes no large frames.
fn transmit_to(io: &mut dyn PacketIo, packets: &mut [&mut Packet]) {
    if !packets.iter().any(|packet| packet.is_large()) {
        return io.transmit(packets);
    }
    for packet in packets.iter_mut() {
        let mut segments = Vec::new();
        if segment(packet, |segment| segments.push(segment)) {
            io.transmit(&segments.iter_mut().map(|segment| &mut **segment).collect::<Vec<_>>());
        } else {
            io.transmit(&[&mut **packet]);
        }
    }
}
