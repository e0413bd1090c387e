//! The thread that looks after a process.
//!
//! # Theory of operation
//! The thread of a process waits for requests, for the end of the process, and for the time of the next look
//! at the rings. A process that has returned nothing of what it has for [`HANG`], or that has broken a ring,
//! is killed, and its end is waited for. (One that a signal has stopped is killed by the supervisor.) Only
//! then the workers take their buffers back and another process takes its place, with the same scratchpads
//! and new rings. A process that ends again and again is started after a pause that doubles.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use mmb_system::{FileAccess, log};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use super::lines::LineReceiver;
use super::{Job, NO_PACKETS, PATIENCE};
use crate::doorbell::{Bell, Sleeper};
use crate::memory::SharedMemory;
use crate::message::{self, First, Hello, Reply, Request};
use crate::sandbox;
use crate::shared::{LinkCounters, Shared};
use crate::supervisor::{self, NewProcess, RestartPace, Supervisor};

/// How long a process may return nothing of what it has.
pub const HANG: Duration = Duration::from_millis(500);
/// Time between two looks at the rings.
const LOOK: Duration = Duration::from_millis(50);
/// A process that runs.
pub(super) struct Running {
    number: i32,
    socket: OwnedFd,
    /// Readable once the process has ended.
    end: OwnedFd,
    since: Instant,
    /// The last look at the rings.
    looked: Instant,
    /// For each worker.
    seen: Vec<Seen>,
    lines: LineReceiver,
    /// Why it says that it ends.
    last_words: Option<String>,
}

/// What a process has done for a worker, and the time in which it has done no more.
#[derive(Clone, Copy)]
struct Seen {
    progress: Progress,
    without: Duration,
}

/// What a process has done for a worker, by counters that it cannot change.
#[derive(Clone, Copy)]
struct Progress {
    in_flight: u64,
    accepted: u64,
    /// How often the worker has looked for descriptors.
    polls: u64,
}

impl Progress {
    /// `state`: that of the process. A worker that has not seen it yet has sent it nothing.
    fn of(counters: &LinkCounters, state: u64) -> Progress {
        let is_attached = counters.attached.load(Acquire) == state;
        Progress {
            in_flight: if is_attached { counters.in_flight.load(Relaxed) } else { 0 },
            accepted: counters.accepted.load(Relaxed),
            polls: counters.polls.load(Relaxed),
        }
    }
}

/// Why a process does not run any longer.
enum End {
    /// It has ended, or its socket has.
    Gone,
    Hangs,
    /// It has broken a ring.
    Broken,
    /// It has sent too many lines, or has no log.
    Floods,
    /// Nobody needs it.
    Stop,
}

/// The thread of a process.
pub(super) struct Keeper {
    pub supervisor: Arc<Supervisor>,
    pub shared: Arc<Shared>,
    pub hello: Hello,
    /// Keeps the files that the function reads.
    pub files: Arc<FileAccess>,
    pub requests: Receiver<Job>,
    pub number: Arc<AtomicU32>,
    pub restarts: Arc<AtomicU32>,
}

impl Keeper {
    /// Starts the function in a process with new rings, and waits until it runs.
    pub fn start(&mut self) -> Result<Running, String> {
        if self.shared.domain.packets.as_ref().is_some_and(|packets| packets.get().is_none()) {
            return Err(NO_PACKETS.into());
        }
        match self.start_in_spare() {
            Some(running) => Ok(running),
            None => self.supervisor.start_process().and_then(|process| self.run_in(process)),
        }
    }

    /// Starts the function in a spare process. None: there is none, or it has ended since it was started.
    fn start_in_spare(&mut self) -> Option<Running> {
        self.supervisor.clone().run_in_spare(|spare| self.run_in(spare))
    }

