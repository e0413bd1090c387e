//! How an idle worker sleeps: on file descriptors of its ports, with a growing pause for ports that have
//! none. While frames wait to be sent, it sleeps for a short time, in which receivers can make room. Without
//! events it looks at everything from time to time, less and less often.

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
/// First and longest sleep on descriptors, in milliseconds: bounds in case the kernel loses an event, or a
/// port had no memory for packets and must be asked again.
const BOUND_MIN: u32 = 100;
const BOUND_MAX: u32 = 1000;
/// What an event of a descriptor is about. Others are about the watched port with this number.
const WAKER: u64 = u64::MAX;
/// Events that a wait takes. Behind more, all ports are looked at.
const EVENTS: usize = 8;

/// The descriptors on which one worker sleeps.
pub(crate) struct Sleeper {
    waker: Arc<Waker>,
    epoll: Epoll,
    /// Ports that are watched, with the number of the worker's receive queue; holding them keeps their
    /// descriptors valid.
    watched: Vec<(Arc<OpenPort>, u16)>,
    /// Some port has no descriptor and must be polled.
    polls: bool,
    /// The next pause, and the longest next sleep in milliseconds. They grow while nothing comes.
    pause: Duration,
    bound: u32,
}

impl Sleeper {
    pub fn new(waker: Arc<Waker>) -> std::io::Result<Sleeper> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(waker.fd(), EpollEvent::new(EpollFlags::EPOLLIN, WAKER))?;
        Ok(Sleeper { waker, epoll, watched: Vec::new(), polls: false, pause: PAUSE_MIN, bound: BOUND_MIN })
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
            // What waits have shown before is forgotten.
            port.note_wait(queue, true, false);
            let number = self.watched.len() as u64;
            let is_watched = port.device().rx_fd(queue).is_some_and(|fd| self.add(fd, number));
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

    fn add(&self, fd: BorrowedFd<'_>, number: u64) -> bool {
        self.epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, number)).is_ok()
    }

    /// Tells the ports which of them have frames. Their descriptors stay readable until the frames are
    /// received, so no frame is lost that comes between a wait and this.
    fn note_wait(&self, events: &[EpollEvent], waits_again: bool) {
        for (number, (port, queue)) in self.watched.iter().enumerate() {
            let is_readable =
                events.len() == EVENTS || events.iter().any(|event| event.data() == number as u64);
            port.note_wait(*queue, is_readable, waits_again);
        }
    }

    /// Makes the next sleep short again, since traffic came.
    pub fn reset(&mut self) {
        (self.pause, self.bound) = (PAUSE_MIN, BOUND_MIN);
    }

    /// Whether frames wait to be sent on a port.
    pub fn has_backlog(&self) -> bool {
        self.watched.iter().any(|(port, _)| port.device().has_backlog())
    }

    /// Sleeps until a watched descriptor or the waker is readable, the pause is over, or `timer` milliseconds
    /// have passed. `again`: the worker sleeps again as soon as a walk finds nothing.
    pub fn sleep(&mut self, timer: Option<u32>, again: bool) {
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
            let longest = timer.map_or(self.bound, |timer| timer.min(self.bound));
            self.bound = (self.bound * 2).min(BOUND_MAX);
            EpollTimeout::from(longest as u16)
        };
        let mut events = [EpollEvent::empty(); EVENTS];
        // An interrupted or failed wait is a short sleep, which shows nothing.
        let Ok(n) = self.epoll.wait(&mut events, longest) else { return };
        self.note_wait(&events[..n], again);
        for event in &events[..n] {
            if event.data() == WAKER {
                self.waker.clear();
            } else if event.events().contains(EpollFlags::EPOLLERR) {
                self.handle_errors();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn sleeps_grow_while_nothing_comes() {
        let mut sleeper = Sleeper::new(Arc::new(Waker::new().expect("an eventfd"))).expect("an epoll");
        let bounds: Vec<u32> = (0..6)
            .map(|_| {
                sleeper.sleep(Some(1), true);
                sleeper.bound
            })
            .collect();
        assert_eq!(bounds, [200, 400, 800, 1000, 1000, 1000]);
        sleeper.reset();
        assert_eq!(sleeper.bound, BOUND_MIN);
    }

    #[test]
    fn a_wake_up_ends_one_sleep() {
        let waker = Arc::new(Waker::new().expect("an eventfd"));
        let mut sleeper = Sleeper::new(waker.clone()).expect("an epoll");
        sleeper.bound = u32::from(u16::MAX);
        waker.wake();
        waker.wake();
        let begin = Instant::now();
        sleeper.sleep(None, true);
        assert!(begin.elapsed() < Duration::from_secs(30));
        assert_eq!(sleeper.epoll.wait(&mut [EpollEvent::empty(); 8], EpollTimeout::ZERO), Ok(0), "forgotten");
    }
}
