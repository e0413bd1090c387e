//! Fragments: finds the session of later fragments.
//!
//! # Theory of operation
//!
//! Only the first fragment of a datagram has ports, which identify the session. The table stores the caller's
//! target `T` of the first fragment, by source, destination, identification and, over IPv4, protocol (RFC
//! 791, 2.3; RFC 8200, 4.5). Later fragments follow that target. A later fragment that comes before the first
//! one waits: it gets a [`Ticket`], and the caller keeps its buffer under that number. When the first
//! fragment comes, waiting fragments are released in order. When it does not come in time, they are released
//! without a target. [`FragmentTable::pop_released`] returns both.
//!
//! A fragment that overlaps another one could rewrite headers that rules have approved (RFC 1858, RFC 3128).
//! So the table remembers which parts of a datagram have come ([`coverage`]). After an overlap, the whole
//! datagram is refused until it is forgotten (RFC 5722, 4), including what waits for it. Exact duplicates
//! alone are refused (RFC 8200, 4.5). When a datagram is complete, further fragments with its identification
//! are those of a new one. A waiting fragment counts when it is released and comes again.
//!
//! All resources are bounded, and nothing is allocated after [`FragmentTable::new`]. There are limits for
//! datagrams (the oldest makes room for a new one), for waiting fragments in total, and for waiting fragments
//! of one datagram. Fragments beyond the limits are refused.
//!
//! Datagrams lie in an array and on index lists: chains of a hash table with a random seed, against attacks
//! on one chain; a list by age; a free list. Tickets lie in another array. Each ticket is on one list: free,
//! waiting, or released.

mod coverage;
mod datagram;
mod lists;

use std::hash::RandomState;

use coverage::{Addition, Coverage};
use datagram::DatagramKey;
pub use datagram::Fragment;

/// End of a list.
const NONE: u32 = u32::MAX;

/// Number under which the caller keeps a waiting fragment: below [`FragmentLimits::waiting`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub u32);

/// Limits of a [`FragmentTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentLimits {
    /// Maximum number of datagrams.
    pub datagrams: u32,
    /// Maximum number of waiting fragments in total.
    pub waiting: u32,
    /// Maximum number of waiting fragments of one datagram.
    pub per_datagram: u32,
}

/// What the caller does with a later fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentAction<T> {
    /// Send it to the target of the first fragment.
    Follow(T),
    /// Keep it under this ticket until it is released.
    Wait(Ticket),
    /// Drop it: too many fragments wait.
    Refused,
    /// Drop it: it overlaps another fragment, or belongs to a datagram of which some fragments do.
    Overlap,
}

/// A fragment that no longer waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReleasedFragment<T> {
    /// The ticket of the fragment. It is free again.
    pub ticket: Ticket,
    /// The target of the first fragment. None if that did not come in time or the datagram was evicted.
    pub target: Option<T>,
}

/// First and last ticket of a list.
#[derive(Clone, Copy, Debug)]
struct Queue {
    first: u32,
    last: u32,
}

impl Queue {
    const EMPTY: Queue = Queue { first: NONE, last: NONE };
}

/// What becomes of further fragments of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DatagramState {
    /// They belong to it.
    Incomplete,
    /// They belong to a new datagram with the same identification.
    Complete,
    /// They are refused.
    Overlapping,
}

#[derive(Clone, Debug)]
struct Entry<T> {
    datagram: DatagramKey,
    /// The target of the first fragment, if it has come.
    target: Option<T>,
    /// The parts that have followed the first fragment, and its own.
    coverage: Coverage,
    state: DatagramState,
    /// Time of the first fragment if it has come, otherwise of the earliest later fragment, in milliseconds.
    since: u32,
    /// Next entry in the hash chain or in the free list.
    next: u32,
    /// Neighbours in the list by age.
    older: u32,
    newer: u32,
    waiting: Queue,
    waiting_len: u32,
}

#[derive(Clone, Debug)]
struct Waiting<T> {
    next: u32,
    target: Option<T>,
}

