//! The doorbell: a consumer that finds no descriptors sleeps, and a producer wakes it.
//!
//! # Theory of operation
//! One word says whether the consumer sleeps. The consumer writes it and then looks at its rings once more;
//! the producer publishes descriptors and then reads it. Between the two steps, each side has a sequentially
//! consistent fence. So at least one of them sees what the other has written: the consumer finds the
//! descriptors, or the producer finds it asleep and rings. A producer makes a system call only if the
//! consumer sleeps. A ring too many makes the next sleep end at once, which costs one turn.
//!
//! The bell is an eventfd. SK_MSG with a sockmap (MiddleNet, section V) needs 1.6 times the time for a hop on
//! one processor, and carries what the ring carries already (`bench/README.md`, doorbell). A futex is no
//! faster, and no process can wait for it and for a socket.

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};

use rustix::event::{EventfdFlags, eventfd};

use crate::words::{Word, Words};

const AWAKE: u64 = 0;
const ASLEEP: u64 = 1;

/// Something that one side waits for and the other rings. A ring before the wait ends the wait.
pub trait Bell {
    /// Ends the wait of the other side, or its next one.
    fn ring(&self);
    /// Waits for a ring, or returns earlier.
    fn wait(&self);
}

/// The side that sleeps.
#[derive(Debug)]
pub struct Sleeper<M> {
    memory: M,
}

/// The side that wakes.
#[derive(Debug)]
pub struct Waker<M> {
    memory: M,
}

impl<M: Words> Sleeper<M> {
    /// Makes the side that sleeps. The first word of the memory is used.
    pub fn new(memory: M) -> Sleeper<M> {
        Sleeper { memory }
    }

    /// Waits for the bell, unless there is work. `has_work` looks at what the producer publishes.
    pub fn sleep(&self, bell: &impl Bell, has_work: impl FnOnce() -> bool) {
        let Some(word) = self.memory.words().first() else { return };
        // Exchanges on both sides: a write of the waker cannot come behind one that it has not seen.
        word.swap(ASLEEP, AcqRel);
        M::Word::fence(SeqCst);
        if !has_work() {
            bell.wait();
        }
        word.swap(AWAKE, AcqRel);
    }
}

impl<M: Words> Waker<M> {
    /// Makes the side that wakes. The first word of the memory is used.
    pub fn new(memory: M) -> Waker<M> {
        Waker { memory }
    }

    /// Wakes the other side if it sleeps, and returns whether it did. To be called after the descriptors are
    /// published.
    #[inline]
    pub fn wake(&self, bell: &impl Bell) -> bool {
        let Some(word) = self.memory.words().first() else { return false };
        M::Word::fence(SeqCst);
        let sleeps = word.load(Relaxed) == ASLEEP && word.swap(AWAKE, AcqRel) == ASLEEP;
        if sleeps {
            bell.ring();
        }
        sleeps
    }
}

/// A bell of the kernel: eventfd(2).
#[derive(Debug)]
pub struct EventBell {
    file: OwnedFd,
}

impl EventBell {
    /// Makes a bell.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn new() -> io::Result<EventBell> {
        let file = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(EventBell { file })
    }

    /// Clears the bell, after a wait by other means.
    pub fn clear(&self) {
        // Fails if nobody has rung.
        let _ = rustix::io::read(&self.file, &mut [0; 8]);
    }
}

impl From<OwnedFd> for EventBell {
    fn from(file: OwnedFd) -> EventBell {
        EventBell { file }
    }
}

impl AsFd for EventBell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Bell for EventBell {
    fn ring(&self) {
        // Fails if the counter is full, and then the other side wakes anyway.
        let _ = rustix::io::write(&self.file, &1_u64.to_ne_bytes());
    }

    fn wait(&self) {
        let mut files = [rustix::event::PollFd::new(&self.file, rustix::event::PollFlags::IN)];
        // A signal ends the wait early, which is allowed.
        let _ = rustix::event::poll(&mut files, None);
        self.clear();
    }
}
