//! Brokers in processes of their own.
//!
//! # Theory of operation
//! If the functions of its chain are in a domain, the event loop of a broker runs in a process with copies of
//! them ([`guest`]). So the bytes of strangers are parsed by a process without rights, and no request needs a
//! hop to a function.
//!
//! The daemon makes all sockets. It keeps the listening socket, so that clients wait in its queue while a
//! process ends and another one takes its place. The process asks for a connection to a server over a socket
//! of its own ([`connections`]): the daemon checks the address, begins to connect, and passes the descriptor.
//!
//! What functions log goes to the daemon over a third socket ([`lines`]). Files that functions read are those
//! that the functions of the daemon have read; their descriptors are passed on request.
//!
//! A thread of the daemon looks after the process ([`keeper`]): it starts it again, tells it what changes,
//! and kills it when it hangs. The process shows its progress and its counters in memory that both have
//! ([`page`]). It wakes the thread when it begins to work after a pause, so neither of them wakes up while
//! nothing happens.

mod connections;
mod guest;
mod keeper;
mod lines;
mod message;
mod page;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mmb_fabric::{Bell, FunctionCount, Supervisor};
use mmb_nf::Instance;
use mmb_nf::process::{CopyProcess, ProcessStatus};

use crate::broker::Listener;
use crate::counters::Counters;
use crate::settings::Settings;
use keeper::{Keeper, Wanted};

pub use guest::run_in_process;
pub(crate) use page::Shared;

/// How long a process has to start, and to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the thread of a process is asked for.
enum Job {
    /// Copies of new functions.
    Prepare(Vec<Arc<Instance>>, Sender<Result<(), String>>),
    Update(Vec<Arc<Instance>>, Settings),
    Pause(Sender<()>),
    Resume(Listener),
    Drain(Sender<()>),
    /// A setting of a function.
    Set(u64, Vec<String>, Sender<Result<(), String>>),
    /// The report of a function.
    Report(u64, Sender<Vec<(String, String)>>),
    /// The states of a function's servers.
    Servers(u64),
    End,
}

/// A broker in a process, as its owner sees it.
pub(crate) struct BrokerProcess {
    link: Arc<Link>,
    thread: Option<JoinHandle<()>>,
    _counted: FunctionCount,
}

impl BrokerProcess {
    /// Starts the process, and waits until it runs.
    pub fn start(
        name: &str,
        listener: Listener,
        functions: Vec<Arc<Instance>>,
        settings: Settings,
        supervisor: &Arc<Supervisor>,
    ) -> Result<BrokerProcess, String> {
        let cpu = functions.first().and_then(|function| function.process_cpu());
        cpu.map_or(Ok(()), |cpu| supervisor.processors.check(cpu))?;
        let text = |error: std::io::Error| error.to_string();
        let is_transparent = listener.is_transparent();
        // A broker can have both entrances.
        let name = if is_transparent { format!("{name} (transparent)") } else { name.to_owned() };
        let shared = Arc::new(Shared::new().map_err(text)?);
        let (jobs, received) = channel();
        let link = Arc::new(Link { name: name.clone(), jobs: Mutex::new(jobs), shared: shared.clone() });
        let copy: Arc<dyn CopyProcess> = link.clone();
        let counted = supervisor.count_function();
        let wanted = Wanted { listener: Some(listener), functions, settings, is_transparent, cpu };
        let mut keeper =
            Keeper::new((name, Arc::downgrade(&copy)), supervisor.clone(), shared, (received, wanted));
        let running = keeper.start()?;
        let builder = thread::Builder::new().name(format!("broker-{}", link.name));
        let thread = builder.spawn(move || keeper.keep(running)).map_err(text)?;
        Ok(BrokerProcess { link, thread: Some(thread), _counted: counted })
    }

    pub fn counters(&self) -> &Arc<Counters> {
        &self.link.shared.counters
    }

    pub fn shared(&self) -> &Arc<Shared> {
        &self.link.shared
    }

    /// See [`crate::Broker::prepare`].
    pub fn prepare(&self, functions: &[Arc<Instance>]) -> Result<(), String> {
        let made = self.link.ask(|sender| Job::Prepare(functions.to_vec(), sender));
        made.unwrap_or_else(|| Err("the process does not answer".to_owned()))
    }

    pub fn update(&self, functions: Vec<Arc<Instance>>, settings: Settings) {
        self.link.post(Job::Update(functions, settings));
    }

    pub fn drain(&self, done: Sender<()>) {
        self.link.post(Job::Drain(done));
    }

    pub fn pause(&self, done: Sender<()>) {
        self.link.post(Job::Pause(done));
    }

    pub fn resume(&self, listener: Listener) {
        self.link.post(Job::Resume(listener));
    }

    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for BrokerProcess {
    fn drop(&mut self) {
        self.link.post(Job::End);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has printed the reason already.
            let _ = thread.join();
        }
    }
}

/// What functions know of a process with copies of them.
struct Link {
    name: String,
    jobs: Mutex<Sender<Job>>,
    shared: Arc<Shared>,
}

impl Link {
    fn post(&self, job: Job) {
        // Without the thread, the sender of the answer is dropped.
        let _ = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).send(job);
        self.shared.attention.ring();
    }

    fn ask<T>(&self, job: impl FnOnce(Sender<T>) -> Job) -> Option<T> {
        let (sender, receiver) = channel();
        self.post(job(sender));
        receiver.recv_timeout(PATIENCE).ok()
    }
}

impl CopyProcess for Link {
    fn broker(&self) -> &str {
        &self.name
    }

    fn set(&self, function: u64, args: &[&str]) -> Result<(), String> {
        let words = args.iter().map(|&word| word.to_owned()).collect();
        self.ask(|sender| Job::Set(function, words, sender))
            .unwrap_or_else(|| Err("the process does not answer".to_owned()))
    }

    fn report(&self, function: u64) -> Option<Vec<(String, String)>> {
        self.ask(|sender| Job::Report(function, sender))
    }

    fn status(&self) -> ProcessStatus {
        let number = self.shared.number.load(Relaxed);
        ProcessStatus {
            process: (number > 0).then_some(number),
            restarts: self.shared.restarts.load(Relaxed),
            last_failure: self.shared.last_failure(),
            cpu: mmb_fabric::cpu_time(number).unwrap_or_default(),
            ..ProcessStatus::default()
        }
    }

    fn servers_changed(&self, function: u64) {
        self.post(Job::Servers(function));
    }
}

/// A process with copies, to add to the lists of functions.
type WeakCopy = Weak<dyn CopyProcess>;
