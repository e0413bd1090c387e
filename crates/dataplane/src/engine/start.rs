//! Start of the engine: DPDK, packet memory, and the threads of the workers.

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;

use mmb_dpdk::{
    Eal, EalConfig, Graph, HugePages, MemoryFile, Mempool, RingReceiver, ThreadGuard, populate,
    register_thread,
};
use mmb_fastpath::PortMonitor;
use mmb_flow::{ScratchpadFile, memory_requests};
use mmb_packet::{FlowHashKey, set_flow_hash_key};
use mmb_session::{SessionConfig, Sessions, SharedSessions};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::engine::config::{EngineConfig, Forwarding, MAX_SCRATCHPAD, MAX_SESSIONS, MAX_WORKERS};
use crate::engine::control::{Engine, Publisher, RunningWorker, lock};
use crate::engine::counters::RuleTable;
use crate::engine::error::{EngineError, WorkerError};
use crate::engine::handoff::{Inbox, create_inbox};
use crate::engine::periodic::leave_cpus;
use crate::engine::pool_growth::PoolGrowths;
use crate::engine::pools::{Pools, SharedScratchpads, check_memory};
use crate::engine::shared::{Shared, WorkerShared};
use crate::engine::snapshot::Snapshot;
use crate::engine::thread::failure::WorkerFailure;
use crate::engine::thread::poll;
use crate::engine::thread::sleep::Sleeper;
use crate::engine::worker::Worker;
use crate::features::fastpath::host::update_redirects;
use crate::features::flow_rules::InstalledRules;
use crate::features::port::device::OpenPorts;
use crate::features::port::stalls::start_monitor;
use crate::features::punt::queue::PuntQueue;
use crate::features::punt::writer;
use crate::graph;

/// Timer slack of a worker, in nanoseconds. Sleeps of 50 µs would be rounded up by the default slack of the
/// same size.
const TIMER_SLACK: u64 = 1_000;
/// The calling thread, for the affinity to CPUs.
const CALLER: nix::unistd::Pid = nix::unistd::Pid::from_raw(0);

impl Engine {
    /// Starts DPDK and the workers, with no port and no rule.
    ///
    /// # Errors
    /// A number of `config` is out of range, memory or permission is missing, or the process has an engine
    /// already.
    pub fn start(config: &EngineConfig) -> Result<Engine, EngineError> {
        check(config)?;
        check_memory(config.memory_mb)?;
        let eal_config =
            EalConfig { memory_mb: config.memory_mb, huge: HugePages::Auto, ..EalConfig::default() };
        let eal = Eal::init(&eal_config)?;
        let cpus = cpus_for(config.workers);
        start_allocation(cpus.clone())?;
        let pools = Pools::create_growing(config.memory_mb, config.registers_all, cpus.clone())?;
        let (mut shared, inboxes) = create_shared(empty_snapshot(0, config.workers), config.workers)?;
        let (queue, punted) = PuntQueue::new()?;
        shared.punt.queue = Some(queue);
        let shared = Arc::new(shared);
        let ports: Arc<OpenPorts> = Arc::new(Mutex::new(std::array::from_fn(|_| None)));
        let monitored = ports.clone();
        let port_monitor = PortMonitor::start(shared.fast.clone(), move || update_redirects(&monitored))
            .map_err(|reason| EngineError::Thread { name: "the port monitor".into(), reason })?;
        let stall_monitor = start_monitor(ports.clone())
            .map_err(|reason| EngineError::Thread { name: "the monitor of packet sockets".into(), reason })?;
        pools
            .start_growth()
            .map_err(|reason| EngineError::Thread { name: "the growth of packet memory".into(), reason })?;
        let writer = shared.clone();
        let punt_writer = thread("the kernel's writer", "mmb-punt", move || writer::run(&writer, punted))?;
        let seed = config.seed.unwrap_or_else(random_seed);
        set_flow_hash_key(FlowHashKey::new(StdRng::seed_from_u64(seed).random()));
        let mut engine = Engine {
            sessions: Arc::new(SharedSessions::new(config.sessions, config.workers as u16, seed)),
            workers: Vec::new(),
            punt_writer: Some(punt_writer),
            ports,
            port_monitor,
            stall_monitor,
            publisher: Mutex::new(Publisher {
                generation: 0,
                counters: vec![RuleTable::default(); config.workers],
                programs: Vec::new(),
                flow_rules: InstalledRules::default(),
            }),
            shared,
            prepared: Mutex::default(),
            pools,
            files: config.files.clone(),
            eal,
        };
        for (id, (cpu, inbox)) in cpus.into_iter().zip(inboxes).enumerate() {
            let capacity = SessionCapacity {
                sessions: config.sessions,
                scratchpad: config.scratchpad,
                share_scratchpads: config.share_scratchpads,
            };
            let place = (id, config.workers);
            let mut sessions = create_sessions(place, capacity, seed, engine.sessions.clone())?;
            sessions.set_clock(mmb_dpdk::rdtsc);
            let running = spawn(id, cpu, inbox, sessions, &engine)?;
            engine.workers.push(running);
        }
        Ok(engine)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        for worker in &self.shared.workers {
            worker.waker.wake();
        }
        if let Some(queue) = &self.shared.punt.queue {
            queue.wake();
        }
        if let Some(writer) = self.punt_writer.take() {
            // After a panic, there is nothing left to clean up either.
            let _ = writer.join();
        }
        for running in self.workers.drain(..) {
            // A worker that panicked has nothing left to clean up here.
            let _ = running.thread.join();
        }
        // The last snapshot holds ports; they close before the pools and DPDK end.
        self.shared.publish(empty_snapshot(u64::MAX, 0));
        lock(&self.ports).iter_mut().for_each(|port| drop(port.take()));
    }
}