    /// Gives the function to a process that waits for one.
    fn run_in(&mut self, NewProcess { number, socket, end }: NewProcess) -> Result<Running, String> {
        let text = |error: io::Error| error.to_string();
        let Shared { geometry, domain, pads, bell, .. } = &*self.shared;
        let rings = Arc::new(SharedMemory::create("mmb-rings", geometry.ring_words()).map_err(text)?);
        let mut files = vec![domain.memory.as_fd(), pads.as_fd(), rings.as_fd(), bell.as_fd()];
        if let Some(packets) = self.shared.packets() {
            let (file, offset) = packets.file();
            files.push(file);
            self.hello.packets = Some((offset, packets.bytes()));
        }
        // A process that reads nothing must not hold up the thread.
        set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE)).map_err(|error| error.to_string())?;
        let (paths, inputs) = self.inputs();
        self.hello.files = paths;
        files.extend(inputs.iter().map(AsFd::as_fd));
        let sent =
            message::send(&socket, &First::Function(Box::new(self.hello.clone())), &files).map_err(text);
        let ready = sent.and_then(|()| match wait_for(&socket, Instant::now() + PATIENCE) {
            Ok(Some(Reply::Ready)) => Ok(()),
            Ok(Some(Reply::Failed(reason))) => Err(message::printable(&reason)),
            Ok(Some(_)) => Err("the process answers something else".into()),
            Ok(None) => Err(String::new()),
            Err(error) => Err(format!("the process does not answer: {error}")),
        });
        if let Err(reason) = ready {
            let how = self.supervisor.kill(number);
            return Err(if reason.is_empty() { format!("the process {how}") } else { reason });
        }
        let now = Instant::now();
        self.number.store(number.unsigned_abs(), Relaxed);
        self.shared.set_up(&rings);
        let state = self.shared.state.load(Acquire);
        let begin = |counters| Seen { progress: Progress::of(counters, state), without: Duration::ZERO };
        let seen = self.shared.counters.iter().map(begin).collect();
        Ok(Running {
            number,
            socket,
            end,
            since: now,
            looked: now,
            seen,
            lines: LineReceiver::default(),
            last_words: None,
        })
    }

    /// Looks after processes, one after the other, until the function is deleted.
    pub fn keep(&mut self, first: Option<Running>) {
        sandbox::raise_priority(self.supervisor.priority);
        let (mut next, mut pace) = (first, RestartPace::default());
        loop {
            let mut running = match next.take() {
                Some(running) => running,
                None => match self.start_until_it_runs(&mut pace) {
                    Some(running) => running,
                    None => return,
                },
            };
            let end = self.watch(&mut running);
            // Its number stays its own until the supervisor is asked.
            let is_dead = matches!(end, End::Gone) && supervisor::has_ended(&running.end);
            let how = (!is_dead).then(|| self.supervisor.kill(running.number));
            self.number.store(0, Relaxed);
            self.shared.set_down();
            if matches!(end, End::Stop) {
                return;
            }
            pace.note_life(running.since.elapsed());
            // Packets wait: how the process has ended is asked later.
            next = if pace.pause().is_zero() { self.start_in_spare() } else { None };
            self.report_end(&running, &end, how);
            self.restarts.fetch_add(1, Relaxed);
        }
    }

    /// Notes and logs why a process has ended. `how`: if the supervisor was asked already.
    fn report_end(&self, ended: &Running, end: &End, how: Option<String>) {
        let how = how.unwrap_or_else(|| self.supervisor.kill(ended.number));
        let how = match end {
            End::Gone | End::Stop => match ended.last_words.clone().or_else(|| last_words(&ended.socket)) {
                Some(words) => format!("{how}: {words}"),
                None => how,
            },
            End::Hangs => "hangs, and was killed".to_owned(),
            End::Broken => "has broken a ring, and was killed".to_owned(),
            End::Floods => "has sent more lines than a log takes, and was killed".to_owned(),
        };
        log::error(format!("function {}: its process {how}\n", self.hello.name));
        self.shared.set_failure(&how);
    }

    /// Starts a process, after a pause if the last ones have lived shortly. None: the function is deleted.
    fn start_until_it_runs(&mut self, pace: &mut RestartPace) -> Option<Running> {
        loop {
            if self.is_stopped_within(pace.pause()) {
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
                    pace.note_failure();
                }
            }
        }
    }

    /// Waits until a process has to end. Requests are answered.
    fn watch(&self, running: &mut Running) -> End {
        let sleeper = Sleeper::new(self.shared.keeper.clone());
        loop {
            if self.is_idle() {
                // Nothing happens: the next packet, or a request, ends the sleep.
                let bell = KeeperBell { shared: &self.shared, running, limit: None };
                sleeper.sleep(&bell, || !self.is_idle());
                running.seen.iter_mut().for_each(|seen| seen.without = Duration::ZERO);
                running.looked = Instant::now();
            } else {
                KeeperBell { shared: &self.shared, running, limit: Some(LOOK) }.wait();
            }
            while message::is_readable(running.socket.as_fd()) {
                match message::receive(&running.socket, RecvFlags::DONTWAIT) {
                    Ok(Some((Reply::Lines { text, lost }, _))) => {
                        if !running.lines.take(&self.shared, &text, lost) {
                            return End::Floods;
                        }
                    }
                    // Nobody has asked: the process is gone, or breaks the rules.
                    Ok(Some((Reply::Failed(reason), _))) => {
                        running.last_words = Some(message::printable(&reason));
                        return End::Gone;
                    }
                    _ => return End::Gone,
                }
            }
            if let Some(end) = self.answer(running) {
                return end;
            }
            if self.shared.is_kill_requested() {
                return End::Broken;
            }
            if let Some(end) = self.hangs(running) {
                return end;
            }
        }
    }

    /// Answers requests. Returns why the process has to end.
    fn answer(&self, running: &mut Running) -> Option<End> {
        while let Ok(job) = self.requests.try_recv() {
            match job {
                Job::Stop => return Some(End::Stop),
                Job::Ask(request, reply) => {
                    let sent = self.send(running, request).map_err(|_| End::Hangs);
                    match sent.and_then(|()| self.wait_for_answer(running)) {
                        // The one who has asked may wait no longer.
                        Ok(answer) => drop(reply.send(answer)),
                        Err(end) => return Some(end),
                    }
                }
            }
        }
        None
    }

    /// Sends a request, with the files that the function reads if they may be others now.
    fn send(&self, running: &Running, request: Request) -> io::Result<()> {
        let Request::Set(words, _) = request else { return message::send(&running.socket, &request, &[]) };
        let (paths, inputs) = self.inputs();
        let files: Vec<_> = inputs.iter().map(AsFd::as_fd).collect();
        message::send(&running.socket, &Request::Set(words, paths), &files)
    }

    /// The files that the function reads, and their paths.
    fn inputs(&self) -> (Vec<PathBuf>, Vec<File>) {
        self.files.kept_inputs().into_iter().unzip()
    }

    /// Waits for the answer to a request, for [`PATIENCE`] in all: lines may come before it. The error is why
    /// the process has to end.
    fn wait_for_answer(&self, running: &mut Running) -> Result<Reply, End> {
        let until = Instant::now() + PATIENCE;
        loop {
            match wait_for(&running.socket, until.min(Instant::now() + LOOK)) {
                Ok(Some(Reply::Lines { text, lost })) => {
                    if !running.lines.take(&self.shared, &text, lost) {
                        return Err(End::Floods);
                    }
                }
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => return Err(End::Gone),
                Err(error) if error.kind() == io::ErrorKind::TimedOut && Instant::now() < until => {}
                Err(_) => return Err(End::Hangs),
            }
            if self.shared.is_kill_requested() {
                return Err(End::Broken);
            }
        }
    }

    /// Whether the process has nothing of any worker, as far as the workers know.
    fn is_idle(&self) -> bool {
        let state = self.shared.state.load(Acquire);
        self.shared.counters.iter().all(|counters| Progress::of(counters, state).in_flight == 0)
    }

    /// Returns why the process has to end if it has returned nothing for too long. What is private counts: a
    /// process could say that it has read all, or that the worker takes nothing.
    fn hangs(&self, running: &mut Running) -> Option<End> {
        let (mut longest, now, state) = (Duration::ZERO, Instant::now(), self.shared.state.load(Acquire));
        // While this thread has no processor, others may have none either: that time does not count.
        let step = now.saturating_duration_since(running.looked).min(2 * LOOK);
        running.looked = now;
        for (counters, seen) in self.shared.counters.iter().zip(&mut running.seen) {
            let (before, progress) = (seen.progress, Progress::of(counters, state));
            seen.progress = progress;
            if progress.accepted != before.accepted || progress.in_flight == 0 {
                seen.without = Duration::ZERO;
            } else if progress.polls != before.polls {
                // The worker has looked for what came back.
                seen.without += step;
            }
            longest = longest.max(seen.without);
        }
        (longest >= HANG).then_some(End::Hangs)
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
    running: &'a Running,
    /// The longest wait.
    limit: Option<Duration>,
}

