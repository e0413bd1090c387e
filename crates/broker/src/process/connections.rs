//! Connections to servers and files, for a process that can make no sockets and open no files.
//!
//! # Theory of operation
//! The process names the address, and waits for the descriptor. The daemon makes the socket if the functions
//! of the chain have a server there. A transparent broker also connects to where its client has connected to:
//! the process passes the client's connection, and the daemon asks the kernel for its addresses.
//!
//! A process gets the files that the functions of the daemon have read, as they were then.
//!
//! A connection ends with a reset if its socket lingers for no time (SO_LINGER, socket(7)). The process must
//! not set for how long sockets linger: the daemon closes sockets, too, and would wait in close(2). So the
//! process passes the connection before it closes it, the daemon sets the option, and closes it as well.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mmb_fabric::message;
use mmb_nf::Instance;
use rustix::net::RecvFlags;
use socket2::{SockRef, Socket};

use super::message::{Need, NeedReply};
use crate::event_loop::connect;
use crate::exchange::is_server;

/// Connections that are made before the keeper looks at anything else.
const AT_ONCE: usize = 32;
/// How long the servers of a former chain can be connected to: requests that it has seen may still need them.
pub(super) const FORMER: Duration = Duration::from_secs(60);

/// The process does not follow the rules, or is gone.
pub(super) struct Broken;

/// The addresses that a broker may connect to.
#[derive(Default)]
pub(super) struct Servers {
    current: HashSet<SocketAddr>,
    /// Those of chains before, and until when.
    former: Vec<(HashSet<SocketAddr>, Instant)>,
}

impl Servers {
    /// The chain has these functions from here on.
    pub fn set(&mut self, functions: &[Arc<Instance>]) {
        let upstream = functions.iter().filter_map(|instance| instance.l7()?.servers());
        let current = upstream.flat_map(|servers| servers.addresses()).collect();
        let former = std::mem::replace(&mut self.current, current);
        let now = Instant::now();
        self.former.retain(|(_, until)| *until > now);
        if former != self.current {
            self.former.push((former, now + FORMER));
        }
    }

    fn contain(&self, address: &SocketAddr) -> bool {
        let is_former =
            |(servers, until): &(HashSet<_>, Instant)| servers.contains(address) && *until > Instant::now();
        self.current.contains(address) || self.former.iter().any(is_former)
    }
}

/// What the kernel says about a connection of a client.
struct Ends {
    source: IpAddr,
    destination: SocketAddr,
}

impl Ends {
    /// None: it is no connection that a transparent broker has accepted.
    fn of(connection: &OwnedFd) -> Option<Ends> {
        let socket = SockRef::from(connection);
        // Only the listening socket has the option, and hands it down.
        socket.ip_transparent_v4().ok().filter(|is_transparent| *is_transparent)?;
        let source = socket.peer_addr().ok()?.as_socket()?.ip().to_canonical();
        let destination = socket.local_addr().ok()?.as_socket()?;
        let destination = SocketAddr::new(destination.ip().to_canonical(), destination.port());
        Some(Ends { source, destination })
    }
}

/// The daemon's side.
pub(super) struct Connections<'a> {
    pub servers: &'a Servers,
    pub is_transparent: bool,
    /// Servers see the addresses of the clients.
    pub keeps_source: bool,
    /// The functions of which the process has copies, and those of which it makes some.
    pub functions: [&'a [Arc<Instance>]; 2],
}

impl Connections<'_> {
    /// Gives a process what it asks for. `socket` does not block.
    pub fn serve(&self, socket: &OwnedFd) -> Result<(), Broken> {
        for _ in 0..AT_ONCE {
            let (need, files) = match message::receive::<Need>(socket, RecvFlags::DONTWAIT) {
                Ok(Some(received)) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Ok(None) | Err(_) => return Err(Broken),
            };
            let made = match need {
                Need::Reset => {
                    files.iter().for_each(reset_on_close);
                    continue;
                }
                Need::Connection(server) => self.connect(server, files.first()).map(OwnedFd::from),
                Need::File(path) => self.file(&path).map(OwnedFd::from),
            };
            let files: Vec<_> = made.iter().map(AsFd::as_fd).collect();
            let reply = made.as_ref().map(|_| ()).map_err(|error| error.raw_os_error().unwrap_or(0));
            message::send(socket, &NeedReply(reply), &files).map_err(|_| Broken)?;
        }
        Ok(())
    }

    fn file(&self, path: &Path) -> io::Result<File> {
        let kept = self.functions.into_iter().flatten().find_map(|function| function.copies()?.file(path));
        kept.ok_or_else(|| io::Error::from_raw_os_error(EACCES))
    }

    fn connect(&self, server: SocketAddr, client: Option<&OwnedFd>) -> io::Result<Socket> {
        let ends = client.filter(|_| self.is_transparent).and_then(Ends::of);
        let is_original =
            ends.as_ref().is_some_and(|ends| ends.destination == server && is_server(server.ip()));
        if !is_original && !self.servers.contain(&server) {
            return Err(io::Error::from_raw_os_error(EACCES));
        }
        let source = match (self.keeps_source, ends) {
            (false, _) => None,
            (true, Some(ends)) => Some(ends.source),
            (true, None) => return Err(io::Error::from_raw_os_error(EACCES)),
        };
        connect(server, source)
    }
}

