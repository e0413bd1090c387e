//! The engine's side of functions in processes: domains, and a thread that looks after each process.
//!
//! # Theory of operation
//! The thread of a process waits for requests, for the end of the process's socket, and for the time of the
//! next look at the rings. A process that has ended, that has read nothing of a full ring for [`HANG`], or
//! that has broken a ring, is killed, and its end is waited for. Only then the workers take their buffers
//! back and another process is started, with the same scratchpads and new rings. A process that ends again
//! and again is started after a pause that doubles.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mmb_nf::process::{FunctionProcess, PacketMemory, ProcessHost, ProcessLink, ProcessSpec, ProcessStatus};
use mmb_nf::{Domain, DomainKind};
use mmb_system::log;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::RecvFlags;

use crate::doorbell::{Bell, Sleeper};
use crate::layout::{FRAME, Geometry, RingPair, is_idle};
use crate::link::Link;
use crate::memory::SharedMemory;
use crate::message::{self, Hello, Reply, Request};
use crate::pool::Pool;
use crate::report;
use crate::ring;
use crate::shared::{DomainMemory, Packets, Shared};
use crate::supervisor::Supervisor;

/// How long a process may read nothing of what waits for it.
pub const HANG: Duration = Duration::from_millis(500);
/// Time between two looks at the rings.
const LOOK: Duration = Duration::from_millis(50);
/// How long a process has to start, and to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Why there are no processes in a `zero-copy` domain.
const NO_PACKETS: &str = "packets are in memory that no other process can map (devices use physical addresses, \
                          or the kernel makes no memory files): make the domain `private`";
