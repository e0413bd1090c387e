//! The supervisor: a process that starts the processes of functions.
//!
//! # Theory of operation
//! The engine starts it before it limits its own system calls, which forbid to execute programs. Both are
//! the same program, executed again from `/proc/self/exe`, and so are the processes of functions: nothing
//! is found by name. The supervisor has no capabilities, serves one order after the other, and ends with
//! its socket. The kernel then kills its processes.
//!
//! The engine keeps *spare* processes: they have given up their rights and know of no function and no memory
//! yet. When a process ends, a spare one takes its place at once, and another spare one is started behind it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::net::RecvFlags;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::message::{self, Answer, Order};
use crate::sandbox;

/// The first argument of the supervisor.
pub const SUPERVISOR: &str = "function-supervisor";
/// The first argument of the process of a function.
pub const FUNCTION: &str = "function-process";

/// Set in the environment of the supervisor. A program whose `main` does not know [`SUPERVISOR`] would start
/// another engine in its place, with another supervisor, and so on without end.
const MARK: &str = "MMB_FUNCTION_SUPERVISOR";

/// Spare processes: two functions that end together, or one that ends twice, are back at once.
const SPARES: usize = 2;
/// How long the engine waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A process without a function, and the engine's end of its socket.
pub struct NewProcess {
    pub number: i32,
    pub socket: OwnedFd,
}

/// The engine's end of the supervisor. The supervisor and all its processes end with it.
pub struct Supervisor {
    socket: Mutex<OwnedFd>,
    spares: Mutex<VecDeque<NewProcess>>,
    child: Mutex<Child>,
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
        let mut command = Command::new("/proc/self/exe");
        // Signals of a terminal are for the engine alone.
        command.arg(SUPERVISOR).env(MARK, "1").process_group(0);
        let child = command.stdin(Stdio::from(there)).stdout(Stdio::null()).spawn()?;
        set_socket_timeout(&here, Timeout::Recv, Some(PATIENCE))?;
        Ok(Supervisor { socket: Mutex::new(here), spares: Mutex::default(), child: Mutex::new(child) })
    }

    fn ask(&self, order: &Order, file: Option<OwnedFd>) -> io::Result<Answer> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let files: Vec<_> = file.iter().map(AsFd::as_fd).collect();
        message::send(&*socket, order, &files)?;
        let answer = message::receive(&*socket, RecvFlags::empty())?;
        answer.map(|(answer, _)| answer).ok_or_else(|| io::Error::other("the supervisor has ended"))
    }

    /// Takes the spare process that was started first, if there is one.
    pub fn take_spare(&self) -> Option<NewProcess> {
        self.spares.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    /// Starts spare processes that are missing.
    pub fn prepare_spares(&self) {
        let mut spares = self.spares.lock().unwrap_or_else(PoisonError::into_inner);
        while spares.len() < SPARES {
            // Without a spare one, the next process starts later.
            let Ok(spare) = self.start_process() else { break };
            spares.push_back(spare);
        }
    }

    /// Starts a process, which waits for its function.
    ///
    /// # Errors
    /// There is no process, in one sentence.
    pub fn start_process(&self) -> Result<NewProcess, String> {
        let (socket, theirs) = message::pair().map_err(|error| error.to_string())?;
        match self.ask(&Order::Start, Some(theirs)) {
            Ok(Answer::Started(number)) => Ok(NewProcess { number, socket }),
            Ok(Answer::Failed(reason)) => Err(reason),
            Ok(Answer::Ended(_)) => Err("the supervisor does not answer".into()),
            Err(error) => Err(format!("no answer from the supervisor: {error}")),
        }
    }

    /// Kills a process, if it runs, and waits for its end. Returns how it ended.
    pub fn kill(&self, process: i32) -> String {
        match self.ask(&Order::Kill(process), None) {
            Ok(Answer::Ended(how)) => how,
            Ok(_) => "the supervisor does not answer".into(),
            Err(error) => error.to_string(),
        }
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

/// Runs the supervisor, whose socket is the standard input, until the engine is gone.
///
/// # Errors
/// The socket does not work.
pub fn run_supervisor() -> Result<(), String> {
    sandbox::end_with_parent();
    sandbox::give_up_capabilities();
    sandbox::keep_descriptors();
    let socket = io::stdin().as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
    let mut children: Vec<Child> = Vec::new();
    loop {
        let order =
            message::receive::<Order>(&socket, RecvFlags::empty()).map_err(|error| error.to_string())?;
        let answer = match order {
            None => return Ok(()),
            Some((Order::Start, files)) => match start(files) {
                Ok(child) => {
                    let number = child.id() as i32;
                    children.push(child);
                    Answer::Started(number)
                }
                Err(error) => Answer::Failed(error.to_string()),
            },
            Some((Order::Kill(number), _)) => {
                let at = children.iter().position(|child| child.id() as i32 == number);
                Answer::Ended(
                    at.map_or_else(|| "there is no such process".into(), |at| end(children.swap_remove(at))),
                )
            }
        };
        message::send(&socket, &answer, &[]).map_err(|error| error.to_string())?;
    }
}

fn start(files: Vec<OwnedFd>) -> io::Result<Child> {
    let socket = files.into_iter().next().ok_or_else(|| io::Error::other("the order has no socket"))?;
    let mut command = Command::new("/proc/self/exe");
    command.arg(FUNCTION).env_clear().stdin(Stdio::from(socket)).stdout(Stdio::null()).spawn()
}

fn end(mut child: Child) -> String {
    // A process that has ended already keeps its status.
    let status = child.try_wait().ok().flatten();
    let _ = child.kill();
    match status.map_or_else(|| child.wait(), Ok) {
        Ok(status) => describe(status),
        Err(error) => error.to_string(),
    }
}

fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, signal) => format!("signal {}", signal.unwrap_or_default()),
    }
}
