//! The engine: workers on threads, the table of open ports, and publication.
//!
//! Theory of operation. There is one engine per process, since DPDK has one environment per process. Ports are opened
//! and closed at any time by the control side; they take part in forwarding while a published [`Forwarding`] names
//! them. Publication builds the snapshot, swaps the pointer, wakes sleeping workers, and returns when all of them run
//! on it; only then is the old snapshot dropped, by the publishing thread and never by a worker.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mmb_dpdk::{
    Eal, EalConfig, FlowHandle, Graph, HugePages, Mempool, RingReceiver, StatsHandle, ThreadGuard,
    register_thread,
};
use mmb_fastpath::PortMonitor;
use mmb_lang::PortKind;
use mmb_nf::Program;
use mmb_packet::DropReason;
use mmb_session::{SessionConfig, Sessions};
use serde::Serialize;

use crate::engine::config::{
    EngineConfig, Forwarding, MAX_PORTS, MAX_SCRATCHPAD, MAX_SESSIONS, MAX_WORKERS, PortId,
};
use crate::engine::counters::{EDIT_FAILURES, RuleCounters, RuleTable};
use crate::engine::error::EngineError;
use crate::engine::pools::Pools;
use crate::engine::shared::{Inbox, Shared, WorkerShared, inbox};
use crate::engine::sleep::Sleeper;
use crate::engine::snapshot::Snapshot;
use crate::engine::worker::{self, Worker};
use crate::features::fastpath::host::update_redirects;
use crate::features::flow_rules::InstalledRules;
use crate::features::port::device::OpenPorts;
use crate::features::port::device::{OpenPort, PortInfo};
use crate::features::port::open::{self as port, PortError};
use crate::graph;

/// One node's work so far.
#[derive(Clone, Debug, Serialize)]
pub struct NodeRuntime {
    /// The node's name.
    pub name: String,
    /// Packets it processed.
    pub packets: u64,
    /// Vectors it was called with.
    pub vectors: u64,
    /// TSC ticks it took.
    pub cycles: u64,
}

/// One worker's work so far.
#[derive(Clone, Debug, Serialize)]
pub struct WorkerRuntime {
    /// The worker's number.
    pub worker: usize,
    /// The CPU it is pinned to.
    pub cpu: Option<usize>,
    /// Times it went to sleep for want of traffic.
    pub sleeps: u64,
    /// Transport checksums it completed for kernel peers.
    pub checksum_repairs: u64,
    /// Its graph's nodes.
    pub nodes: Vec<NodeRuntime>,
}

/// How long a publisher looks at the workers without a pause.
const LOOKING: Duration = Duration::from_micros(100);

/// A running worker as the engine sees it.
struct Running {
    thread: JoinHandle<()>,
    cpu: Option<usize>,
    stats: StatsHandle,
}

struct Publisher {
    generation: u64,
    counters: Vec<RuleTable>,
    /// Programs of chains that have been published and that somebody may still use.
    programs: Vec<Arc<Program>>,
    /// The flow rules of ports.
    flow_rules: InstalledRules<FlowHandle>,
}

/// Workers, ports and what they run on; see the module's theory of operation.
pub struct Engine {
    shared: Arc<Shared>,
    workers: Vec<Running>,
    ports: Arc<OpenPorts>,
    port_monitor: PortMonitor,
    publisher: Mutex<Publisher>,
    pools: Pools,
    eal: Eal,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked while it held the lock left nothing half done: values are replaced as a whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    /// Starts DPDK and the workers, with no port and no rule.
    ///
    /// # Errors
    /// The sentence says what is missing: memory, permission, or a free place for a second engine in the process.
    pub fn start(config: &EngineConfig) -> Result<Engine, EngineError> {
        if !(1..=MAX_WORKERS).contains(&config.workers) {
            return Err(EngineError(format!(
                "{} workers do not go; ask for 1 to {MAX_WORKERS}",
                config.workers
            )));
        }
        if !(1..=MAX_SESSIONS).contains(&config.sessions) {
            return Err(EngineError(format!(
                "{} sessions do not go; ask for 1 to {MAX_SESSIONS}",
                config.sessions
            )));
        }
        if config.scratchpad > MAX_SCRATCHPAD {
            return Err(EngineError(format!(
                "{} bytes of each session for functions do not go; ask for at most {MAX_SCRATCHPAD} with --scratchpad",
                config.scratchpad
            )));
        }
        let eal_config =
            EalConfig { memory_mb: config.memory_mb, huge: HugePages::Auto, ..EalConfig::default() };
        let eal = Eal::init(&eal_config).map_err(|e| EngineError(e.to_string()))?;
        let pools = Pools::create(config.memory_mb)?;
        let (shared, inboxes) = shares(empty_snapshot(0, config.workers), config.workers)?;
        let shared = Arc::new(shared);
        let ports: Arc<OpenPorts> = Arc::new(Mutex::new(std::array::from_fn(|_| None)));
        let monitored = ports.clone();
        let port_monitor = PortMonitor::start(shared.fast.clone(), move || update_redirects(&monitored))
            .map_err(|e| EngineError(format!("cannot start the thread that looks at ports: {e}")))?;
        let mut engine = Engine {
            workers: Vec::new(),
            ports,
            port_monitor,
            publisher: Mutex::new(Publisher {
                generation: 0,
                counters: vec![RuleTable::default(); config.workers],
                programs: Vec::new(),
                flow_rules: InstalledRules::default(),
            }),
            shared,
            pools,
            eal,
        };
        let cpus = cpus_for(config.workers);
        let seed = seed();
        for (id, (cpu, inbox)) in cpus.into_iter().zip(inboxes).enumerate() {
            let room = Room { sessions: config.sessions, scratchpad: config.scratchpad };
            let mut sessions = sessions(id, config.workers, room, seed)?;
            sessions.set_clock(mmb_dpdk::rdtsc);
            let running = spawn(id, cpu, inbox, sessions, &engine)?;
            engine.workers.push(running);
        }
        Ok(engine)
    }