fn check(config: &EngineConfig) -> Result<(), EngineError> {
    if !(1..=MAX_WORKERS).contains(&config.workers) {
        return Err(EngineError::Workers(config.workers));
    }
    if !(1..=MAX_SESSIONS).contains(&config.sessions) {
        return Err(EngineError::Sessions(config.sessions));
    }
    if config.scratchpad > MAX_SCRATCHPAD {
        return Err(EngineError::Scratchpad(config.scratchpad));
    }
    Ok(())
}

/// A random number; the standard library seeds its hash tables from the system.
fn random_seed() -> u64 {
    std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0)
}

/// Room for the sessions of all workers together.
#[derive(Clone, Copy)]
pub(crate) struct SessionCapacity {
    pub sessions: usize,
    /// Most bytes of a session for functions of chains.
    pub scratchpad: usize,
    /// Whether scratchpads lie in a file that other processes can map.
    pub share_scratchpads: bool,
}

/// Creates the sessions of worker `id` of `workers`, which have the same `shared`.
pub(crate) fn create_sessions(
    (id, workers): (usize, usize),
    capacity: SessionCapacity,
    seed: u64,
    shared: Arc<SharedSessions>,
) -> Result<Sessions, EngineError> {
    let config = SessionConfig {
        sessions: capacity.sessions,
        worker: id as u16,
        workers: workers as u16,
        seed,
        scratchpad: capacity.scratchpad,
    };
    let sessions = match capacity.share_scratchpads {
        true => Sessions::with_scratchpad_file(config, shared, create_scratchpads),
        false => Sessions::with_shared(config, shared),
    };
    sessions.map_err(|reason| EngineError::SessionMemory { sessions: capacity.sessions, reason })
}

/// Makes and maps a file for scratchpads.
fn create_scratchpads(bytes: usize) -> io::Result<ScratchpadFile> {
    let memory = MemoryFile::create(c"mmb-scratchpads", bytes)?;
    Ok(ScratchpadFile { map: memory.map()?, file: memory.into() })
}

fn empty_snapshot(generation: u64, workers: usize) -> Snapshot {
    Snapshot::new(generation, Forwarding::default(), |_| None, vec![RuleTable::default(); workers])
}

/// The receiving ends of the rings of each worker.
pub(crate) type Inboxes = Vec<Option<Inbox<RingReceiver>>>;

/// Creates what `workers` workers share, and the receiving ends of their rings.
pub(crate) fn create_shared(first: Snapshot, workers: usize) -> Result<(Shared, Inboxes), EngineError> {
    let mut all = Vec::with_capacity(workers);
    let mut inboxes = Vec::with_capacity(workers);
    for id in 0..workers {
        let (inbox, receiver) = match workers {
            1 => (None, None),
            _ => create_inbox(id).map(|(s, r)| (Some(s), Some(r)))?,
        };
        all.push(WorkerShared::new(inbox).map_err(EngineError::EventFd)?);
        inboxes.push(receiver);
    }
    let shared = Shared::new(first, all).map_err(EngineError::EventFd)?;
    Ok((shared, inboxes))
}

