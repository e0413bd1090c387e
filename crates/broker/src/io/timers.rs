//! Deadlines of connections.
//!
//! Theory of operation. Deadlines mostly move into the future, with each byte. So a connection has an entry
//! in a heap with the deadline that it had once. When that time comes, the entry is put in again for the
//! deadline that the connection has now. Only a deadline before its entry needs another entry. The one
//! behind it counts again when the time of the earlier one has come, so that deadlines that move to and fro
//! need two. What a connection has put in besides is dropped when its time comes.

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
    /// Time of the earliest entry.
    entry: u64,
    /// Time of the entry that was the earliest one before.
    later: u64,
}

impl Timer {
    pub fn new(uid: u64) -> Timer {
        Timer { uid, deadline: u64::MAX, entry: u64::MAX, later: u64::MAX }
    }
}

/// When to look at a deadline, whose it is, and which connection is meant.
type Entry = (u64, Owner, u64);

/// All deadlines.
#[derive(Debug, Default)]
pub(crate) struct Timers(BinaryHeap<Reverse<Entry>>);

impl Timers {
    /// Sets the deadline of a connection.
    pub fn set(&mut self, owner: Owner, timer: &mut Timer, deadline: u64) {
        timer.deadline = deadline;
        if deadline < timer.entry {
            (timer.entry, timer.later) = (deadline, timer.entry);
            self.0.push(Reverse((deadline, owner, timer.uid)));
        }
    }

    /// Returns the time of the first entry.
    pub fn next(&self) -> Option<u64> {
        self.0.peek().map(|Reverse((at, ..))| *at)
    }

    /// Takes an entry whose time has come, for [`Timers::is_due`].
    pub fn pop(&mut self, now: u64) -> Option<Entry> {
        self.0.peek().filter(|Reverse((at, ..))| *at <= now)?;
        self.0.pop().map(|Reverse(entry)| entry)
    }

    /// Whether the deadline has come for a connection in the place of an entry.
    pub fn is_due(&mut self, (at, owner, uid): Entry, timer: &mut Timer, now: u64) -> bool {
        if timer.uid != uid || timer.entry != at {
            return false;
        }
        (timer.entry, timer.later) = (timer.later, u64::MAX);
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

    /// A deadline that moves to and fro, as that of a connection with a request a second does for hours.
    #[test]
    fn entries_do_not_pile_up() {
        for step in [1, 5, 7, 60] {
            let (mut timers, mut timer, owner) = (Timers::default(), Timer::new(7), Owner::Client(3));
            for now in (0..1000).map(|round| round * step) {
                while let Some(entry) = timers.pop(now) {
                    assert!(!timers.is_due(entry, &mut timer, now) || step == 60);
                }
                timers.set(owner, &mut timer, now + 5);
                timers.set(owner, &mut timer, now + 60);
                assert!(timers.0.len() <= 2, "{timers:?}");
            }
        }
    }

    /// Every deadline is noticed in time, whatever came before it.
    #[test]
    fn no_deadline_is_missed() {
        let (mut timers, mut timer, owner) = (Timers::default(), Timer::new(7), Owner::Client(3));
        let (mut deadline, mut state) = (u64::MAX, 1_u64);
        for now in 0..20_000 {
            let mut is_due = false;
            while let Some(entry) = timers.pop(now) {
                is_due |= timers.is_due(entry, &mut timer, now);
            }
            assert_eq!(is_due, deadline <= now, "at {now}");
            // A linear congruential generator (Knuth, MMIX).
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if is_due || state >> 62 == 0 {
                deadline = now + 1 + (state >> 32) % [3, 30, 300][(state >> 40) as usize % 3];
                timers.set(owner, &mut timer, deadline);
            }
        }
    }
}