/// The other end gets a reset when the last descriptor of a connection is closed.
fn reset_on_close(connection: &OwnedFd) {
    let socket = SockRef::from(connection);
    // The listening socket would hand the option down to the connections of other processes.
    if matches!(socket.is_listener(), Ok(false)) {
        // An end that is gone needs none.
        let _ = socket.set_linger(Some(Duration::ZERO));
    }
}

/// Permission denied (errno(3)).
const EACCES: i32 = 13;

/// The side of the process: asks for a connection. `client`: that of a transparent broker.
pub(super) fn ask(socket: &OwnedFd, server: SocketAddr, client: Option<&TcpStream>) -> io::Result<TcpStream> {
    let files: Vec<_> = client.iter().map(AsFd::as_fd).collect();
    let made = ask_for(socket, &Need::Connection(server), &files)?;
    Ok(TcpStream::from_std(made.into()))
}

/// The side of the process: asks for a file that a function reads.
pub(super) fn ask_for_file(socket: &OwnedFd, path: &Path) -> io::Result<File> {
    ask_for(socket, &Need::File(path.to_owned()), &[]).map(File::from)
}

/// The side of the process: asks for a reset of a connection, which it closes then.
pub(super) fn ask_for_reset(socket: &OwnedFd, connection: &TcpStream) {
    // If the daemon is gone, the connection just ends.
    let _ = message::send(socket, &Need::Reset, &[connection.as_fd()]);
}

fn ask_for(socket: &OwnedFd, need: &Need, files: &[BorrowedFd<'_>]) -> io::Result<OwnedFd> {
    message::send(socket, need, files)?;
    match message::receive::<NeedReply>(socket, RecvFlags::empty())? {
        None => Err(ErrorKind::BrokenPipe.into()),
        Some((NeedReply(Err(error)), _)) => Err(io::Error::from_raw_os_error(error)),
        Some((NeedReply(Ok(())), files)) => Ok(files.into_iter().next().ok_or(ErrorKind::InvalidData)?),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use rustix::io::ioctl_fionbio;

    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn servers(all: &[SocketAddr]) -> Servers {
        Servers { current: all.iter().copied().collect(), former: Vec::new() }
    }

    #[test]
    fn only_servers_of_the_chain_are_connected_to() {
        let listening = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listening.local_addr().unwrap();
        let (here, there) = message::pair().unwrap();
        ioctl_fionbio(&here, true).unwrap();
        let asking = std::thread::spawn(move || {
            let made = ask(&there, server, None).unwrap();
            let other = ask(&there, address("127.0.0.1:9"), None).unwrap_err();
            let file = ask_for_file(&there, Path::new("/etc/passwd")).unwrap_err();
            assert_eq!(file.raw_os_error(), Some(EACCES), "no function has read it");
            (made.peer_addr().unwrap(), other.raw_os_error())
        });
        let servers = servers(&[server]);
        let connections = Connections {
            servers: &servers,
            is_transparent: false,
            keeps_source: false,
            functions: [&[]; 2],
        };
        while !asking.is_finished() {
            let _ = connections.serve(&here);
            std::thread::yield_now();
        }
        assert_eq!(asking.join().unwrap(), (server, Some(EACCES)));
    }

    /// A process could pass any of its sockets: only what a transparent socket has accepted names a server.
    #[test]
    fn other_connections_name_no_server() {
        let listening = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = std::net::TcpStream::connect(listening.local_addr().unwrap()).unwrap();
        let far = OwnedFd::from(listening.accept().unwrap().0);
        assert!(Ends::of(&far).is_none());
        let servers = Servers::default();
        let connections =
            Connections { servers: &servers, is_transparent: true, keeps_source: false, functions: [&[]; 2] };
        let refused = connections.connect(near.peer_addr().unwrap(), Some(&far)).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(EACCES));
    }

    #[test]
    fn connections_are_reset_and_the_listening_socket_stays_as_it_is() {
        let listening = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = std::net::TcpStream::connect(listening.local_addr().unwrap()).unwrap();
        let far = TcpStream::from_std(listening.accept().unwrap().0);
        let (here, there) = message::pair().unwrap();
        ioctl_fionbio(&here, true).unwrap();
        ask_for_reset(&there, &far);
        message::send(&there, &Need::Reset, &[listening.as_fd()]).unwrap();
        drop(far);
        let servers = Servers::default();
        let connections = Connections {
            servers: &servers,
            is_transparent: false,
            keeps_source: false,
            functions: [&[]; 2],
        };
        assert!(connections.serve(&here).is_ok());
        assert_eq!(near.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(SockRef::from(&listening).linger().unwrap(), None);
    }

    #[test]
    fn servers_of_a_former_chain_stay_for_a_while() {
        let (old, new) = (address("192.0.2.1:80"), address("192.0.2.2:80"));
        let mut all = servers(&[old]);
        all.former.push((HashSet::from([new]), Instant::now() - Duration::from_secs(1)));
        assert!(all.contain(&old) && !all.contain(&new));
        all.set(&[]);
        assert!(all.contain(&old) && !all.contain(&new));
    }
}
