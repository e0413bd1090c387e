//! The supervisor: a process that starts the processes of functions.
//!
//! # Theory of operation
//! The engine starts it before it limits its own system calls, which forbid to execute programs. Both are
//! the same program, executed again from `/proc/self/exe`, and so are the processes of functions: nothing
//! is found by name. The supervisor moves to name spaces without a network, has no capabilities, serves one
//! order after the other, and ends with its socket. The kernel then kills its processes.
//!
//! The engine keeps *spare* processes: they have given up their rights and know of no function and no memory
//! yet. When a process ends, a spare one takes its place at once, and a thread of the engine starts another
//! spare one. The engine learns of the end by itself, through a descriptor of the process (pidfd_open(2)), so
//! nothing waits for the supervisor then.
//!
//! The kernel tells the supervisor, their parent, of processes that a signal has stopped. It kills them.

mod restarts;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::RecvFlags;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};

use crate::message::{self, Answer, Order};
use crate::sandbox::{self, Processors};

pub use restarts::RestartPace;

/// The first argument of the supervisor.
pub const SUPERVISOR: &str = "function-supervisor";
/// The first argument of the process of a function.
pub const FUNCTION: &str = "function-process";

/// Set in the environment of the supervisor. A program whose `main` does not know [`SUPERVISOR`] would start
/// another engine in its place, with another supervisor, and so on without end.
const MARK: &str = "MMB_FUNCTION_SUPERVISOR";

/// Spare processes: as many as functions, so that all of them can end together, or one of them again and
/// again; at least and at most so many.
const FEWEST_SPARES: usize = 2;
const MOST_SPARES: usize = 8;
/// How long the engine waits for an answer. The kernel may need seconds for the supervisor's name spaces.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a process may take to end once its socket is closed.
const ENDING: Duration = Duration::from_millis(5);

/// A process without a function.
pub struct NewProcess {
    /// Its number.
    pub number: i32,
    /// The engine's end of its socket.
    pub socket: OwnedFd,
    /// Readable once the process has ended.
    pub end: OwnedFd,
}

/// Whether a process has ended, or does so now. It uses no memory any more then. `end`: of [`NewProcess`].
pub fn has_ended(end: &OwnedFd) -> bool {
    let mut files = [PollFd::new(end, PollFlags::IN)];
    poll(&mut files, Timespec::try_from(ENDING).ok().as_ref()).is_ok_and(|ready| ready > 0)
}

/// The engine's end of the supervisor. The supervisor and all its processes end with it.
pub struct Supervisor {
    socket: Mutex<OwnedFd>,
    spares: Mutex<Spares>,
    /// Wakes the thread that starts spare processes.
    refill: OnceLock<Sender<()>>,
    child: Mutex<Child>,
    /// The priority of the engine.
    pub priority: i32,
    /// The processors that the engine and its processes may use.
    pub processors: Processors,
}

#[derive(Default)]
struct Spares {
    all: VecDeque<NewProcess>,
    /// Functions in processes.
    functions: usize,
}

impl Supervisor {
    /// Starts the supervisor. To be called before the process has other threads, so that it ends with this
    /// one.
    ///
    /// # Errors
    /// The program cannot be executed, or this process was started as a supervisor itself.
    pub fn start() -> io::Result<Supervisor> {
        if std::env::var_os(MARK).is_some() {
            return Err(io::Error::other(format!(
                "{MARK} is set, so this process is a supervisor itself: `main` must call `mmb::run` first"
            )));
        }
        let (here, there) = message::pair()?;
        let priority = sandbox::priority();
        sandbox::allow_raised_priority(priority);
        let mut command = Command::new("/proc/self/exe");
        // Signals of a terminal are for the engine alone.
        command.arg(SUPERVISOR).env(MARK, "1").process_group(0);
        let child = command.stdin(Stdio::from(there)).stdout(Stdio::null()).spawn()?;
        set_socket_timeout(&here, Timeout::Recv, Some(PATIENCE))?;
        Ok(Supervisor {
            socket: Mutex::new(here),
            spares: Mutex::default(),
            refill: OnceLock::new(),
            child: Mutex::new(child),
            priority,
            processors: Processors::allowed(),
        })
    }

