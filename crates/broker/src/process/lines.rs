//! Lines of functions on their way from a process to the logs of the daemon.
//!
//! # Theory of operation
//! Functions queue what they log while they work. Before the event loop sleeps, if [`LinePace`] lets it, it
//! takes their lines and sends them over a socket of their own. It never waits there: lines that do not fit
//! are lost, and counted. The daemon does not trust what comes. It appends lines to the logs of the functions
//! of the chain only, as many in a second as each may log, without control characters, and none that is too
//! long.

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mmb_fabric::message;
use mmb_nf::{Instance, LineGate, LinePace, LineSource};
use rustix::net::RecvFlags;
use serde::{Deserialize, Serialize};

use super::connections::{Broken, FORMER};

/// Most bytes of the lines of a message. JSON may need twice as many.
const MESSAGE: usize = 56 << 10;
/// Messages that are read before the keeper looks at anything else.
const AT_ONCE: usize = 32;

/// Whole lines of a function.
#[derive(Debug, Serialize, Deserialize)]
struct Lines {
    function: u64,
    text: String,
}

/// The side of the process.
pub(super) struct LineSender {
    /// Does not block.
    socket: OwnedFd,
    sources: Vec<(u64, Arc<dyn LineSource>)>,
    pace: LinePace,
}

impl LineSender {
    pub fn new(socket: OwnedFd) -> LineSender {
        LineSender { socket, sources: Vec::new(), pace: LinePace::default() }
    }

    /// Adds a function, if it logs lines. Functions that are gone are forgotten.
    pub fn add(&mut self, id: u64, function: &Instance) {
        self.sources.retain(|(_, source)| Arc::strong_count(source) > 1 || source.is_waiting());
        let Some(source) = function.lines() else { return };
        // The daemon reports what becomes of the lines, and the copy knows it from here on.
        source.take(&mut String::new());
        self.sources.push((id, source));
    }

    /// Sends what waits, unless the last message has just been sent. Returns how long the rest has to wait.
    pub fn send(&mut self) -> Option<Duration> {
        if !self.sources.iter().any(|(_, source)| source.is_waiting()) {
            return None;
        }
        let wait = self.pace.wait(Instant::now());
        if wait.is_none() {
            self.send_all();
        }
        wait
    }

    /// Sends all that waits.
    pub fn send_all(&mut self) {
        for (function, source) in &self.sources {
            let mut text = String::new();
            source.take(&mut text);
            for text in LinePace::messages(&text, MESSAGE) {
                let lines = Lines { function: *function, text: text.to_owned() };
                if message::send(&self.socket, &lines, &[]).is_err() {
                    source.count_lost(text.lines().count() as u64);
                }
            }
        }
    }
}

/// A function of which a process has a copy.
struct Log {
    function: u64,
    source: Arc<dyn LineSource>,
    /// When the chain had it last. None: it has it now.
    former: Option<Instant>,
    gate: LineGate,
}

/// The daemon's side.
#[derive(Default)]
pub(super) struct LineReceiver(Vec<Log>);

impl LineReceiver {
    /// The chain has these functions from here on.
    pub fn set(&mut self, functions: &[Arc<Instance>]) {
        let now = Instant::now();
        for log in &mut self.0 {
            log.former = log.former.or(Some(now));
        }
        for instance in functions {
            let (Some(copies), Some(source)) = (instance.copies(), instance.lines()) else { continue };
            match self.0.iter_mut().find(|log| log.function == copies.id()) {
                Some(log) => log.former = None,
                None => {
                    let (function, gate) = (copies.id(), LineGate::default());
                    self.0.push(Log { function, source, former: None, gate });
                }
            }
        }
        // Exchanges that are under way end with the functions that they began with.
        self.0.retain(|log| log.former.is_none_or(|since| since.elapsed() < FORMER));
    }

    /// Takes lines of a process. Returns whether there are more.
    pub fn receive(&mut self, socket: &OwnedFd) -> Result<bool, Broken> {
        for _ in 0..AT_ONCE {
            match message::receive::<Lines>(socket, RecvFlags::DONTWAIT) {
                Ok(Some((lines, _))) => self.append(&lines),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Ok(None) | Err(_) => return Err(Broken),
            }
        }
        Ok(true)
    }