/// The fragmented datagrams of a worker. See the module's theory of operation.
#[derive(Clone, Debug)]
pub struct FragmentTable<T> {
    seed: RandomState,
    /// First entry of each hash chain. The number of chains is a power of two.
    heads: Box<[u32]>,
    entries: Box<[Entry<T>]>,
    free: u32,
    oldest: u32,
    newest: u32,
    tickets: Box<[Waiting<T>]>,
    free_tickets: u32,
    released: Queue,
    per_datagram: u32,
    len: u32,
    waiting: u32,
}

impl<T: Copy> FragmentTable<T> {
    /// Creates a table and allocates all of its memory.
    pub fn new(limits: FragmentLimits) -> Self {
        let entry = |i: u32| Entry {
            datagram: DatagramKey::default(),
            target: None,
            coverage: Coverage::default(),
            state: DatagramState::Incomplete,
            since: 0,
            next: if i + 1 < limits.datagrams { i + 1 } else { NONE },
            older: NONE,
            newer: NONE,
            waiting: Queue::EMPTY,
            waiting_len: 0,
        };
        let ticket =
            |i: u32| Waiting { next: if i + 1 < limits.waiting { i + 1 } else { NONE }, target: None };
        let chains = (limits.datagrams.max(1) as usize).next_power_of_two();
        FragmentTable {
            seed: RandomState::new(),
            heads: vec![NONE; chains].into(),
            entries: (0..limits.datagrams).map(entry).collect(),
            free: if limits.datagrams > 0 { 0 } else { NONE },
            oldest: NONE,
            newest: NONE,
            tickets: (0..limits.waiting).map(ticket).collect(),
            free_tickets: if limits.waiting > 0 { 0 } else { NONE },
            released: Queue::EMPTY,
            per_datagram: limits.per_datagram,
            len: 0,
            waiting: 0,
        }
    }

    /// Number of datagrams.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether the table has no datagrams.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of tickets in use: waiting fragments, and released fragments that
    /// [`FragmentTable::pop_released`] has not returned.
    pub fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Checks a first fragment before it is processed. `timeout`: as for [`FragmentTable::resolve_later`].
    /// Returns `false` if it must be dropped: another first fragment of the datagram has come, or fragments
    /// overlap.
    pub fn admits_first(&mut self, fragment: &Fragment, now: u32, timeout: u32) -> bool {
        let Some(at) = self.find_current(fragment, now, timeout) else { return fragment.extent.is_some() };
        let Entry { target, state, mut coverage, .. } = self.entries[at as usize];
        match (state, fragment.extent) {
            (DatagramState::Complete, Some(_)) => true,
            (DatagramState::Incomplete, Some(_)) if target.is_none() => true,
            (DatagramState::Incomplete, Some(extent)) if coverage.add(extent) == Addition::Duplicate => false,
            _ => {
                self.refuse(at);
                false
            }
        }
    }

    /// Records the target of a first fragment. Releases the fragments that waited for it.
    pub fn record_first(&mut self, fragment: &Fragment, target: T, now: u32) {
        let datagram = &fragment.datagram;
        let Some(at) = self.find(datagram).or_else(|| self.insert(datagram)) else { return };
        self.unlink(at);
        let entry = &mut self.entries[at as usize];
        if entry.target.is_none() || entry.state != DatagramState::Incomplete {
            (entry.coverage, entry.state) = (Coverage::default(), DatagramState::Incomplete);
        }
        if let Some(extent) = fragment.extent {
            // A duplicate if another worker has given the fragment back.
            entry.coverage.add(extent);
        }
        (entry.target, entry.since) = (Some(target), now);
        self.link_newest(at);
        self.release(at);
    }