    fn ask(&self, order: &Order, file: Option<OwnedFd>) -> io::Result<(Answer, Vec<OwnedFd>)> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let files: Vec<_> = file.iter().map(AsFd::as_fd).collect();
        message::send(&*socket, order, &files)?;
        let answer = message::receive(&*socket, RecvFlags::empty())?;
        answer.ok_or_else(|| io::Error::other("the supervisor has ended"))
    }

    /// Counts a function until the result is dropped, for the number of spare processes.
    pub fn count_function(self: &Arc<Self>) -> FunctionCount {
        self.spares.lock().unwrap_or_else(PoisonError::into_inner).functions += 1;
        FunctionCount(self.clone())
    }

    /// Runs something in the spare process that was started first, and has another one started. None: there
    /// is no spare process, or it does not run.
    pub fn run_in_spare<T>(self: &Arc<Self>, run: impl FnOnce(NewProcess) -> Result<T, String>) -> Option<T> {
        let spare = self.spares.lock().unwrap_or_else(PoisonError::into_inner).all.pop_front();
        let running = spare.and_then(|spare| run(spare).ok());
        self.prepare_spares();
        running
    }

    /// Has another thread start spare processes that are missing.
    fn prepare_spares(self: &Arc<Self>) {
        let refill = self.refill.get_or_init(|| {
            let (sender, receiver) = channel();
            let supervisor = Arc::downgrade(self);
            // Without the thread, functions start in new processes.
            let builder = std::thread::Builder::new().name("nf-spares".into());
            let _ = builder.spawn(move || start_spares(&supervisor, &receiver));
            sender
        });
        let _ = refill.send(());
    }

    /// Starts a spare process, if one is missing. Returns whether it has.
    fn add_spare(&self) -> bool {
        let is_missing = {
            let spares = self.spares.lock().unwrap_or_else(PoisonError::into_inner);
            spares.all.len() < spares.functions.clamp(FEWEST_SPARES, MOST_SPARES)
        };
        // Nobody else adds any, and others can take one meanwhile.
        let spare = is_missing.then(|| self.start_process().ok()).flatten();
        let is_added = spare.is_some();
        self.spares.lock().unwrap_or_else(PoisonError::into_inner).all.extend(spare);
        is_added
    }

    /// Starts a process, which waits for its function.
    ///
    /// # Errors
    /// There is no process, in one sentence.
    pub fn start_process(&self) -> Result<NewProcess, String> {
        let (socket, theirs) = message::pair().map_err(|error| error.to_string())?;
        match self.ask(&Order::Start, Some(theirs)) {
            Ok((Answer::Started(number), files)) => {
                let end = files.into_iter().next().ok_or("the supervisor has sent no descriptor")?;
                Ok(NewProcess { number, socket, end })
            }
            Ok((Answer::Failed(reason), _)) => Err(reason),
            Ok((Answer::Ended(_), _)) => Err("the supervisor does not answer".into()),
            Err(error) => Err(format!("no answer from the supervisor: {error}")),
        }
    }

    /// Kills a process, if it runs, and waits for its end. Returns how it ended: words behind "the process".
    pub fn kill(&self, process: i32) -> String {
        match self.ask(&Order::Kill(process), None) {
            Ok((Answer::Ended(how), _)) => how,
            Ok(_) => "has ended (the supervisor does not answer)".into(),
            Err(error) => format!("has ended ({error})"),
        }
    }
}

/// A function that runs in processes, as long as this value lives.
pub struct FunctionCount(Arc<Supervisor>);

impl Drop for FunctionCount {
    fn drop(&mut self) {
        self.0.spares.lock().unwrap_or_else(PoisonError::into_inner).functions -= 1;
    }
}

/// Starts spare processes whenever one was taken, until the supervisor has ended.
fn start_spares(supervisor: &Weak<Supervisor>, requests: &Receiver<()>) {
    while requests.recv().is_ok() {
        // Without a spare one, the next process starts later.
        while supervisor.upgrade().is_some_and(|supervisor| supervisor.add_spare()) {}
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let socket = self.socket.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = rustix::net::shutdown(&*socket, rustix::net::Shutdown::Both);
        // Fails where the engine may make no such call. It ends then, and the system waits.
        let _ = self.child.get_mut().unwrap_or_else(PoisonError::into_inner).wait();
    }
}

