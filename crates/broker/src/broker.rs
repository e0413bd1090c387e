//! A broker as its owner sees it: a socket, a thread, and counters.

use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mio::net::TcpListener;
use mio::{Poll, Waker};
use mmb_nf::Instance;
use mmb_system::log;
use socket2::{Domain, Protocol, Socket, Type};

use crate::counters::Counters;
use crate::event_loop::{Command, EventLoop, WAKER};
use crate::exchange::Common;
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
    /// calling thread. The kernel must be told which ones ([`Listener::descriptor`]).
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

    /// Returns another descriptor of the socket.
    ///
    /// # Errors
    /// The process has no free descriptor.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.socket.as_fd().try_clone_to_owned()
    }

    /// Returns the address. Its port is not 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A running broker. It ends at once when it is dropped.
pub struct Broker {
    address: SocketAddr,
    commands: Sender<Command>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
    counters: Arc<Counters>,
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
        let Listener { socket, address, is_transparent } = listener;
        let (poll, counters) = (Poll::new()?, Arc::new(Counters::default()));
        let waker = Waker::new(poll.registry(), WAKER)?;
        let (commands, received) = channel();
        let (shared, name) = (counters.clone(), name.to_owned());
        let thread = thread::Builder::new().name(format!("broker-{name}")).spawn(move || {
            let common = Common::new(&functions, settings, shared, is_transparent);
            let started = EventLoop::new(poll, socket, received, common);
            if let Err(error) = started.and_then(|mut event_loop| event_loop.run()) {
                log::error(format!("error: broker {name} has ended: {error}\n"));
            }
        })?;
        Ok(Broker { address, commands, waker, thread: Some(thread), counters })
    }

    /// Returns the address on which the broker listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// New requests pass other functions, with other limits. Those under way are not disturbed.
    pub fn update(&self, functions: Vec<Arc<Instance>>, settings: Settings) {
        self.command(Command::Update(functions, settings));
    }

    /// Accepts no connections any more, and ends when all exchanges are finished. Waits until the port is
    /// free, but not for the exchanges.
    pub fn drain(&self) {
        let (sender, done) = channel();
        self.command(Command::Drain(sender));
        // The thread never waits for long. If it has ended, the port is free.
        let _ = done.recv_timeout(PORT_PATIENCE);
    }

    /// Accepts no connections until [`Broker::resume`]. Waits until the port is free.
    pub fn pause(&self) {
        let (sender, done) = channel();
        self.command(Command::Pause(sender));
        let _ = done.recv_timeout(PORT_PATIENCE);
    }

    /// Accepts connections again, from another socket.
    pub fn resume(&self, listener: Listener) {
        self.command(Command::Resume(listener.socket));
    }

    /// Whether the thread has ended.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Tells the thread something. One that has ended needs to know nothing.
    fn command(&self, command: Command) {
        if self.commands.send(command).is_ok() {
            let _ = self.waker.wake();
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.command(Command::End);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has printed the reason already.
            let _ = thread.join();
        }
    }
}
