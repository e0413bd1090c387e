//! The kernel's messages about its interfaces.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{MsgFlags, recv};

use crate::netlink::{NetlinkSocket, ReadResult};

/// Waits for changes of the kernel's interfaces. It belongs to one thread.
pub struct LinkWatch {
    socket: NetlinkSocket,
    /// Reports of other changes.
    other: Option<OwnedFd>,
    wake: Arc<EventFd>,
}

/// Ends a wait of a [`LinkWatch`].
#[derive(Clone)]
pub struct LinkWaker(Arc<EventFd>);

impl LinkWaker {
    /// Ends the current or the next wait.
    pub fn wake(&self) {
        // The write fails only if the counter is full, and then the wait ends anyway.
        let _ = self.0.write(1);
    }
}

impl LinkWatch {
    /// Begins to listen, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn new() -> io::Result<LinkWatch> {
        let wake = EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        Ok(LinkWatch { socket: NetlinkSocket::links()?, other: None, wake: Arc::new(wake) })
    }

    /// Also waits for messages on another netlink socket.
    pub fn listen_to(&mut self, socket: OwnedFd) {
        self.other = Some(socket);
    }

    /// What ends a wait of this watch.
    pub fn waker(&self) -> LinkWaker {
        LinkWaker(self.wake.clone())
    }

    /// Waits until the kernel has reported a change since the last call, or for the waker, but not longer
    /// than `longest`.
    pub fn wait(&mut self, longest: Duration) {
        let sockets = [self.socket.fd()].into_iter().chain(self.other.as_ref().map(AsFd::as_fd));
        self.poll(sockets, PollTimeout::try_from(longest).unwrap_or(PollTimeout::MAX));
        self.discard_messages();
        self.other.iter().for_each(discard_messages);
    }

    /// Waits for the waker alone.
    pub fn sleep(&self) {
        self.poll([].into_iter(), PollTimeout::NONE);
    }

    /// Waits for one of the sockets or the waker, and clears the waker.
    fn poll<'a>(&'a self, sockets: impl Iterator<Item = BorrowedFd<'a>>, timeout: PollTimeout) {
        let fds = sockets.chain([self.wake.as_fd()]);
        let mut fds: Vec<_> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        // An interrupted wait is only shorter.
        let _ = poll(&mut fds, timeout);
        // Reading fails only if there is nothing to read.
        let _ = self.wake.read();
    }

    /// Discards the messages about interfaces: the caller looks at them, also after lost messages.
    fn discard_messages(&mut self) {
        loop {
            match self.socket.read() {
                Ok(ReadResult::Some | ReadResult::Overrun) => {}
                Ok(ReadResult::Empty) => return,
                Err(_) => {
                    // Until there is a new socket, the caller looks after the longest wait.
                    if let Ok(socket) = NetlinkSocket::links() {
                        self.socket = socket;
                    }
                    return;
                }
            }
        }
    }
}

/// Discards the messages of a socket. What a message has beyond the buffer is discarded too. ENOBUFS tells
/// once that messages were lost.
fn discard_messages(socket: &OwnedFd) {
    let mut message = [0; 64];
    while matches!(
        recv(socket.as_raw_fd(), &mut message, MsgFlags::MSG_DONTWAIT),
        Ok(_) | Err(Errno::ENOBUFS)
    ) {}
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_wait_ends_when_it_is_told_to() {
        let mut watch = LinkWatch::new().expect("a netlink socket");
        let waker = watch.waker();
        waker.wake();
        let begin = Instant::now();
        watch.wait(Duration::from_secs(20));
        assert!(begin.elapsed() < Duration::from_secs(10));
        // The waker counts once.
        watch.wait(Duration::from_millis(1));
    }
}