/// One CPU for each worker, from the last one down: CPU 0, which handles interrupts and the control side,
/// comes last. None when the workers take all CPUs; then the scheduler decides.
fn cpus_for(workers: usize) -> Vec<Option<usize>> {
    let set = nix::sched::sched_getaffinity(CALLER).unwrap_or_default();
    let allowed: Vec<usize> =
        (0..nix::sched::CpuSet::count()).filter(|&c| set.is_set(c).unwrap_or(false)).rev().collect();
    (0..workers).map(|id| if workers < allowed.len() { allowed.get(id).copied() } else { None }).collect()
}

/// Starts the thread of worker `id` and waits until it runs.
fn spawn(
    id: usize,
    cpu: Option<usize>,
    inbox: Option<Inbox<RingReceiver>>,
    sessions: Sessions,
    engine: &Engine,
) -> Result<RunningWorker, EngineError> {
    let (sender, receiver) = mpsc::channel();
    let (shared, pools) = (engine.shared.clone(), (engine.pools.ordinary(), engine.pools.growths()));
    let scratchpads = SharedScratchpads::of(&sessions).map_err(EngineError::ShareScratchpads)?;
    let end = EndOfWorker { id, shared: engine.shared.clone() };
    let body = move || {
        let end = end;
        let ready = set_up(id, cpu, inbox, sessions, shared, pools);
        match ready {
            Ok((registration, mut graph, mut sleeper)) => {
                // The engine waits for this message, so sending does not fail.
                let _ = sender.send(Ok(graph.stats_handle()));
                poll::run(&mut graph, &mut sleeper);
                drop(graph);
                drop(registration);
            }
            Err(error) => drop(sender.send(Err(error))),
        }
        drop(end);
    };
    let thread = thread(&format!("worker {id}"), &format!("mmb-worker-{id}"), body)?;
    let stats = receiver.recv().map_err(|_| EngineError::WorkerEnded(id))??;
    Ok(RunningWorker { thread, cpu, stats, scratchpads })
}

/// Starts a thread. `what`: its description for messages.
fn thread(
    what: &str,
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, EngineError> {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(body);
    started.map_err(|reason| EngineError::Thread { name: what.to_owned(), reason })
}

/// Starts the thread that allocates the memory which sessions will need, beside workers on these CPUs. It
/// runs as long as the process, for all its engines.
fn start_allocation(workers: Vec<Option<usize>>) -> Result<(), EngineError> {
    let Some(requests) = memory_requests() else { return Ok(()) };
    let body = move || {
        leave_cpus(workers.into_iter().flatten());
        requests.into_iter().for_each(populate);
    };
    thread("the allocation of memory", "mmb-memory", body).map(drop)
}

/// Reports the end of a worker's thread, unless the engine has stopped it.
struct EndOfWorker {
    id: usize,
    shared: Arc<Shared>,
}

impl Drop for EndOfWorker {
    fn drop(&mut self) {
        self.shared.workers[self.id].mailbox.close();
        if !self.shared.stop.load(Relaxed) {
            self.shared.failure.set(WorkerFailure::Ended { worker: self.id });
        }
    }
}

type WorkerSetup = (ThreadGuard, Graph<Worker>, Sleeper);

/// Sets up worker `id` on its own thread.
fn set_up(
    id: usize,
    cpu: Option<usize>,
    inbox: Option<Inbox<RingReceiver>>,
    sessions: Sessions,
    shared: Arc<Shared>,
    (pool, growths): (Mempool, Arc<PoolGrowths>),
) -> Result<WorkerSetup, EngineError> {
    let failed = |step| EngineError::Worker { worker: id, step };
    if let Some(cpu) = cpu {
        let mut set = nix::sched::CpuSet::new();
        // Pinning is an optimisation; the worker runs without it too.
        let _ = set.set(cpu).and_then(|()| nix::sched::sched_setaffinity(CALLER, &set));
    }
    // With the default slack, short sleeps only take longer.
    let _ = nix::sys::prctl::set_timerslack(TIMER_SLACK);
    let registration = register_thread().map_err(|e| failed(WorkerError::Register(e)))?;
    let sleeper = Sleeper::new(shared.workers[id].waker.clone()).map_err(|e| failed(WorkerError::Wait(e)))?;
    let mut state = Box::new(Worker::new(id, shared, random_seed(), sessions));
    state.handoff.spread = state.shared.workers.len() as u32;
    (state.ports.pool, state.ports.growths) = (Some(pool), growths);
    let nodes = graph::live(inbox.is_some());
    state.handoff.inbox = inbox;
    let graph =
        Graph::build(&format!("worker-{id}"), &nodes, state).map_err(|e| failed(WorkerError::Graph(e)))?;
    Ok((registration, graph, sleeper))
}
