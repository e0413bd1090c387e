//! The kernel's messages about its interfaces.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::netlink::{NetlinkSocket, ReadResult};

/// Waits for changes of the kernel's interfaces. It belongs to one thread.
pub struct LinkWatch {
    socket: NetlinkSocket,
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
        Ok(LinkWatch { socket: NetlinkSocket::links()?, wake: Arc::new(wake) })
    }

    /// What ends a wait of this watch.
    pub fn waker(&self) -> LinkWaker {
        LinkWaker(self.wake.clone())
    }

    /// Waits until an interface has changed since the last call, but not longer than `longest`.
    pub fn wait(&mut self, longest: Duration) {
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut fds = [readable(self.socket.fd()), readable(self.wake.as_fd())];
        // An interrupted wait is only shorter.
        let _ = poll(&mut fds, PollTimeout::try_from(longest).unwrap_or(PollTimeout::MAX));
        // Reading fails only if there is nothing to read.
        let _ = self.wake.read();
        loop {
            match self.socket.read() {
                // The messages do not matter: the caller looks at its interfaces, also after lost messages.
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
