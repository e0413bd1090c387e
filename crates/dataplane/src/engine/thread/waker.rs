//! Ends the sleep of a worker.

use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::eventfd::{EfdFlags, EventFd};

/// An eventfd that a sleeping worker waits on.
pub(crate) struct Waker(EventFd);

impl Waker {
    pub fn new() -> std::io::Result<Waker> {
        Ok(Waker(EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?))
    }

    /// Ends the current or the next sleep.
    pub fn wake(&self) {
        // A full counter means that wake-ups are pending already.
        let _ = self.0.write(1);
    }

    /// Forgets wake-ups that have come.
    pub fn clear(&self) {
        // Nothing to read is the usual case: traffic ended the sleep.
        let _ = self.0.read();
    }

    /// The descriptor to wait on.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