    /// What crosses threads.
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// What DPDK runs on.
    pub(crate) fn eal(&self) -> &Eal {
        &self.eal
    }

    /// The engine's size in a few words.
    pub fn describe(&self) -> String {
        let n = self.workers.len();
        let pages = if self.eal.huge_pages() { "huge pages" } else { "ordinary pages" };
        format!(
            "{n} worker{}, {} packet buffers, {pages}",
            if n == 1 { "" } else { "s" },
            self.pools.buffers()
        )
    }

    /// Opens a device as port `id`, which must not be open; it takes part once it is published. `name` is the
    /// operator's name for it.
    ///
    /// # Errors
    /// One sentence that says why and what to do; nothing is left open.
    pub fn open_port(&self, id: PortId, name: &str, kind: &PortKind) -> Result<(), PortError> {
        let mut ports = lock(&self.ports);
        let Some(place) = id.index().map(|index| &mut ports[index]) else {
            return Err(PortError(format!(
                "{name} is one port too many: an engine has room for {MAX_PORTS}"
            )));
        };
        if place.is_some() {
            return Err(PortError(format!("{name} is open already")));
        }
        *place = Some(Arc::new(port::open(&self.pools, name, kind, self.workers.len())?));
        // Nothing of the port that had the number before is under way any more.
        self.shared.workers.iter().for_each(|worker| worker.counters.drops.zero_port(id.0));
        Ok(())
    }

    /// Closes a port that no published forwarding names any more. Nothing happens if it is not open.
    pub fn close_port(&self, id: PortId) {
        lock(&self.publisher).flow_rules.remove_port(id);
        if let Some(index) = id.index() {
            let port = lock(&self.ports)[index].take();
            drop(port);
        }
    }

    /// Makes the workers run on `forwarding`. Returns when every worker does: packets that come in from then on are
    /// treated by it, and what only the old one used is free.
    pub fn publish(&self, forwarding: Forwarding) {
        let mut publisher = lock(&self.publisher);
        publisher.generation += 1;
        let slots = forwarding.policy.slots();
        publisher.counters.iter_mut().for_each(|table| table.grow(slots));
        let generation = publisher.generation;
        let ports = lock(&self.ports).clone();
        let open = |id: PortId| id.index().and_then(|i| ports[i].clone());
        let taking_part: Vec<_> =
            forwarding.ports.iter().filter_map(|config| Some((config.id, open(config.id)?))).collect();
        let devices = || taking_part.iter().map(|(id, port)| (*id, port.device()));
        let plan = publisher.flow_rules.replace(&forwarding, devices().map(|(_, port)| port));
        let snapshot = Snapshot::new(generation, forwarding, open, publisher.counters.clone());
        let snapshot = Snapshot { mark: plan.mark, ..snapshot };
        // Kept until no session refers to it any more, so that no worker has to free it.
        if !publisher.programs.iter().any(|program| Arc::ptr_eq(program, &snapshot.chains)) {
            publisher.programs.push(snapshot.chains.clone());
        }
        let old = self.shared.publish(snapshot);
        self.port_monitor.check_now();
        self.wait_for(generation);
        drop(old);
        publisher.flow_rules.install(&plan, devices());
        publisher.programs.retain(|program| Arc::strong_count(program) > 1);
    }

