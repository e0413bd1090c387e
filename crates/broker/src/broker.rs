//! A broker as its owner sees it: a socket, a thread or a process, and counters.

use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mio::net::TcpListener;
use mio::{Poll, Waker};
use mmb_fabric::Supervisor;
use mmb_nf::Instance;
use mmb_system::log;
use socket2::{Domain, Protocol, Socket, Type};

use crate::counters::Counters;
use crate::event_loop::{Command, Done, EventLoop, ThreadEnvironment, WAKER};
use crate::exchange::Common;
use crate::process::{BrokerProcess, Shared};
use crate::settings::Settings;

/// Longest time until a port is free.
const PORT_PATIENCE: Duration = Duration::from_secs(5);
/// Most connections that wait to be accepted: as many as may come at once, up to what `net.core.somaxconn`
/// allows. A client that finds no room learns it by a timeout of a second.
const BACKLOG: i32 = 4096;

/// A socket that listens for a broker.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    is_transparent: bool,
}

impl Listener {
    /// Listens on an address.
    ///
    /// # Errors
    /// Another process has the address, this machine does not, or the process may not listen on the port.
    pub fn bind(address: SocketAddr) -> io::Result<Listener> {
        let socket =
            Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        // Connections that a former broker has closed do not keep the port.
        socket.set_reuse_address(true)?;
        Listener::listen(socket, address, false)
    }

    /// Listens for connections of both address families to any address, in the network namespace of the
    /// calling thread. The kernel must be told which ones (by [`AsFd`]).
    ///
    /// # Errors
    /// The process may not have the addresses of others (CAP_NET_ADMIN or CAP_NET_RAW).
    pub fn transparent() -> io::Result<Listener> {
        let socket = Socket::new(Domain::IPV6, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        socket.set_only_v6(false)?;
        socket.set_ip_transparent_v4(true)?;
        Listener::listen(socket, SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)), true)
    }

    fn listen(socket: Socket, address: SocketAddr, is_transparent: bool) -> io::Result<Listener> {
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let socket = TcpListener::from_std(socket.into());
        let address = socket.local_addr()?;
        Ok(Listener { socket, address, is_transparent })
    }

    /// Returns the same socket by another descriptor.
    ///
    /// # Errors
    /// The process has no free descriptor.
    pub fn try_clone(&self) -> io::Result<Listener> {
        let socket = self.socket.as_fd().try_clone_to_owned()?;
        Ok(Listener { socket: TcpListener::from_std(socket.into()), ..*self })
    }

    /// Whether connections to any address come by the socket.
    pub(crate) fn is_transparent(&self) -> bool {
        self.is_transparent
    }

    /// Returns the address. Its port is not 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A running broker. It ends at once when it is dropped.
pub struct Broker {
    address: SocketAddr,
    runner: Runner,
    counters: Arc<Counters>,
}

/// What can be shown of a broker, without waiting for it.
pub struct BrokerView {
    counters: Arc<Counters>,
    /// None: it runs in a thread.
    process: Option<Arc<Shared>>,
}

impl BrokerView {
    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether its process has ended, and another one has not started yet.
    pub fn is_starting(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.is_down())
    }
}

/// Where the event loop runs.
enum Runner {
    Thread(BrokerThread),
    Process(BrokerProcess),
}

impl Broker {
    /// Starts a broker that passes requests through functions; those that brokers cannot use are left out.
    ///
    /// # Errors
    /// The process has no room for the thread or its descriptors.
    pub fn start(
        name: &str,
        listener: Listener,
        functions: Vec<Arc<Instance>>,
        settings: Settings,
    ) -> io::Result<Broker> {
        let (address, counters) = (listener.address, Arc::new(Counters::default()));
        let thread = BrokerThread::start(name, listener, functions, (settings, counters.clone()))?;
        Ok(Broker { address, runner: Runner::Thread(thread), counters })
    }

    /// Starts a broker in a process of its own, with copies of the functions. Connections to servers are made
    /// in the network namespace of the calling thread.
    ///
    /// # Errors
    /// Why it does not run, in one sentence.
    pub fn start_in_process(
        name: &str,
        listener: Listener,
        functions: Vec<Arc<Instance>>,
        settings: Settings,
        supervisor: &Arc<Supervisor>,
    ) -> Result<Broker, String> {
        let address = listener.address;
        let process = BrokerProcess::start(name, listener, functions, settings, supervisor)?;
        let counters = process.counters().clone();
        Ok(Broker { address, runner: Runner::Process(process), counters })
    }

