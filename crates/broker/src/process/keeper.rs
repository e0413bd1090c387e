//! The thread of the daemon that looks after the process of a broker.
//!
//! # Theory of operation
//! The thread waits for the process, for jobs of the daemon, and for requests for connections. While the
//! event loop works, it looks at its progress from time to time; a process without progress for [`HANG`] is
//! killed. Otherwise it sleeps, and the process wakes it. When the process has ended, another one gets the
//! listening socket and the functions, with their settings.

mod requests;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use mmb_fabric::{
    Bell, HANG, NewProcess, RestartPace, Supervisor, cpu_time, has_ended, is_runnable, message, sandbox,
};
use mmb_nf::Instance;
use mmb_system::log;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionbio;
use rustix::net::RecvFlags;

use super::connections::{Connections, Servers};
use super::lines::LineReceiver;
use super::message::{Function, Hello, Reply};
use super::page::Shared;
use super::{Job, PATIENCE, WeakCopy};
use crate::broker::Listener;
use crate::settings::Settings;
use requests::Pending;

/// Time between two looks at the progress of a process that works.
const LOOK: Duration = Duration::from_millis(50);
/// How long a process has to end, and to send what its functions log at the end.
const ENDING: Duration = Duration::from_millis(100);

/// What a process is to run.
pub(super) struct Wanted {
    /// None: no connection is accepted.
    pub listener: Option<Listener>,
    pub functions: Vec<Arc<Instance>>,
    pub settings: Settings,
    pub is_transparent: bool,
    pub cpu: Option<u16>,
}

/// A process that runs.
pub(super) struct Running {
    number: i32,
    socket: OwnedFd,
    /// The socket by which it gets connections and files.
    connections: OwnedFd,
    /// The socket for lines of logs.
    lines: OwnedFd,
    /// There are more of them than were read.
    has_lines: bool,
    /// Readable once the process has ended.
    end: OwnedFd,
    since: Instant,
    /// The functions of which it has copies.
    copies: Vec<u64>,
    pending: Pending,
    /// Why it says that it ends.
    last_words: Option<String>,
    progress: Progress,
}

/// The last look at a process.
struct Progress {
    /// Turn of the event loop, and requests and bytes.
    seen: (u64, u64),
    at: Instant,
    /// Time without progress, and the processor time at its beginning.
    without: Duration,
    cpu: Duration,
}

/// Why a process does not run any longer.
enum End {
    /// It has ended, or its socket has.
    Gone,
    Hangs,
    /// It does what it must not.
    Broken,
    /// Nobody needs it.
    Stop,
}

/// The thread of a process.
pub(super) struct Keeper {
    name: String,
    copy: WeakCopy,
    supervisor: Arc<Supervisor>,
    shared: Arc<Shared>,
    jobs: Receiver<Job>,
    wanted: Wanted,
    servers: Servers,
    /// Functions that are not in use yet, and are made.
    prepared: Vec<Arc<Instance>>,
    lines: LineReceiver,
    /// No other process is started when this one ends.
    is_draining: bool,
}

impl Keeper {
    pub fn new(
        (name, copy): (String, WeakCopy),
        supervisor: Arc<Supervisor>,
        shared: Arc<Shared>,
        (jobs, wanted): (Receiver<Job>, Wanted),
    ) -> Keeper {
        let (mut servers, mut lines, prepared) = (Servers::default(), LineReceiver::default(), Vec::new());
        servers.set(&wanted.functions);
        lines.set(&wanted.functions);
        let is_draining = false;
        Keeper { name, copy, supervisor, shared, jobs, wanted, servers, prepared, lines, is_draining }
    }

    /// Starts the broker in a process, and waits until it runs.
    pub fn start(&mut self) -> Result<Running, String> {
        let supervisor = self.supervisor.clone();
        match supervisor.run_in_spare(|spare| self.run_in(spare)) {
            Some(running) => Ok(running),
            None => supervisor.start_process().and_then(|process| self.run_in(process)),
        }
    }