    /// Decides about a later fragment. `timeout`: how long a first fragment is remembered or awaited, in
    /// milliseconds. `is_checked`: another worker has checked the fragment, whose table has all fragments of
    /// the datagram.
    pub fn resolve_later(
        &mut self,
        fragment: &Fragment,
        is_checked: bool,
        now: u32,
        timeout: u32,
    ) -> FragmentAction<T> {
        let known = self.find_current(fragment, now, timeout);
        let Some(extent) = fragment.extent else {
            known.into_iter().for_each(|at| self.refuse(at));
            return FragmentAction::Overlap;
        };
        if let Some(at) = known {
            let Entry { target, state, coverage, .. } = &mut self.entries[at as usize];
            match (*state, *target) {
                (DatagramState::Overlapping, _) => return FragmentAction::Overlap,
                (_, Some(target)) if is_checked => return FragmentAction::Follow(target),
                (DatagramState::Incomplete, Some(target)) => match coverage.add(extent) {
                    Addition::Part => return FragmentAction::Follow(target),
                    Addition::Complete => {
                        *state = DatagramState::Complete;
                        return FragmentAction::Follow(target);
                    }
                    Addition::Duplicate => return FragmentAction::Overlap,
                    Addition::Overlap => {
                        self.refuse(at);
                        return FragmentAction::Overlap;
                    }
                },
                (DatagramState::Complete, _) => self.restart(at, now),
                (DatagramState::Incomplete, None) => {}
            }
        }
        self.hold(known, fragment, now)
    }

    /// Keeps a later fragment until the first one comes.
    fn hold(&mut self, known: Option<u32>, fragment: &Fragment, now: u32) -> FragmentAction<T> {
        let full = known.is_some_and(|at| self.entries[at as usize].waiting_len >= self.per_datagram);
        if full || self.free_tickets == NONE || self.per_datagram == 0 {
            return FragmentAction::Refused;
        }
        let Some(at) = known.or_else(|| {
            let at = self.insert(&fragment.datagram)?;
            self.entries[at as usize].since = now;
            self.link_newest(at);
            Some(at)
        }) else {
            return FragmentAction::Refused;
        };
        FragmentAction::Wait(self.wait(at))
    }

    /// Finds the datagram of a fragment. Removes it if it has expired.
    fn find_current(&mut self, fragment: &Fragment, now: u32, timeout: u32) -> Option<u32> {
        let at = self.find(&fragment.datagram)?;
        if self.is_over(at, now, timeout) {
            self.remove(at);
            return None;
        }
        Some(at)
    }

    /// Refuses a datagram from now on. Its waiting fragments are released without a target.
    fn refuse(&mut self, at: u32) {
        let entry = &mut self.entries[at as usize];
        (entry.target, entry.state) = (None, DatagramState::Overlapping);
        self.release(at);
    }

    /// Forgets the first fragment of a complete datagram: a new one with its identification has begun.
    fn restart(&mut self, at: u32, now: u32) {
        self.unlink(at);
        let entry = &mut self.entries[at as usize];
        (entry.target, entry.state, entry.since) = (None, DatagramState::Incomplete, now);
        self.link_newest(at);
    }

    /// The target of the first fragment of a datagram, if it has come. The entry may have expired. Changes
    /// nothing.
    pub fn target(&self, fragment: &Fragment) -> Option<T> {
        self.entries.get(self.find(&fragment.datagram)? as usize)?.target
    }

    /// Removes expired datagrams. Their waiting fragments are released without a target.
    pub fn expire(&mut self, now: u32, timeout: u32) {
        while self.oldest != NONE && self.is_over(self.oldest, now, timeout) {
            self.remove(self.oldest);
        }
    }

    /// Removes all datagrams. Waiting fragments are released without a target.
    pub fn clear(&mut self) {
        while self.oldest != NONE {
            self.remove(self.oldest);
        }
    }

    /// Returns the next released fragment.
    pub fn pop_released(&mut self) -> Option<ReleasedFragment<T>> {
        let at = self.released.first;
        let ticket = self.tickets.get_mut(at as usize)?;
        self.released.first = ticket.next;
        if self.released.first == NONE {
            self.released = Queue::EMPTY;
        }
        ticket.next = self.free_tickets;
        self.free_tickets = at;
        self.waiting -= 1;
        Some(ReleasedFragment { ticket: Ticket(at), target: ticket.target })
    }
}

#[cfg(test)]
mod tests;
