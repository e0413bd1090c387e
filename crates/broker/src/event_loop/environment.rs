//! What an event loop gets from where it runs.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use mmb_nf::Instance;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::settings::Settings;

/// The connection is not there yet (errno(3)).
const EINPROGRESS: i32 = 115;

/// Tells somebody that a command was executed.
pub(crate) type Done = Box<dyn FnOnce() + Send>;

/// What the event loop is told.
pub(crate) enum Command {
    /// New requests pass other functions, with other limits.
    Update(Vec<Arc<Instance>>, Settings),
    /// No connection is accepted until a socket comes. The port is free when it is done.
    Pause(Done),
    /// Connections are accepted from this socket.
    Resume(TcpListener),
    /// No connection is accepted any more. Exchanges are finished. The port is free when it is done.
    Drain(Done),
    /// The event loop ends.
    End,
}

/// Where an event loop runs.
pub(crate) trait Environment {
    /// Returns the next command. None: there is none now. An event of the waker announces them.
    fn next_command(&mut self) -> Option<Command>;

    /// Begins to connect to a server, from the address of the client if `source` says so. `client`: the
    /// connection for which it is.
    ///
    /// # Errors
    /// The server cannot be reached.
    fn connect(
        &mut self,
        server: SocketAddr,
        source: Option<IpAddr>,
        client: &TcpStream,
    ) -> io::Result<TcpStream>;

    /// The other end of a connection gets a reset, not an end, when the connection is closed.
    fn reset_on_close(&mut self, connection: &TcpStream);

    /// The event loop waits for events from here on, at most for this time if there is one.
    fn begin_sleep(&mut self) -> Option<Duration> {
        None
    }

    /// The event loop has events.
    fn end_sleep(&self) {}
}

/// A thread of the daemon.
pub(crate) struct ThreadEnvironment(pub Receiver<Command>);

impl Environment for ThreadEnvironment {
    fn next_command(&mut self) -> Option<Command> {
        self.0.try_recv().ok()
    }

    fn connect(
        &mut self,
        server: SocketAddr,
        source: Option<IpAddr>,
        _: &TcpStream,
    ) -> io::Result<TcpStream> {
        connect(server, source).map(|socket| TcpStream::from_std(socket.into()))
    }

    fn reset_on_close(&mut self, connection: &TcpStream) {
        // An end that is gone needs none.
        let _ = SockRef::from(connection).set_linger(Some(Duration::ZERO));
    }
}

/// Begins to connect to a server. With a source address, the kernel chooses the port.
pub(crate) fn connect(server: SocketAddr, source: Option<IpAddr>) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(server), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    if let Some(source) = source {
        socket.set_ip_transparent_v4(true)?;
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    match socket.connect(&server.into()) {
        Err(error) if error.raw_os_error() != Some(EINPROGRESS) => Err(error),
        _ => Ok(socket),
    }
}
