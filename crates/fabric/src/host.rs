//! The engine's side of functions in processes: domains, and requests to processes.
//!
//! # Theory of operation
//! A domain is made with its first function and freed with its last one. Each process has a thread that looks
//! after it ([`keeper`]), which requests are posted to.

mod keeper;
mod lines;

use std::collections::HashMap;
use std::io;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use mmb_nf::process::{FunctionProcess, PacketMemory, ProcessHost, ProcessLink, ProcessSpec, ProcessStatus};
use mmb_nf::{Domain, DomainKind};
use mmb_system::log;

use crate::doorbell::Bell;
use crate::layout::{FRAME, Geometry, RingPair};
use crate::link::Link;
use crate::memory::SharedMemory;
use crate::message::{self, Hello, MOST_INPUTS, Reply, Request};
use crate::pool::Pool;
use crate::report;
use crate::shared::{DomainMemory, Packets, Shared};
use crate::supervisor::{FunctionCount, Supervisor};
use keeper::{Keeper, Running};

pub use keeper::HANG;

/// How long a process has to start, and to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Why there are no processes in a `zero-copy` domain.
const NO_PACKETS: &str = "packets are in memory that no other process can map (devices use physical addresses, \
                          or the kernel makes no memory files): make the domain `private`";

/// Starts functions in processes: see [`ProcessHost`].
pub struct Host {
    supervisor: Arc<Supervisor>,
    /// Most sessions of a worker.
    sessions: u32,
    domains: Mutex<HashMap<String, Weak<DomainMemory>>>,
    packets: Packets,
    /// Threads that wait for [`Host::begin`]. None: there was one.
    deferred: Mutex<Option<Vec<Deferred>>>,
}

/// A thread that does not run yet, and where its handle goes.
type Deferred = (Keeper, Thread);
type Thread = Arc<Mutex<Option<JoinHandle<()>>>>;

impl Host {
    /// Makes a host. `sessions`: the most sessions of a worker.
    pub fn new(supervisor: Supervisor, sessions: u32) -> Host {
        let deferred = Mutex::new(Some(Vec::new()));
        let packets = Arc::new(OnceLock::new());
        Host { supervisor: Arc::new(supervisor), sessions, domains: Mutex::default(), packets, deferred }
    }

    /// Returns the supervisor of all processes.
    pub fn supervisor(&self) -> &Arc<Supervisor> {
        &self.supervisor
    }

    /// Starts threads and processes. Until then, functions are taken on, and none of them runs: a process
    /// that still gives up rights must have no other threads. `packets`: what functions of `zero-copy`
    /// domains read. None: there are no such domains.
    pub fn begin(&self, packets: Option<Arc<dyn PacketMemory>>) {
        if let Some(packets) = packets {
            // There is one call.
            let _ = self.packets.set(packets);
        }
        let deferred = self.deferred.lock().unwrap_or_else(PoisonError::into_inner).take();
        for (keeper, thread) in deferred.into_iter().flatten() {
            let name = keeper.hello.name.clone();
            if let Err(error) = run(keeper, None, &thread) {
                log::error(format!("function {name}: {error}\n"));
            }
        }
    }

    /// Returns the memory of a domain, which is made with its first function and freed with its last one.
    fn domain(&self, domain: &Domain) -> Result<Arc<DomainMemory>, String> {
        let mut domains = self.domains.lock().unwrap_or_else(PoisonError::into_inner);
        let name = domain.name.text.to_string();
        let known = domains.get(&name).and_then(Weak::upgrade);
        if let Some(known) = known
            && known.pool.buffers() == domain.buffers
            && known.on_failure == domain.on_failure
            && known.packets.is_some() == (domain.kind == DomainKind::ZeroCopy)
        {
            return Ok(known);
        }
        let pool = Pool::new(domain.buffers, FRAME).ok_or("the pool is too large")?;
        let memory = SharedMemory::create("mmb-domain", pool.bytes() / 8);
        let memory = memory.map_err(|error| format!("no memory for the domain: {error}"))?;
        let on_failure = domain.on_failure;
        let packets = (domain.kind == DomainKind::ZeroCopy).then(|| self.packets.clone());
        let (pool, memory) = (Arc::new(pool), Arc::new(memory));
        let made = Arc::new(DomainMemory { pool, memory, on_failure, packets });
        domains.retain(|_, memory| memory.strong_count() > 0);
        domains.insert(name, Arc::downgrade(&made));
        Ok(made)
    }
}

