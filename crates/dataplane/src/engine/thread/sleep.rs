//! How an idle worker sleeps: on file descriptors of its ports, with a growing pause for ports that have
//! none. While frames wait to be sent, it sleeps for a short time, in which receivers can make room.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;

use crate::engine::config::MAX_PORTS;
use crate::engine::thread::waker::Waker;
use crate::engine::worker::Worker;
use crate::features::port::device::OpenPort;

/// First pause between polls of a port without a descriptor.
const PAUSE_MIN: Duration = Duration::from_micros(50);
/// Longest such pause.
const PAUSE_MAX: Duration = Duration::from_micros(500);
/// Longest sleep while frames wait to be sent.
const BACKLOG_PAUSE: Duration = Duration::from_micros(50);
/// What an event of a descriptor is about.
const WAKER: u64 = 0;
const PORT: u64 = 1;

/// The descriptors on which one worker sleeps.
pub(crate) struct Sleeper {
    waker: Arc<Waker>,
    epoll: Epoll,
    /// Ports that are watched, with the number of the worker's receive queue; holding them keeps their
    /// descriptors valid.
    watched: Vec<(Arc<OpenPort>, u16)>,
    /// Some port has no descriptor and must be polled.
    polls: bool,
    pause: Duration,
}

impl Sleeper {
    pub fn new(waker: Arc<Waker>) -> std::io::Result<Sleeper> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(waker.fd(), EpollEvent::new(EpollFlags::EPOLLIN, WAKER))?;
        Ok(Sleeper { waker, epoll, watched: Vec::new(), polls: false, pause: PAUSE_MIN })
    }

    /// Watches the ports that `worker` polls now, and no longer the ports before.
    pub fn watch(&mut self, worker: &Worker) {
        for (port, queue) in self.watched.drain(..) {
            if let Some(fd) = port.device().rx_fd(queue) {
                // The descriptor may be gone from the set already if its device went away.
                let _ = self.epoll.delete(fd);
            }
        }
        self.polls = false;
        for id in 0..MAX_PORTS {
            let Some(port) = &worker.snapshot.ports[id] else { continue };
            let Some(queue) = port.rx_queue_number(worker.id, worker.shared.workers.len(), id) else {
                continue;
            };
            let is_watched = port.device().rx_fd(queue).is_some_and(|fd| self.add(fd));
            self.polls |= !is_watched && port.receives();
            self.watched.push((port.clone(), queue));
        }
    }

    /// Clears the pending errors of ports, and no longer watches those of which an error stays: the interface
    /// of a tap was deleted.
    fn handle_errors(&self) {
        for (port, queue) in &self.watched {
            port.clear_errors();
            if !port.device().is_attached()
                && let Some(fd) = port.device().rx_fd(*queue)
            {
                // It may be gone from the set already.
                let _ = self.epoll.delete(fd);
            }
        }
    }

    fn add(&self, fd: BorrowedFd<'_>) -> bool {
        self.epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, PORT)).is_ok()
    }

    /// Makes the next pause short again, since traffic came.
    pub fn reset_pause(&mut self) {
        self.pause = PAUSE_MIN;
    }

    /// Whether frames wait to be sent on a port.
    pub fn has_backlog(&self) -> bool {
        self.watched.iter().any(|(port, _)| port.device().has_backlog())
    }

    /// Sleeps until a watched descriptor or the waker is readable, the pause is over, or `timer` milliseconds
    /// have passed.
    pub fn sleep(&mut self, timer: u32) {
        if self.polls {
            std::thread::sleep(self.pause);
            self.pause = (self.pause * 2).min(PAUSE_MAX);
            self.waker.clear();
            return;
        }
        let longest = if self.has_backlog() {
            let epoll = PollFd::new(self.epoll.0.as_fd(), PollFlags::POLLIN);
            if ppoll(&mut [epoll], Some(TimeSpec::from_duration(BACKLOG_PAUSE)), None) == Ok(0) {
                return;
            }
            EpollTimeout::ZERO
        } else {
            EpollTimeout::from(u16::try_from(timer).unwrap_or(u16::MAX))
        };
        let mut events = [EpollEvent::empty(); 8];
        // An interrupted or failed wait is a short sleep; the worker checks everything afterwards anyway.
        let n = self.epoll.wait(&mut events, longest).unwrap_or(0);
        for event in &events[..n] {
            if event.data() == WAKER {
                self.waker.clear();
            } else if event.events().contains(EpollFlags::EPOLLERR) {
                self.handle_errors();
            }
        }
    }
}
