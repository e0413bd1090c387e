//! Ends the sleep of a worker.

use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::eventfd::{EfdFlags, EventFd};

/// An eventfd that a sleeping worker waits on.
pub(crate) struct Waker(EventFd);

impl Waker {
    pub fn new() -> std::io::Result<Waker> {
        Ok(Waker(EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?))
    }

    /// A waker whose owner sleeps in [`Waker::wait`].
    pub fn blocking() -> std::io::Result<Waker> {
        Ok(Waker(EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC)?))
    }

    /// Sleeps until somebody wakes, and forgets wake-ups that have come. Returns at once if one came before.
    /// An interrupted or failed wait is a short sleep.
    pub fn wait(&self) {
        let _ = self.0.read();
    }

    /// Ends the current or the next sleep.
    pub fn wake(&self) {
        // A full counter means that wake-ups are pending already; it takes 2^64 of them.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_up_before_a_wait_ends_it() {
        let waker = Waker::blocking().expect("an eventfd");
        for wake_ups in [1, 2, 1] {
            (0..wake_ups).for_each(|_| waker.wake());
            waker.wait();
        }
        std::thread::scope(|scope| {
            scope.spawn(|| waker.wait());
            waker.wake();
        });
    }
}
