//! The process of a broker.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use mio::unix::SourceFd;
use mio::{Interest, Poll};
use mmb_fabric::{BrokerStart, EventBell, Region, SharedMemory, Waker, message, sandbox};
use mmb_nf::process::make_copy;
use mmb_nf::{FileAccess, Instance, Registry};
use rustix::net::RecvFlags;

use super::connections;
use super::lines::LineSender;
use super::message::{Function, Hello, Reply, Request, set_states};
use super::page::Page;
use crate::event_loop::{Command, Done, Environment, EventLoop, WAKER};
use crate::exchange::Common;
use crate::settings::Settings;

/// Runs a broker in this process, until the daemon ends it or all exchanges of a drained one are finished.
///
/// # Errors
/// Why the broker does not run.
pub fn run_in_process(registry: &Registry, start: BrokerStart) -> Result<(), String> {
    let BrokerStart { hello, files, socket } = start;
    let text = |error: std::io::Error| error.to_string();
    let hello: Hello = serde_json::from_value(hello).map_err(|error| error.to_string())?;
    let mut files = files.into_iter();
    let mut file = || files.next().ok_or("the first message has too few descriptors");
    let (connections, memory, bell, lines) = (Arc::new(file()?), file()?, file()?, file()?);
    let listener = match hello.has_listener {
        true => Some(TcpListener::from_std(file()?.into())),
        false => None,
    };
    let memory = Arc::new(SharedMemory::open(memory).map_err(text)?);
    let page = Page::new(&memory).ok_or("the memory is too small")?;
    let poll = Poll::new().map_err(text)?;
    poll.registry().register(&mut SourceFd(&socket.as_raw_fd()), WAKER, Interest::READABLE).map_err(text)?;
    hello.cpu.map_or(Ok(()), sandbox::pin)?;
    sandbox::restore_priority(hello.priority);
    sandbox::limit(sandbox::Rights::Connections)?;
    let asked = connections.clone();
    let files = Arc::new(FileAccess::from_opener(move |path| connections::ask_for_file(&asked, path)));
    let lines = Rc::new(RefCell::new(LineSender::new(lines)));
    let mut copies = Copies { registry, files, lines: lines.clone(), all: HashMap::new() };
    let ids: Vec<u64> = hello.functions.iter().map(|function| function.id).collect();
    copies.make(hello.functions)?;
    let counters = Arc::new(page.counters());
    let common = Common::new(&copies.chain(&ids), hello.settings, counters, hello.is_transparent);
    let socket = Arc::new(socket);
    reply(&socket, &Reply::Ready);
    let waker = page.waker();
    let is_transparent = hello.is_transparent;
    let environment =
        ProcessEnvironment { socket, connections, copies, page, waker, bell: bell.into(), is_transparent };
    let started = EventLoop::new(poll, listener, Box::new(environment), common);
    // Functions log what ends with the event loop.
    let ended = started.and_then(|mut event_loop| event_loop.run());
    lines.borrow_mut().send_all();
    ended.map_err(text)
}

/// Sends a reply. If the daemon is gone, the next look at the socket shows it.
fn reply(socket: &OwnedFd, reply: &Reply) {
    let _ = message::send(socket, reply, &[]);
}

/// The functions of this process.
struct Copies<'a> {
    registry: &'a Registry,
    files: Arc<FileAccess>,
    lines: Rc<RefCell<LineSender>>,
    all: HashMap<u64, Arc<Instance>>,
}

impl Copies<'_> {
    fn make(&mut self, functions: Vec<Function>) -> Result<(), String> {
        for function in functions {
            let copy = make_copy(self.registry, &function.spec(), &self.files)?;
            for words in &function.settings {
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                copy.set(&words).map_err(|error| error.to_string())?;
            }
            function.set_states(&copy);
            self.lines.borrow_mut().add(function.id, &copy);
            self.all.insert(function.id, copy);
        }
        Ok(())
    }

    /// Returns functions in their order.
    fn chain(&self, ids: &[u64]) -> Vec<Arc<Instance>> {
        ids.iter().filter_map(|id| self.all.get(id).cloned()).collect()
    }
}

/// See [`Environment`].
struct ProcessEnvironment<'a> {
    /// The socket to the daemon.
    socket: Arc<OwnedFd>,
    /// The socket by which connections and files come.
    connections: Arc<OwnedFd>,
    copies: Copies<'a>,
    page: Page,
    waker: Waker<Region>,
    bell: EventBell,
    is_transparent: bool,
}

impl ProcessEnvironment<'_> {
    /// Executes a request. Returns the command for the event loop, if it is one.
    fn execute(&mut self, request: Request, files: Vec<OwnedFd>) -> Option<Command> {
        let all = &self.copies.all;
        let answer = match request {
            Request::Make(functions) => Reply::Done(self.copies.make(functions)),
            Request::Update(ids, settings) => return Some(self.update(&ids, settings)),
            Request::Pause => return Some(Command::Pause(self.done())),
            Request::Drain => return Some(Command::Drain(self.done())),
            Request::Resume => {
                reply(&self.socket, &Reply::Done(Ok(())));
                let listener = files.into_iter().next()?;
                return Some(Command::Resume(TcpListener::from_std(listener.into())));
            }
            Request::Set(id, words) => {
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                let set = all.get(&id).map_or(Ok(()), |copy| copy.set(&words));
                Reply::Done(set.map_err(|error| error.to_string()))
            }
            Request::Report(id) => Reply::Report(all.get(&id).map(|copy| copy.report()).unwrap_or_default()),
            Request::Servers(id, states) => {
                if let Some(copy) = all.get(&id) {
                    set_states(copy, &states);
                }
                Reply::Done(Ok(()))
            }
        };
        reply(&self.socket, &answer);
        None
    }

    fn update(&mut self, ids: &[u64], settings: Settings) -> Command {
        self.copies.all.retain(|id, _| ids.contains(id));
        reply(&self.socket, &Reply::Done(Ok(())));
        Command::Update(self.copies.chain(ids), settings)
    }

    /// Returns what tells the daemon that a command was executed.
    fn done(&self) -> Done {
        let socket = self.socket.clone();
        Box::new(move || reply(&socket, &Reply::Done(Ok(()))))
    }
}

impl Environment for ProcessEnvironment<'_> {
    fn next_command(&mut self) -> Option<Command> {
        loop {
            match message::receive::<Request>(&*self.socket, RecvFlags::DONTWAIT) {
                Ok(Some((request, files))) => {
                    if let Some(command) = self.execute(request, files) {
                        return Some(command);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                // The daemon does not need the process any more.
                Ok(None) | Err(_) => return Some(Command::End),
            }
        }
    }

    fn connect(
        &mut self,
        server: SocketAddr,
        _: Option<IpAddr>,
        client: &TcpStream,
    ) -> std::io::Result<TcpStream> {
        connections::ask(&self.connections, server, Some(client).filter(|_| self.is_transparent))
    }

    fn reset_on_close(&mut self, connection: &TcpStream) {
        connections::ask_for_reset(&self.connections, connection);
    }

    fn begin_sleep(&mut self) -> Option<Duration> {
        let rest = self.copies.lines.borrow_mut().send();
        self.page.set_working(false);
        rest
    }

    fn end_sleep(&self) {
        self.page.set_working(true);
        self.waker.wake(&self.bell);
    }
}