impl Bell for KeeperBell<'_> {
    fn ring(&self) {
        self.shared.attention.ring();
    }

    fn wait(&self) {
        let attention = &self.shared.attention;
        let mut files = [
            PollFd::new(attention, PollFlags::IN),
            PollFd::new(&self.running.socket, PollFlags::IN | PollFlags::HUP),
            PollFd::new(&self.running.end, PollFlags::IN),
        ];
        let limit = self.limit.and_then(|limit| Timespec::try_from(limit).ok());
        // An interrupted wait is a short one.
        let _ = poll(&mut files, limit.as_ref());
        attention.clear();
    }
}

/// Returns why a process that has ended says that it has ended.
fn last_words(socket: &OwnedFd) -> Option<String> {
    match message::receive(socket, RecvFlags::DONTWAIT) {
        Ok(Some((Reply::Failed(reason), _))) => Some(message::printable(&reason)),
        _ => None,
    }
}

/// Waits for a message of a process. None: it has ended.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] from the time on, whether there are messages or not, and those of the socket.
fn wait_for(socket: &OwnedFd, until: Instant) -> io::Result<Option<Reply>> {
    let mut files = [PollFd::new(socket, PollFlags::IN)];
    loop {
        let rest = until.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match poll(&mut files, Timespec::try_from(rest).ok().as_ref()) {
            // The time is over, or a signal has interrupted the wait.
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(message::receive(socket, RecvFlags::empty())?.map(|(reply, _)| reply)),
            Err(error) => return Err(error.into()),
        }
    }
}
