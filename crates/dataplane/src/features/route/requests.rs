//! What workers want the kernel to find out: Ethernet addresses of neighbours.
//!
//! Theory of operation. A worker that has a packet for a neighbour without an address puts the neighbour into a bounded
//! queue that nobody locks. Whoever takes them out waits on a descriptor, which becomes readable when the queue was empty
//! before; a full queue loses wants, which are repeated as long as there are packets. Each worker asks for a neighbour at most
//! once a second, which a small table of its own sees to.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use crossbeam_queue::ArrayQueue;
use nix::sys::eventfd::{EfdFlags, EventFd};

/// Wants that fit the queue.
const MOST: usize = 1024;

/// A neighbour whose Ethernet address the kernel is to find out, or to see whether it is still right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Want {
    /// The kernel's index of the interface behind which it is.
    pub interface: u32,
    /// Its address.
    pub address: IpAddr,
}

/// The queue of wants; see the module's theory of operation.
pub struct Wants {
    queue: ArrayQueue<Want>,
    event: EventFd,
}

impl Wants {
    pub(crate) fn new() -> std::io::Result<Wants> {
        let event = EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        Ok(Wants { queue: ArrayQueue::new(MOST), event })
    }

    /// Becomes readable when there are wants; [`Wants::take`] makes it silent again.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// All that is wanted, in the order in which it was asked for.
    pub fn take(&self) -> Vec<Want> {
        // Before the queue is emptied: what comes afterwards makes the descriptor readable again. Nothing to read is no error.
        let _ = self.event.read();
        std::iter::from_fn(|| self.queue.pop()).take(MOST).collect()
    }

    /// Adds a want; false if there is no room.
    pub(crate) fn push(&self, want: Want) -> bool {
        let pushed = self.queue.push(want).is_ok();
        // Told each time: whether another thread has just found the queue empty cannot be known. Wants are rare, at most one
        // a second for each neighbour. A full counter means that it is readable already.
        let _ = self.event.write(1);
        pushed
    }
}

/// Places of [`Asked`].
const PLACES: usize = 256;
/// How long a want is not repeated, in milliseconds.
const PAUSE: u32 = 1_000;

/// What a worker has asked for of late. Two neighbours may share a place, and drive each other out of it: then they are asked
/// for more often, no harm.
pub(crate) struct Asked(Box<[Option<(Want, u32)>; PLACES]>);

impl Default for Asked {
    fn default() -> Self {
        Asked(Box::new([None; PLACES]))
    }
}

impl Asked {
    /// Whether to ask now, in milliseconds of a clock that wraps; if so, it is noted.
    pub fn may(&mut self, want: Want, now: u32) -> bool {
        let place = &mut self.0[place(&want)];
        let again = !matches!(place, Some((other, at)) if *other == want && now.wrapping_sub(*at) < PAUSE);
        if again {
            *place = Some((want, now));
        }
        again
    }
}

fn place(want: &Want) -> usize {
    let address = match want.address {
        IpAddr::V4(address) => u64::from(u32::from(address)),
        IpAddr::V6(address) => {
            let bits = u128::from(address);
            (bits >> 64) as u64 ^ bits as u64
        }
    };
    let hash = (address ^ u64::from(want.interface) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> 56) as usize % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn want(last: u8) -> Want {
        Want { interface: 3, address: [10, 0, 0, last].into() }
    }

    #[test]
    fn a_neighbour_is_asked_for_once_a_second() {
        let mut asked = Asked::default();
        let start = u32::MAX - 100;
        assert!(asked.may(want(1), start));
        assert!(!asked.may(want(1), start.wrapping_add(PAUSE - 1)), "the clock wraps");
        assert!(asked.may(want(1), start.wrapping_add(PAUSE)));
        assert!(asked.may(Want { interface: 4, ..want(1) }, start));
    }

    #[test]
    fn wants_are_taken_in_order_and_bounded() {
        let wants = Wants::new().expect("an eventfd");
        assert!(wants.take().is_empty());
        assert!(wants.push(want(1)) && wants.push(want(2)));
        let mut readable = [nix::poll::PollFd::new(wants.fd(), nix::poll::PollFlags::POLLIN)];
        assert_eq!(nix::poll::poll(&mut readable, 0u8).expect("poll"), 1);
        assert_eq!(wants.take(), [want(1), want(2)]);
        assert_eq!(nix::poll::poll(&mut readable, 0u8).expect("poll"), 0);
        let pushed = (0..2 * MOST).filter(|_| wants.push(want(1))).count();
        assert_eq!((pushed, wants.take().len()), (MOST, MOST));
    }
}