    fn append(&mut self, Lines { function, text }: &Lines) {
        let Some(log) = self.0.iter_mut().find(|log| log.function == *function) else { return };
        log.gate.append(&*log.source, log.source.limit(), text, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::Relaxed;

    use rustix::io::ioctl_fionbio;

    use super::*;

    /// Both ends of the way: what waits, and what has come.
    #[derive(Default)]
    struct Recorder {
        waiting: Mutex<String>,
        log: Mutex<String>,
        lost: AtomicU64,
    }

    impl LineSource for Recorder {
        fn is_waiting(&self) -> bool {
            !self.waiting.lock().unwrap().is_empty()
        }

        fn take(&self, text: &mut String) {
            text.push_str(&std::mem::take(&mut *self.waiting.lock().unwrap()));
        }

        fn count_lost(&self, lines: u64) {
            self.lost.fetch_add(lines, Relaxed);
        }

        fn limit(&self) -> u32 {
            3
        }

        fn append(&self, lines: usize, text: &str) {
            assert_eq!(text.lines().count(), lines);
            self.log.lock().unwrap().push_str(text);
        }

        fn report(&self) -> Vec<(String, String)> {
            Vec::new()
        }
    }

    struct World {
        sender: LineSender,
        receiver: LineReceiver,
        socket: OwnedFd,
        copy: Arc<Recorder>,
        log: Arc<Recorder>,
    }

    impl World {
        fn new() -> World {
            let (here, there) = message::pair().unwrap();
            ioctl_fionbio(&there, true).unwrap();
            let (copy, log) = (Arc::<Recorder>::default(), Arc::<Recorder>::default());
            let mut sender = LineSender::new(there);
            sender.sources.push((7, copy.clone()));
            let (source, gate) = (log.clone(), LineGate::default());
            let receiver = LineReceiver(vec![Log { function: 7, source, former: None, gate }]);
            World { sender, receiver, socket: here, copy, log }
        }

        fn wait(&self, text: &str) {
            self.copy.waiting.lock().unwrap().push_str(text);
        }

        fn log(&self) -> String {
            self.log.log.lock().unwrap().clone()
        }
    }

    #[test]
    fn lines_arrive_together() {
        let mut world = World::new();
        assert_eq!(world.sender.send(), None, "nothing waits");
        world.wait("a\n");
        assert_eq!(world.sender.send(), None, "the first line does not wait");
        world.wait("b\n");
        assert!(world.sender.send().is_some_and(|rest| rest <= Duration::from_millis(100)));
        world.sender.send_all();
        assert!(!world.receiver.receive(&world.socket).ok().unwrap());
        assert_eq!(world.log(), "a\nb\n");
    }

    #[test]
    fn what_comes_is_not_trusted() {
        let mut world = World::new();
        let long = "x".repeat(LineGate::LONGEST + 1);
        let send = |function, text: &str| {
            let lines = Lines { function, text: text.to_owned() };
            message::send(&world.sender.socket, &lines, &[]).unwrap();
        };
        send(8, "of nobody\n");
        send(7, &format!("a\u{1b}[31m\u{85}b\r\0c\n{long}\n"));
        send(7, "2\n3\n4\n5\n");
        assert!(!world.receiver.receive(&world.socket).ok().unwrap());
        assert_eq!(world.log(), "a [31m b  c\n2\n3\n");
        assert_eq!(world.log.lost.load(Relaxed), 3, "a long one, and two beyond the limit");
        message::send(&world.sender.socket, &"nonsense", &[]).unwrap();
        assert!(world.receiver.receive(&world.socket).is_err());
    }

    #[test]
    fn a_flood_is_read_in_parts_and_does_not_make_the_process_wait() {
        let mut world = World::new();
        (0..10_000).for_each(|_| {
            world.wait("x\n");
            world.sender.send_all();
        });
        assert!(world.copy.lost.load(Relaxed) > 0, "the socket is full");
        assert!(world.receiver.receive(&world.socket).ok().unwrap(), "there is more");
        assert_eq!(world.log(), "x\nx\nx\n");
    }
}