    /// Waits until every worker runs on `generation`. A worker that walks takes it over within microseconds, one that has to be
    /// woken within tens of them: less than a sleep of any length takes here, so the time is first spent looking. The
    /// processor is offered at each look, since a worker may want the very one that this thread is on.
    fn wait_for(&self, generation: u64) {
        let began = Instant::now();
        for worker in &self.shared.workers {
            while worker.seen.load(Acquire) < generation && !self.shared.stop.load(Relaxed) {
                if began.elapsed() < LOOKING {
                    std::thread::yield_now();
                } else {
                    std::thread::sleep(Duration::from_micros(20));
                }
            }
        }
    }

    /// What the rule in `slot` matched since the slot was last zeroed.
    pub fn rule_counters(&self, slot: u32) -> RuleCounters {
        let publisher = lock(&self.publisher);
        let mut sum = RuleCounters::default();
        publisher.counters.iter().for_each(|table| sum += table.get(slot));
        sum
    }

    /// Zeroes the counters of a slot that no published policy uses.
    pub fn zero_rule_counters(&self, slot: u32) {
        lock(&self.publisher).counters.iter().for_each(|table| table.zero(slot));
    }

    /// A port's state and counters.
    pub fn port_info(&self, id: PortId) -> Option<PortInfo> {
        self.open(id).map(|port| port.info())
    }

    /// The open port with this id.
    pub(crate) fn open(&self, id: PortId) -> Option<Arc<OpenPort>> {
        lock(&self.ports)[id.index()?].clone()
    }

    /// Flow rules of a port that are in force.
    pub(crate) fn flow_rules(&self, id: PortId) -> usize {
        lock(&self.publisher).flow_rules.count(id)
    }

    /// What every worker's nodes did.
    pub fn runtime(&self) -> Vec<WorkerRuntime> {
        let workers = self.workers.iter().zip(&self.shared.workers).enumerate();
        workers
            .map(|(id, (running, shared))| WorkerRuntime {
                worker: id,
                cpu: running.cpu,
                sleeps: shared.counters.sleeps.get(),
                checksum_repairs: shared.counters.repairs.get(),
                nodes: node_runtime(&running.stats),
            })
            .collect()
    }

    /// Packets dropped by each reason.
    pub fn drops(&self) -> Vec<(DropReason, u64)> {
        drops(&self.shared)
    }

    /// Packets that went on as they came because their edits failed, by each reason there is.
    pub fn unedited(&self) -> Vec<(DropReason, u64)> {
        unedited(&self.shared)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        for worker in &self.shared.workers {
            worker.waker.wake();
        }
        for running in self.workers.drain(..) {
            // A worker that panicked has nothing left to clean up here.
            let _ = running.thread.join();
        }
        // The last snapshot holds ports; they close before the pools and DPDK go.
        self.shared.publish(empty_snapshot(u64::MAX, 0));
        lock(&self.ports).iter_mut().for_each(|port| drop(port.take()));
    }
}

pub(crate) fn node_runtime(stats: &StatsHandle) -> Vec<NodeRuntime> {
    stats
        .stats()
        .into_iter()
        .map(|n| NodeRuntime {
            name: n.name.to_owned(),
            packets: n.packets,
            vectors: n.vectors,
            cycles: n.cycles,
        })
        .collect()
}

pub(crate) fn drops(shared: &Shared) -> Vec<(DropReason, u64)> {
    let sum = |reason| shared.workers.iter().map(|w| w.counters.drops.get(reason)).sum();
    DropReason::known().map(|reason| (reason, sum(reason))).collect()
}

pub(crate) fn unedited(shared: &Shared) -> Vec<(DropReason, u64)> {
    let sum = |reason| shared.workers.iter().map(|w| w.counters.unedited.get(reason)).sum();
    EDIT_FAILURES.iter().map(|&reason| (reason, sum(reason))).collect()
}

/// A number that others cannot guess: the standard library seeds its hash tables from the system.
fn seed() -> u64 {
    std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0)
}

/// How much room there is for the sessions of all workers together.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    pub sessions: usize,
    /// Bytes of each for functions of chains.
    pub scratchpad: usize,
}

/// The sessions of worker `id` of `workers`.
pub(crate) fn sessions(id: usize, workers: usize, room: Room, seed: u64) -> Result<Sessions, EngineError> {
    let config = SessionConfig {
        sessions: room.sessions.div_ceil(workers),
        worker: id as u16,
        workers: workers as u16,
        seed,
        scratchpad: room.scratchpad,
    };
    Sessions::new(config).map_err(|e| {
        EngineError(format!("no memory for {} sessions ({e}); ask for fewer with --sessions", room.sessions))
    })
}

