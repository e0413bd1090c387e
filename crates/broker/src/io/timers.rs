//! Deadlines of connections.
//!
//! Theory of operation. Deadlines mostly move into the future, with each byte. So a connection has an entry
//! in a heap with the deadline that it had once. When that time comes, the entry is put in again for the
//! deadline that the connection has now. Only a deadline before its entry needs another entry.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What a deadline belongs to, by its place in the slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    Client(usize),
    Server(usize),
}

/// The deadline of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timer {
    /// Distinguishes the connection from others in the same place.
    uid: u64,
    /// Milliseconds of the broker's clock.
    deadline: u64,
    /// The earliest entry.
    entry: u64,
}

impl Timer {
    pub fn new(uid: u64) -> Timer {
        Timer { uid, deadline: u64::MAX, entry: u64::MAX }
    }
}

/// All deadlines.
#[derive(Debug, Default)]
pub(crate) struct Timers(BinaryHeap<Reverse<(u64, Owner, u64)>>);

impl Timers {
    /// Sets the deadline of a connection.
    pub fn set(&mut self, owner: Owner, timer: &mut Timer, deadline: u64) {
        timer.deadline = deadline;
        if deadline < timer.entry {
            timer.entry = deadline;
            self.0.push(Reverse((deadline, owner, timer.uid)));
        }
    }

    /// Returns the time of the first entry.
    pub fn next(&self) -> Option<u64> {
        self.0.peek().map(|Reverse((at, ..))| *at)
    }

    /// Takes an entry whose time has come. Returns its owner, for [`Timers::is_due`].
    pub fn pop(&mut self, now: u64) -> Option<(Owner, u64)> {
        self.0.peek().filter(|Reverse((at, ..))| *at <= now)?;
        self.0.pop().map(|Reverse((_, owner, uid))| (owner, uid))
    }

    /// Whether the deadline has come for a connection in the place of an entry.
    pub fn is_due(&mut self, (owner, uid): (Owner, u64), timer: &mut Timer, now: u64) -> bool {
        if timer.uid != uid {
            return false;
        }
        timer.entry = u64::MAX;
        if timer.deadline <= now {
            return true;
        }
        if timer.deadline != u64::MAX {
            self.set(owner, timer, timer.deadline);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_follows_its_deadline() {
        let (mut timers, mut timer, owner) = (Timers::default(), Timer::new(7), Owner::Client(3));
        timers.set(owner, &mut timer, 100);
        timers.set(owner, &mut timer, 150);
        assert_eq!((timers.next(), timers.pop(99)), (Some(100), None));
        let entry = timers.pop(100).unwrap();
        assert!(!timers.is_due(entry, &mut timer, 100));
        timers.set(owner, &mut timer, 120);
        assert_eq!(timers.next(), Some(120));
        let entry = timers.pop(120).unwrap();
        assert!(timers.is_due(entry, &mut timer, 120));
        assert!(!timers.is_due(entry, &mut Timer::new(8), 120), "another connection in its place");
        let late = timers.pop(150).unwrap();
        timers.set(owner, &mut timer, 500);
        assert!(!timers.is_due(late, &mut timer, 150));
    }
}