    /// Gives the broker to a process that waits for something to run.
    fn run_in(&mut self, NewProcess { number, socket, end }: NewProcess) -> Result<Running, String> {
        let started = self.greet(&socket).and_then(|sockets| {
            // A process that reads nothing must not hold up the thread.
            ioctl_fionbio(&socket, true).map(|()| sockets).map_err(|error| error.to_string())
        });
        let (connections, lines) = match started {
            Ok(sockets) => sockets,
            Err(reason) => {
                let how = self.supervisor.kill(number);
                return Err(if reason.is_empty() { format!("the process {how}") } else { reason });
            }
        };
        self.shared.number.store(number.unsigned_abs(), Relaxed);
        self.register();
        let since = Instant::now();
        let progress = Progress { seen: (0, 0), at: since, without: Duration::ZERO, cpu: Duration::ZERO };
        let copies = self.wanted.functions.iter().filter_map(id_of).collect();
        let (pending, last_words, has_lines) = (Pending::default(), None, false);
        Ok(Running {
            number,
            socket,
            connections,
            lines,
            has_lines,
            end,
            since,
            copies,
            pending,
            last_words,
            progress,
        })
    }

    /// Tells a process what it is to run, and waits until it does. Returns the sockets for connections and
    /// for lines. The error is empty if the process has ended.
    fn greet(&self, socket: &OwnedFd) -> Result<(OwnedFd, OwnedFd), String> {
        let text = |error: io::Error| error.to_string();
        let (connections, theirs) = message::pair().map_err(text)?;
        let (lines, sent_lines) = message::pair().map_err(text)?;
        // Neither side waits for the other one.
        for end in [&connections, &sent_lines] {
            ioctl_fionbio(end, true).map_err(|error| error.to_string())?;
        }
        let Wanted { listener, functions, settings, is_transparent, cpu } = &self.wanted;
        let hello = Hello {
            functions: messages(functions),
            settings: *settings,
            is_transparent: *is_transparent,
            has_listener: listener.is_some(),
            cpu: *cpu,
            priority: self.supervisor.priority,
        };
        let hello = serde_json::to_value(hello).map_err(|error| error.to_string())?;
        let Shared { memory, bell, .. } = &*self.shared;
        let mut files = vec![theirs.as_fd(), memory.as_fd(), bell.as_fd(), sent_lines.as_fd()];
        files.extend(listener.iter().map(AsFd::as_fd));
        message::send_broker(socket, hello, &files).map_err(text)?;
        drop(theirs);
        self.serve_until(socket, &connections, PATIENCE)?;
        match message::receive(socket, RecvFlags::empty()).map_err(text)? {
            Some((Reply::Ready, _)) => Ok((connections, lines)),
            Some((Reply::Failed(reason), _)) => Err(message::printable(&reason)),
            Some(_) => Err("the process answers something else".into()),
            None => Err(String::new()),
        }
    }

    /// Gives a process what it asks for until a descriptor is readable: until it answers, or has ended.
    fn serve_until(&self, done: &OwnedFd, connections: &OwnedFd, patience: Duration) -> Result<(), String> {
        let until = Instant::now() + patience;
        let mut is_served = true;
        loop {
            let rest = until.saturating_duration_since(Instant::now());
            let mut ready = [PollFd::new(done, PollFlags::IN), PollFd::new(connections, PollFlags::IN)];
            let watched = if is_served { &mut ready[..] } else { &mut ready[..1] };
            // An interrupted wait is a short one.
            let _ = poll(watched, Timespec::try_from(rest).ok().as_ref());
            if !ready[0].revents().is_empty() {
                return Ok(());
            }
            if rest.is_zero() {
                return Err("the process does not answer".into());
            }
            // A process that ends closes this socket first, and may say why by the other one.
            is_served &= ready[1].revents().is_empty() || self.connections().serve(connections).is_ok();
        }
    }