fn empty_snapshot(generation: u64, workers: usize) -> Snapshot {
    Snapshot::new(generation, Forwarding::default(), |_| None, vec![RuleTable::default(); workers])
}

fn no_eventfd(e: std::io::Error) -> EngineError {
    EngineError(format!("cannot make an eventfd: {e}"))
}

pub(crate) type Shares = (Shared, Vec<Option<Inbox<RingReceiver>>>);

/// What `workers` workers share, and the receiving ends of their rings.
pub(crate) fn shares(first: Snapshot, workers: usize) -> Result<Shares, EngineError> {
    let mut all = Vec::with_capacity(workers);
    let mut inboxes = Vec::with_capacity(workers);
    for id in 0..workers {
        let (inbox, receiver) = match workers {
            1 => (None, None),
            _ => inbox(id).map(|(s, r)| (Some(s), Some(r))).map_err(|e| EngineError(e.to_string()))?,
        };
        all.push(WorkerShared::new(inbox).map_err(no_eventfd)?);
        inboxes.push(receiver);
    }
    let shared = Shared::new(first, all).map_err(no_eventfd)?;
    Ok((shared, inboxes))
}

/// One CPU for each worker, from the last one down, so that CPU 0 (interrupts, the control side) is used last. None when
/// workers take all CPUs anyway: then the scheduler knows better.
fn cpus_for(workers: usize) -> Vec<Option<usize>> {
    let set = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap_or_default();
    let allowed: Vec<usize> =
        (0..nix::sched::CpuSet::count()).filter(|&c| set.is_set(c).unwrap_or(false)).rev().collect();
    (0..workers).map(|id| if workers < allowed.len() { allowed.get(id).copied() } else { None }).collect()
}

/// Starts the thread of worker `id` and waits until it walks.
fn spawn(
    id: usize,
    cpu: Option<usize>,
    inbox: Option<Inbox<RingReceiver>>,
    sessions: Sessions,
    engine: &Engine,
) -> Result<Running, EngineError> {
    let (tell, told) = mpsc::channel();
    let (shared, pool) = (engine.shared.clone(), engine.pools.ordinary());
    let body = move || {
        let ready = prepare(id, cpu, inbox, sessions, shared, pool);
        match ready {
            Ok((registration, mut graph, mut sleeper)) => {
                // The engine waits for this message; it cannot be gone.
                let _ = tell.send(Ok(graph.stats_handle()));
                worker::run(&mut graph, &mut sleeper);
                drop(graph);
                drop(registration);
            }
            Err(error) => drop(tell.send(Err(error))),
        }
    };
    let thread = std::thread::Builder::new()
        .name(format!("mmb-worker-{id}"))
        .spawn(body)
        .map_err(|e| EngineError(format!("cannot start the thread of worker {id}: {e}")))?;
    let stats = told.recv().map_err(|_| EngineError(format!("worker {id} ended before it started")))??;
    Ok(Running { thread, cpu, stats })
}

type Prepared = (ThreadGuard, Graph<Worker>, Sleeper);

fn prepare(
    id: usize,
    cpu: Option<usize>,
    inbox: Option<Inbox<RingReceiver>>,
    sessions: Sessions,
    shared: Arc<Shared>,
    pool: Mempool,
) -> Result<Prepared, EngineError> {
    let failed = |what: &str, e: &dyn std::fmt::Display| EngineError(format!("worker {id}: {what}: {e}"));
    if let Some(cpu) = cpu {
        let mut set = nix::sched::CpuSet::new();
        // Pinning is an optimisation; without it the worker runs all the same.
        let _ =
            set.set(cpu).and_then(|()| nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set));
    }
    // Sleeps of 50 µs need a timer that is not rounded up by the default slack of the same length.
    let _ = nix::sys::prctl::set_timerslack(1_000);
    let registration = register_thread().map_err(|e| failed("DPDK does not take the thread", &e))?;
    let sleeper =
        Sleeper::new(shared.workers[id].waker.clone()).map_err(|e| failed("cannot wait on ports", &e))?;
    let mut state = Box::new(Worker::new(id, shared, seed(), sessions));
    state.spread = state.shared.workers.len() as u32;
    state.pool = Some(pool);
    let nodes = graph::live(inbox.is_some());
    state.inbox = inbox;
    let graph = Graph::build(&format!("worker-{id}"), &nodes, state).map_err(|e| failed("no graph", &e))?;
    Ok((registration, graph, sleeper))
}