/// So many processes with a short life are started again at once, one after the other.
const AT_ONCE: u32 = 8;
/// Later ones are started after a pause, of at most the second time.
const SHORT_LIFE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

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
        let domain = self.domain(spec.domain)?;
        let geometry = Geometry::new(spec.workers, spec.domain.buffers, self.sessions, spec.bytes);
        let text = |error: io::Error| format!("no memory: {error}");
        let pads = SharedMemory::create("mmb-scratchpads", geometry.pad_words()).map_err(text)?;
        let stride = domain.pool.stride();
        let shared = Shared::new(domain, geometry, Arc::new(pads), spec.is_read_only).map_err(text)?;
        let shared = Arc::new(shared);
        let hello = Hello {
            name: spec.function.name.text.to_string(),
            kind: spec.function.kind.text.to_string(),
            args: spec.function.args.iter().map(|word| word.to_string()).collect(),
            ports: spec.ports.to_vec(),
            seed: spec.seed,
            mode: spec.mode.word().to_owned(),
            geometry,
            stride,
            packets: None,
        };
        let number = Arc::new(AtomicU32::new(0));
        let restarts = Arc::new(AtomicU32::new(0));
        let (requests, received) = channel();
        let mut keeper = Keeper {
            supervisor: self.supervisor.clone(),
            shared: shared.clone(),
            hello,
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
            mode: spec.mode.word(),
            requests: Mutex::new(requests),
            number,
            restarts,
            linked: Mutex::new(vec![false; usize::from(spec.workers)]),
            thread,
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
    /// The word of the mode.
    mode: &'static str,
    requests: Mutex<Sender<Job>>,
    number: Arc<AtomicU32>,
    restarts: Arc<AtomicU32>,
    linked: Mutex<Vec<bool>>,
    thread: Thread,
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
        match self.ask(Request::Set(args.iter().map(|&word| word.to_owned()).collect())) {
            Some(Reply::Set(result)) => result,
            _ => Err("the process does not answer".into()),
        }
    }

    fn report(&self) -> Vec<(String, String)> {
        let mut report = report::lines(&self.shared, &self.status(), self.mode);
        match self.ask(Request::Report) {
            Some(Reply::Report(lines)) => report.extend(lines),
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

/// A process that runs.
struct Running {
    number: i32,
    socket: OwnedFd,
    rings: Arc<SharedMemory>,
    since: Instant,
    /// For each worker: descriptors read, and when that was seen first.
    seen: Vec<(u64, Instant)>,
}

/// Why a process does not run any longer.
enum End {
    /// Its socket has ended.
    Gone,
    Hangs,
    /// It has broken a ring.
    Broken,
    /// Nobody needs it.
    Stop,
}

/// The thread of a process.
struct Keeper {
    supervisor: Arc<Supervisor>,
    shared: Arc<Shared>,
    hello: Hello,
    requests: Receiver<Job>,
    number: Arc<AtomicU32>,
    restarts: Arc<AtomicU32>,
}

impl Keeper {
    /// Starts a process with new rings, and waits until its function runs.
    fn start(&mut self) -> Result<Running, String> {
        let text = |error: io::Error| error.to_string();
        if self.shared.domain.packets.as_ref().is_some_and(|packets| packets.get().is_none()) {
            return Err(NO_PACKETS.into());
        }
        let Shared { geometry, domain, pads, bell, .. } = &*self.shared;
        let rings = Arc::new(SharedMemory::create("mmb-rings", geometry.ring_words()).map_err(text)?);
        let (socket, theirs) = message::pair().map_err(text)?;
        let number = self.supervisor.start_process(theirs)?;
        let mut files = vec![domain.memory.as_fd(), pads.as_fd(), rings.as_fd(), bell.as_fd()];
        if let Some(packets) = self.shared.packets() {
            let (file, offset) = packets.file();
            files.push(file);
            self.hello.packets = Some((offset, packets.bytes()));
        }
        let sent = message::send(&socket, &self.hello, &files).map_err(text);
        let ready = sent.and_then(|()| match wait_for(&socket) {
            Ok(Some(Reply::Ready)) => Ok(()),
            Ok(Some(Reply::Failed(reason))) => Err(reason),
            Ok(Some(_)) => Err("the process answers something else".into()),
            Ok(None) => Err(String::new()),
            Err(error) => Err(format!("the process does not answer: {error}")),
        });
        if let Err(reason) = ready {
            let how = self.supervisor.kill(number);
            return Err(if reason.is_empty() { format!("the process has ended ({how})") } else { reason });
        }
        let now = Instant::now();
        self.number.store(number.unsigned_abs(), Relaxed);
        self.shared.set_up(&rings);
        let seen = vec![(0, now); usize::from(geometry.workers)];
        Ok(Running { number, socket, rings, since: now, seen })
    }

    /// Looks after processes, one after the other, until the function is deleted.
    fn keep(&mut self, first: Option<Running>) {
        let (mut next, mut short_lives) = (first, 0_u32);
        loop {
            let mut running = match next.take() {
                Some(running) => running,
                None => match self.start_until_it_runs(&mut short_lives) {
                    Some(running) => running,
                    None => return,
                },
            };
            let end = self.watch(&mut running);
            let how = self.supervisor.kill(running.number);
            self.number.store(0, Relaxed);
            self.shared.set_down();
            let how = match end {
                End::Stop => return,
                End::Gone => format!("has ended ({how})"),
                End::Hangs => "hangs, and was killed".to_owned(),
                End::Broken => "has broken a ring, and was killed".to_owned(),
            };
            log::error(format!("function {}: its process {how}\n", self.hello.name));
            self.shared.set_failure(&how);
            short_lives = if running.since.elapsed() < SHORT_LIFE { short_lives + 1 } else { 0 };
            self.restarts.fetch_add(1, Relaxed);
        }
    }

    /// Starts a process, after a pause if the last ones have lived shortly. None: the function is deleted.
    fn start_until_it_runs(&mut self, short_lives: &mut u32) -> Option<Running> {
        loop {
            let pause = match short_lives.checked_sub(AT_ONCE) {
                None => Duration::ZERO,
                Some(n) => LONGEST_PAUSE.min(Duration::from_millis(20) * (1 << n.min(10))),
            };
            if self.is_stopped_within(pause) {
                return None;
            }
            match self.start() {
                Ok(running) => return Some(running),
                Err(reason) => {
                    self.shared.set_failure(&format!("does not start: {reason}"));
                    log::error(format!(
                        "function {}: its process does not start: {reason}\n",
                        self.hello.name
                    ));
                    *short_lives = short_lives.saturating_add(1).max(AT_ONCE);
                }
            }
        }
    }

    /// Waits until a process has to end. Requests are answered.
    fn watch(&self, running: &mut Running) -> End {
        let sleeper = Sleeper::new(self.shared.keeper.clone());
        loop {
            if self.has_idle_rings(running) {
                // Nothing happens: the next packet, or a request, ends the sleep.
                let bell = KeeperBell { shared: &self.shared, socket: &running.socket, limit: None };
                sleeper.sleep(&bell, || !self.has_idle_rings(running));
                running.seen.iter_mut().for_each(|seen| seen.1 = Instant::now());
            } else {
                KeeperBell { shared: &self.shared, socket: &running.socket, limit: Some(LOOK) }.wait();
            }
            if message::is_readable(running.socket.as_fd()) {
                // Nobody has asked: the process is gone, or breaks the rules.
                return End::Gone;
            }
            if let Some(end) = self.answer(running) {
                return end;
            }
            if self.shared.is_kill_requested() {
                return End::Broken;
            }
            if self.hangs(running) {
                return End::Hangs;
            }
        }
    }

    /// Answers requests. Returns why the process has to end.
    fn answer(&self, running: &Running) -> Option<End> {
        while let Ok(job) = self.requests.try_recv() {
            match job {
                Job::Stop => return Some(End::Stop),
                Job::Ask(request, reply) => {
                    let answer = message::send(&running.socket, &request, &[])
                        .and_then(|()| wait_for(&running.socket));
                    match answer {
                        // The one who has asked may wait no longer.
                        Ok(Some(answer)) => drop(reply.send(answer)),
                        Ok(None) => return Some(End::Gone),
                        Err(_) => return Some(End::Hangs),
                    }
                }
            }
        }
        None
    }

    /// Whether nothing waits for the process.
    fn has_idle_rings(&self, running: &Running) -> bool {
        let geometry = &self.shared.geometry;
        let mut pairs = (0..geometry.workers).filter_map(|worker| geometry.rings(&running.rings, worker));
        pairs.all(|pair| {
            let (written, read) = ring::counters(&pair.there);
            written == read
        })
    }

    /// Whether the process has read nothing for too long.
    fn hangs(&self, running: &mut Running) -> bool {
        let geometry = &self.shared.geometry;
        let mut hangs = false;
        for (worker, seen) in running.seen.iter_mut().enumerate() {
            let Some(pair) = geometry.rings(&running.rings, worker as u16) else { continue };
            let (_, read) = ring::counters(&pair.there);
            if seen.0 != read || is_idle(&pair, geometry.slots) {
                *seen = (read, Instant::now());
            }
            hangs |= seen.1.elapsed() >= HANG;
        }
        hangs
    }

    /// Waits for a time. Returns true if the function is deleted meanwhile.
    fn is_stopped_within(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        loop {
            match self.requests.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Job::Stop) => return true,
                // There is no process to ask.
                Ok(Job::Ask(..)) => {}
                Err(_) => return false,
            }
        }
    }
}