    /// Tells the functions that the process has copies of them.
    fn register(&self) {
        self.wanted.functions.iter().filter_map(|function| function.copies()).for_each(|copies| {
            copies.add(&self.copy);
        });
    }

    /// Looks after processes, one after the other, until the broker ends.
    pub fn keep(&mut self, first: Running) {
        let (mut next, mut pace) = (Some(first), RestartPace::default());
        loop {
            let mut running = match next.take() {
                Some(running) => running,
                None => match self.start_until_it_runs(&mut pace) {
                    Some(running) => running,
                    None => return,
                },
            };
            let end = self.watch(&mut running);
            // Words may still be on their way when the sockets are closed.
            self.receive_replies(&mut running);
            let Running { number, socket, connections, lines, end: ended, since, last_words, .. } = running;
            drop(socket);
            if matches!(end, End::Stop) {
                let _ = self.serve_until(&ended, &connections, ENDING);
            }
            let _ = self.lines.receive(&lines);
            // What is under way ends in good order, if it can.
            let is_dead = matches!(end, End::Gone | End::Stop) && has_ended(&ended);
            let how = (!is_dead).then(|| self.supervisor.kill(number));
            // A process that has ended in good order may have asked for resets before.
            while message::is_readable(connections.as_fd()) && self.connections().serve(&connections).is_ok()
            {
            }
            drop(connections);
            self.shared.set_down();
            if matches!(end, End::Stop) || self.is_draining {
                let _ = how.unwrap_or_else(|| self.supervisor.kill(number));
                return;
            }
            pace.note_life(since.elapsed());
            // Clients wait: how the process has ended is asked later.
            sandbox::raise_priority(self.supervisor.priority);
            next = if pace.pause().is_zero() { self.start().ok() } else { None };
            sandbox::restore_priority(self.supervisor.priority);
            let how = how.unwrap_or_else(|| self.supervisor.kill(number));
            self.report_end(&end, how, last_words);
            self.shared.restarts.fetch_add(1, Relaxed);
        }
    }

    /// Notes and logs why a process has ended.
    fn report_end(&self, end: &End, how: String, words: Option<String>) {
        let how = match (end, words) {
            (End::Hangs, _) => "hangs, and was killed".to_owned(),
            (End::Broken, _) => "has broken the rules, and was killed".to_owned(),
            (_, Some(words)) => format!("{how}: {words}"),
            (_, None) => how,
        };
        log::error(format!("broker {}: its process {how}\n", self.name));
        self.shared.set_failure(&how);
    }

    /// Starts a process, after a pause if the last ones have lived shortly. None: the broker ends.
    fn start_until_it_runs(&mut self, pace: &mut RestartPace) -> Option<Running> {
        loop {
            if !self.serve_without_process(pace.pause()) {
                return None;
            }
            match self.start() {
                Ok(running) => return Some(running),
                Err(reason) => {
                    self.shared.set_failure(&format!("does not start: {reason}"));
                    log::error(format!("broker {}: its process does not start: {reason}\n", self.name));
                    pace.note_failure();
                }
            }
        }
    }

    /// Waits until a process has to end. Jobs and requests are done meanwhile.
    fn watch(&mut self, running: &mut Running) -> End {
        let sleeper = self.shared.page.sleeper();
        loop {
            let is_quiet = running.pending.is_empty() && !running.has_lines;
            let is_idle = self.shared.page.turn() & 1 == 0 && is_quiet;
            if is_idle {
                let bell = KeeperBell { shared: &self.shared, running, limit: None };
                sleeper.sleep(&bell, || self.shared.page.turn() & 1 == 1);
                (running.progress.without, running.progress.at) = (Duration::ZERO, Instant::now());
            } else {
                KeeperBell { shared: &self.shared, running, limit: Some(LOOK) }.wait();
            }
            let end = self.receive_replies(running).or_else(|| self.do_jobs(running));
            let end = end.or_else(|| self.make_connections(running));
            let end = end.or_else(|| self.receive_lines(running));
            if let Some(end) = end.or_else(|| self.hangs(running)) {
                return end;
            }
        }
    }