    /// Returns the address on which the broker listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Returns what can be shown of the broker, at any time.
    pub fn view(&self) -> BrokerView {
        let process = match &self.runner {
            Runner::Thread(_) => None,
            Runner::Process(process) => Some(process.shared().clone()),
        };
        BrokerView { counters: self.counters.clone(), process }
    }

    /// Makes copies of functions that are new, if the broker has copies.
    ///
    /// # Errors
    /// A function cannot be made in the process, in one sentence.
    pub fn prepare(&self, functions: &[Arc<Instance>]) -> Result<(), String> {
        match &self.runner {
            Runner::Thread(_) => Ok(()),
            Runner::Process(process) => process.prepare(functions),
        }
    }

    /// New requests pass other functions, with other limits. Those under way are not disturbed. Both kinds of
    /// functions run where the former ones do.
    pub fn update(&self, functions: Vec<Arc<Instance>>, settings: Settings) {
        match &self.runner {
            Runner::Thread(thread) => thread.command(Command::Update(functions, settings)),
            Runner::Process(process) => process.update(functions, settings),
        }
    }

    /// Accepts no connections any more, and ends when all exchanges are finished. Waits until the port is
    /// free, but not for the exchanges.
    pub fn drain(&self) {
        self.free_port(Command::Drain, BrokerProcess::drain);
    }

    /// Accepts no connections until [`Broker::resume`]. Waits until the port is free.
    pub fn pause(&self) {
        self.free_port(Command::Pause, BrokerProcess::pause);
    }

    fn free_port(
        &self,
        command: impl FnOnce(Done) -> Command,
        of_process: impl FnOnce(&BrokerProcess, Sender<()>),
    ) {
        let (sender, done) = channel();
        match &self.runner {
            Runner::Thread(thread) => {
                // The one who has asked may wait no longer.
                thread.command(command(Box::new(move || sender.send(()).unwrap_or_default())))
            }
            Runner::Process(process) => of_process(process, sender),
        }
        // The event loop never waits for long. If it has ended, the port is free.
        let _ = done.recv_timeout(PORT_PATIENCE);
    }

    /// Accepts connections again, from another socket.
    pub fn resume(&self, listener: Listener) {
        match &self.runner {
            Runner::Thread(thread) => thread.command(Command::Resume(listener.socket)),
            Runner::Process(process) => process.resume(listener),
        }
    }

    /// Whether the event loop has ended.
    pub fn has_ended(&self) -> bool {
        match &self.runner {
            Runner::Thread(thread) => thread.thread.as_ref().is_none_or(JoinHandle::is_finished),
            Runner::Process(process) => process.has_ended(),
        }
    }
}

/// An event loop in a thread of the daemon.
struct BrokerThread {
    commands: Sender<Command>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl BrokerThread {
    fn start(
        name: &str,
        Listener { socket, is_transparent, .. }: Listener,
        functions: Vec<Arc<Instance>>,
        (settings, counters): (Settings, Arc<Counters>),
    ) -> io::Result<BrokerThread> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let (commands, received) = channel();
        let name = name.to_owned();
        let thread = thread::Builder::new().name(format!("broker-{name}")).spawn(move || {
            let common = Common::new(&functions, settings, counters, is_transparent);
            let environment = Box::new(ThreadEnvironment(received));
            let started = EventLoop::new(poll, Some(socket), environment, common);
            if let Err(error) = started.and_then(|mut event_loop| event_loop.run()) {
                log::error(format!("error: broker {name} has ended: {error}\n"));
            }
        })?;
        Ok(BrokerThread { commands, waker, thread: Some(thread) })
    }

    /// Tells the thread something. One that has ended needs to know nothing.
    fn command(&self, command: Command) {
        if self.commands.send(command).is_ok() {
            let _ = self.waker.wake();
        }
    }
}

impl Drop for BrokerThread {
    fn drop(&mut self) {
        self.command(Command::End);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has printed the reason already.
            let _ = thread.join();
        }
    }
}