impl ProcessHost for Host {
    fn start(&self, spec: &ProcessSpec<'_>) -> Result<Arc<dyn FunctionProcess>, String> {
        spec.cpu.map_or(Ok(()), |cpu| self.supervisor.processors.check(cpu))?;
        if spec.files.kept_inputs().len() > MOST_INPUTS {
            return Err(format!(
                "it reads more than {MOST_INPUTS} files: join some of them, or leave `process` out"
            ));
        }
        let domain = self.domain(spec.domain)?;
        let geometry = Geometry::new(spec.workers, spec.domain.buffers, self.sessions, spec.bytes);
        let text = |error: io::Error| format!("no memory: {error}");
        let pads = SharedMemory::create("mmb-scratchpads", geometry.pad_words()).map_err(text)?;
        let stride = domain.pool.stride();
        let shared = Shared::new(domain, geometry, Arc::new(pads), spec.is_read_only, spec.log.clone());
        let shared = shared.map_err(text)?;
        let shared = Arc::new(shared);
        let hello = Hello {
            name: spec.function.name.text.to_string(),
            kind: spec.function.kind.text.to_string(),
            args: spec.function.args.iter().map(|word| word.to_string()).collect(),
            ports: spec.ports.to_vec(),
            seed: spec.seed,
            mode: spec.mode.word().to_owned(),
            cpu: spec.cpu,
            priority: self.supervisor.priority,
            geometry,
            stride,
            packets: None,
            files: Vec::new(),
        };
        let number = Arc::new(AtomicU32::new(0));
        let restarts = Arc::new(AtomicU32::new(0));
        let (requests, received) = channel();
        let counted = self.supervisor.count_function();
        let mut keeper = Keeper {
            supervisor: self.supervisor.clone(),
            shared: shared.clone(),
            hello,
            files: spec.files.clone(),
            requests: received,
            number: number.clone(),
            restarts: restarts.clone(),
        };
        let thread = Thread::default();
        let mut deferred = self.deferred.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *deferred {
            Some(all) => all.push((keeper, thread.clone())),
            None => {
                let running = keeper.start()?;
                run(keeper, Some(running), &thread)?;
            }
        }
        drop(deferred);
        Ok(Arc::new(Process {
            shared,
            mode: match spec.cpu {
                Some(cpu) => format!("{} cpu {cpu}", spec.mode.word()),
                None => spec.mode.word().to_owned(),
            },
            requests: Mutex::new(requests),
            number,
            restarts,
            linked: Mutex::new(vec![false; usize::from(spec.workers)]),
            thread,
            _counted: counted,
        }))
    }
}

/// Runs the thread of a process.
fn run(mut keeper: Keeper, running: Option<Running>, thread: &Thread) -> Result<(), String> {
    let builder = std::thread::Builder::new().name(format!("nf-{}", keeper.hello.name));
    let handle = builder.spawn(move || keeper.keep(running));
    let handle = handle.map_err(|error| format!("cannot start the thread of the process: {error}"))?;
    *thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle);
    Ok(())
}

/// A request with the place for its answer.
enum Job {
    Ask(Request, Sender<Reply>),
    Stop,
}

/// See [`FunctionProcess`].
struct Process {
    shared: Arc<Shared>,
    /// Mode and processor, in the words of the line.
    mode: String,
    requests: Mutex<Sender<Job>>,
    number: Arc<AtomicU32>,
    restarts: Arc<AtomicU32>,
    linked: Mutex<Vec<bool>>,
    thread: Thread,
    _counted: FunctionCount,
}

impl Process {
    fn post(&self, job: Job) {
        // Without the thread, the sender of the answer is dropped.
        let _ = self.requests.lock().unwrap_or_else(PoisonError::into_inner).send(job);
        self.shared.attention.ring();
    }

    fn ask(&self, request: Request) -> Option<Reply> {
        let (sender, receiver) = channel();
        self.post(Job::Ask(request, sender));
        receiver.recv_timeout(PATIENCE).ok()
    }
}

impl FunctionProcess for Process {
    fn link(&self, worker: u16, sessions: u32) -> Option<Box<dyn ProcessLink>> {
        let mut linked = self.linked.lock().unwrap_or_else(PoisonError::into_inner);
        let is_linked = linked.get_mut(usize::from(worker))?;
        if sessions > self.shared.geometry.sessions || std::mem::replace(is_linked, true) {
            return None;
        }
        Some(Box::new(Link::new(self.shared.clone(), worker, sessions)))
    }

    fn set(&self, args: &[&str]) -> Result<(), String> {
        let words = args.iter().map(|&word| word.to_owned()).collect();
        match self.ask(Request::Set(words, Vec::new())) {
            Some(Reply::Set(result)) => result.map_err(|reason| message::printable(&reason)),
            _ => Err("the process does not answer".into()),
        }
    }

    fn report(&self) -> Vec<(String, String)> {
        let mut report = report::lines(&self.shared, &self.status(), &self.mode);
        match self.ask(Request::Report) {
            Some(Reply::Report(lines)) => report.extend(report::of_log(&self.shared, lines)),
            _ => report.push(("process".into(), "does not answer".into())),
        }
        report
    }

    fn status(&self) -> ProcessStatus {
        report::status(&self.shared, self.number.load(Relaxed), self.restarts.load(Relaxed))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.post(Job::Stop);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A thread that panicked has printed the reason already.
            let _ = thread.join();
        }
    }
}

/// Returns the rings of a worker, for reports.
pub fn rings_of(shared: &Shared, worker: u16) -> Option<RingPair> {
    shared.geometry.rings(&shared.rings()?, worker)
}