    fn make_connections(&self, running: &Running) -> Option<End> {
        self.connections().serve(&running.connections).map_err(|_| broken(running)).err()
    }

    fn connections(&self) -> Connections<'_> {
        let Wanted { is_transparent, settings, functions, .. } = &self.wanted;
        let functions = [functions.as_slice(), &self.prepared];
        let (is_transparent, keeps_source) = (*is_transparent, settings.keeps_source);
        Connections { servers: &self.servers, is_transparent, keeps_source, functions }
    }

    fn receive_lines(&mut self, running: &mut Running) -> Option<End> {
        match self.lines.receive(&running.lines) {
            Ok(has_more) => running.has_lines = has_more,
            Err(_) => return Some(broken(running)),
        }
        None
    }

    /// Returns why the process has to end if it makes no progress.
    fn hangs(&self, running: &mut Running) -> Option<End> {
        if running.pending.is_overdue() {
            return Some(End::Hangs);
        }
        let Running { progress, number, .. } = running;
        let (now, turn) = (Instant::now(), self.shared.page.turn());
        // While this thread has no processor, others may have none either: that time does not count.
        let step = now.saturating_duration_since(progress.at).min(2 * LOOK);
        let seen = (turn, self.shared.counters.progress());
        let number = number.unsigned_abs();
        progress.at = now;
        if turn & 1 == 0 || seen != progress.seen {
            (progress.seen, progress.without) = (seen, Duration::ZERO);
            return None;
        }
        if progress.without.is_zero() {
            progress.cpu = cpu_time(number).unwrap_or_default();
        }
        progress.without += step;
        // A process that waits for a processor does not hang.
        let used = || cpu_time(number).unwrap_or_default().saturating_sub(progress.cpu);
        let is_long = progress.without >= HANG;
        (is_long && (used() >= HANG / 2 || !is_runnable(number))).then_some(End::Hangs)
    }
}

/// Returns why a process ends whose sockets cannot be used. Those of one that has ended are closed, too.
fn broken(running: &Running) -> End {
    if has_ended(&running.end) { End::Gone } else { End::Broken }
}

/// What the thread waits for.
struct KeeperBell<'a> {
    shared: &'a Shared,
    running: &'a Running,
    /// The longest wait. None: the process rings when it works.
    limit: Option<Duration>,
}

impl Bell for KeeperBell<'_> {
    fn ring(&self) {
        self.shared.attention.ring();
    }

    fn wait(&self) {
        let Shared { attention, bell, .. } = self.shared;
        let Running { socket, connections, lines, end, .. } = self.running;
        let mut files = vec![
            PollFd::new(attention, PollFlags::IN),
            PollFd::new(socket, PollFlags::IN | PollFlags::HUP),
            PollFd::new(connections, PollFlags::IN | PollFlags::HUP),
            PollFd::new(end, PollFlags::IN),
        ];
        // A process that rings or logs all the time wakes the thread at each look only.
        if self.limit.is_none() {
            files.push(PollFd::new(bell, PollFlags::IN));
            files.push(PollFd::new(lines, PollFlags::IN));
        }
        let limit = self.limit.and_then(|limit| Timespec::try_from(limit).ok());
        // An interrupted wait is a short one.
        let _ = poll(&mut files, limit.as_ref());
        attention.clear();
        bell.clear();
    }
}

/// Returns the number of a function among its copies.
fn id_of(function: &Arc<Instance>) -> Option<u64> {
    Some(function.copies()?.id())
}

/// Returns what a process needs to know of functions.
fn messages(functions: &[Arc<Instance>]) -> Vec<Function> {
    let message = |instance: &Arc<Instance>| Some(Function::of(instance, instance.copies()?));
    functions.iter().filter_map(message).collect()
}
