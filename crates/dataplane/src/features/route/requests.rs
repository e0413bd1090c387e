//! Requests to the kernel: neighbours whose Ethernet addresses workers need.
//!
//! Theory of operation. A worker that has a packet for a neighbour without an address puts a request into a
//! bounded lock-free queue. The control side waits on a descriptor that becomes readable with each request. A
//! full queue loses requests; they are repeated while there are packets. Each worker repeats a request at
//! most once per second, which its [`RequestLog`] ensures.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use crossbeam_queue::ArrayQueue;
use nix::sys::eventfd::{EfdFlags, EventFd};

/// Requests that fit the queue.
const MOST: usize = 1024;

/// A neighbour whose Ethernet address the kernel is to resolve or to confirm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NeighborRequest {
    /// The kernel's index of the interface to the neighbour.
    pub interface: u32,
    /// Its address.
    pub address: IpAddr,
}

/// The queue of requests.
pub struct NeighborRequests {
    queue: ArrayQueue<NeighborRequest>,
    event: EventFd,
}

impl NeighborRequests {
    pub(crate) fn new() -> std::io::Result<NeighborRequests> {
        let event = EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        Ok(NeighborRequests { queue: ArrayQueue::new(MOST), event })
    }

    /// Is readable while there are requests; [`NeighborRequests::take`] clears it.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Takes all requests, the oldest first.
    pub fn take(&self) -> Vec<NeighborRequest> {
        // Before the queue is emptied: later requests make the descriptor readable again. Nothing to read is
        // no error.
        let _ = self.event.read();
        std::iter::from_fn(|| self.queue.pop()).take(MOST).collect()
    }

    /// Adds a request. Returns false if there is no room.
    pub(crate) fn push(&self, request: NeighborRequest) -> bool {
        let pushed = self.queue.push(request).is_ok();
        // Signalled each time, since another thread may just have found the queue empty. Requests are rare:
        // at most one per second for each neighbour. A full counter means that the descriptor is readable
        // already.
        let _ = self.event.write(1);
        pushed
    }
}

/// Entries of [`RequestLog`].
const ENTRIES: usize = 256;
/// How long a request is not repeated, in milliseconds.
const PAUSE: u32 = 1_000;

/// Recent requests of one worker. Two neighbours may share an entry; then their requests are repeated more
/// often.
pub(crate) struct RequestLog(Box<[Option<(NeighborRequest, u32)>; ENTRIES]>);

impl Default for RequestLog {
    fn default() -> Self {
        RequestLog(Box::new([None; ENTRIES]))
    }
}

impl RequestLog {
    /// Whether a request is to be sent now; if so, it is recorded. `now`: milliseconds of a clock that wraps.
    pub fn is_due(&mut self, request: NeighborRequest, now: u32) -> bool {
        let entry = &mut self.0[entry_of(&request)];
        let is_due =
            !matches!(entry, Some((other, at)) if *other == request && now.wrapping_sub(*at) < PAUSE);
        if is_due {
            *entry = Some((request, now));
        }
        is_due
    }
}

fn entry_of(request: &NeighborRequest) -> usize {
    let address = match request.address {
        IpAddr::V4(address) => u64::from(u32::from(address)),
        IpAddr::V6(address) => {
            let bits = u128::from(address);
            (bits >> 64) as u64 ^ bits as u64
        }
    };
    let hash = (address ^ u64::from(request.interface) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> 56) as usize % ENTRIES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(last: u8) -> NeighborRequest {
        NeighborRequest { interface: 3, address: [10, 0, 0, last].into() }
    }

    #[test]
    fn a_neighbour_is_requested_once_per_second() {
        let mut log = RequestLog::default();
        let start = u32::MAX - 100;
        assert!(log.is_due(request(1), start));
        assert!(!log.is_due(request(1), start.wrapping_add(PAUSE - 1)), "the clock wraps");
        assert!(log.is_due(request(1), start.wrapping_add(PAUSE)));
        assert!(log.is_due(NeighborRequest { interface: 4, ..request(1) }, start));
    }

    #[test]
    fn requests_are_taken_in_order_and_bounded() {
        let requests = NeighborRequests::new().expect("an eventfd");
        assert!(requests.take().is_empty());
        assert!(requests.push(request(1)) && requests.push(request(2)));
        let mut readable = [nix::poll::PollFd::new(requests.fd(), nix::poll::PollFlags::POLLIN)];
        assert_eq!(nix::poll::poll(&mut readable, 0u8).expect("poll"), 1);
        assert_eq!(requests.take(), [request(1), request(2)]);
        assert_eq!(nix::poll::poll(&mut readable, 0u8).expect("poll"), 0);
        let pushed = (0..2 * MOST).filter(|_| requests.push(request(1))).count();
        assert_eq!((pushed, requests.take().len()), (MOST, MOST));
    }
}