/// What the thread waits for: attention, or the end of the process.
struct KeeperBell<'a> {
    shared: &'a Shared,
    socket: &'a OwnedFd,
    /// The longest wait.
    limit: Option<Duration>,
}

impl Bell for KeeperBell<'_> {
    fn ring(&self) {
        self.shared.attention.ring();
    }

    fn wait(&self) {
        let attention = &self.shared.attention;
        let mut files =
            [PollFd::new(attention, PollFlags::IN), PollFd::new(self.socket, PollFlags::IN | PollFlags::HUP)];
        let limit = self.limit.and_then(|limit| Timespec::try_from(limit).ok());
        // An interrupted wait is a short one.
        let _ = poll(&mut files, limit.as_ref());
        attention.clear();
    }
}

/// Waits for a message of a process.
fn wait_for(socket: &OwnedFd) -> io::Result<Option<Reply>> {
    let mut files = [PollFd::new(socket, PollFlags::IN)];
    let patience = Timespec::try_from(PATIENCE).unwrap_or_default();
    match poll(&mut files, Some(&patience)) {
        Ok(0) => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(message::receive(socket, RecvFlags::empty())?.map(|(reply, _)| reply)),
    }
}

/// Returns the rings of a worker, for reports.
pub fn rings_of(shared: &Shared, worker: u16) -> Option<RingPair> {
    shared.geometry.rings(&shared.rings()?, worker)
}