/// A process of a function, and whether it was killed since a signal had stopped it.
struct Process {
    child: Child,
    was_stopped: bool,
}

/// Runs the supervisor, whose socket is the standard input, until the engine is gone.
///
/// # Errors
/// The socket does not work.
pub fn run_supervisor() -> Result<(), String> {
    sandbox::end_with_parent();
    // The processes that it starts inherit this, until they make their function.
    sandbox::raise_priority(sandbox::priority());
    sandbox::leave_name_spaces();
    sandbox::give_up_capabilities();
    sandbox::keep_descriptors();
    let socket = io::stdin().as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
    let changes = child_changes().map_err(|error| error.to_string())?;
    let mut processes: Vec<Process> = Vec::new();
    loop {
        let mut files = [PollFd::new(&socket, PollFlags::IN), PollFd::new(&changes, PollFlags::IN)];
        // An interrupted wait is a short one.
        let _ = poll(&mut files, None);
        let (is_ordered, is_changed) = (!files[0].revents().is_empty(), !files[1].revents().is_empty());
        if is_changed {
            while let Ok(Some(_)) = changes.read_signal() {}
            processes.iter_mut().for_each(kill_stopped);
        }
        if !is_ordered {
            continue;
        }
        let order =
            message::receive::<Order>(&socket, RecvFlags::empty()).map_err(|error| error.to_string())?;
        let Some((order, files)) = order else { return Ok(()) };
        let (answer, end) = serve(order, files, &mut processes);
        let files: Vec<_> = end.iter().map(AsFd::as_fd).collect();
        message::send(&socket, &answer, &files).map_err(|error| error.to_string())?;
    }
}

/// Returns what is readable once a process of this one was stopped or has ended. Programs that are started do
/// not inherit that the signal is blocked.
fn child_changes() -> nix::Result<SignalFd> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGCHLD);
    signals.thread_block()?;
    SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
}

fn kill_stopped(process: &mut Process) {
    let number = Pid::from_raw(process.child.id() as i32);
    let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
    let change = number.and_then(|number| waitid(WaitId::Pid(number), options).ok().flatten());
    if change.is_some_and(|change| change.stopped()) {
        process.was_stopped = process.child.kill().is_ok();
    }
}

/// Returns the answer to an order. For a new process, with the descriptor that shows its end.
fn serve(order: Order, files: Vec<OwnedFd>, processes: &mut Vec<Process>) -> (Answer, Option<OwnedFd>) {
    match order {
        Order::Start => match start(files) {
            Ok((child, end)) => {
                let number = child.id() as i32;
                processes.push(Process { child, was_stopped: false });
                (Answer::Started(number), Some(end))
            }
            Err(error) => (Answer::Failed(error.to_string()), None),
        },
        Order::Kill(number) => {
            let at = processes.iter().position(|process| process.child.id() as i32 == number);
            let how = at.map_or_else(|| "is not there".into(), |at| end(processes.swap_remove(at)));
            (Answer::Ended(how), None)
        }
    }
}

fn start(files: Vec<OwnedFd>) -> io::Result<(Child, OwnedFd)> {
    let socket = files.into_iter().next().ok_or_else(|| io::Error::other("the order has no socket"))?;
    let mut command = Command::new("/proc/self/exe");
    command.arg(FUNCTION).env_clear().stdin(Stdio::from(socket)).stdout(Stdio::null());
    let mut child = command.spawn()?;
    let number = Pid::from_raw(child.id() as i32).ok_or(rustix::io::Errno::SRCH);
    // The child was not waited for, so its number is its own.
    match number.and_then(|number| pidfd_open(number, PidfdFlags::empty())) {
        Ok(end) => Ok((child, end)),
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(error.into())
        }
    }
}

/// Ends a process. Returns how it ended.
fn end(Process { mut child, was_stopped }: Process) -> String {
    // A process that has ended already keeps its status.
    let status = child.try_wait().ok().flatten();
    let _ = child.kill();
    match status.map_or_else(|| child.wait(), Ok) {
        Ok(_) if was_stopped => "was stopped, and was killed".into(),
        Ok(status) => format!("has ended ({})", describe(status)),
        Err(error) => format!("has ended ({error})"),
    }
}

fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, signal) => format!("signal {}", signal.unwrap_or_default()),
    }
}
