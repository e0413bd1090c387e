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
//! All resources are bounded, and nothing is allocated after [`FragmentTable::new`]. There are limits for
//! datagrams (the oldest makes room for a new one), for waiting fragments in total, and for waiting fragments
//! of one datagram. Fragments beyond the limits are refused.
//!
//! Datagrams lie in an array and on index lists: chains of a hash table with a random seed, against attacks
//! on one chain; a list by age; a free list. Tickets lie in another array. Each ticket is on one list: free,
//! waiting, or released.

use std::hash::{BuildHasher, RandomState};

use mmb_packet::{Kind, Meta, flags};

/// End of a list.
const NONE: u32 = u32::MAX;

/// What identifies a datagram: the fields that its fragments share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DatagramKey {
    source: [u8; 16],
    destination: [u8; 16],
    id: [u8; 4],
    /// IP version, and over IPv4 the protocol.
    version: u8,
    proto: u8,
}

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

#[derive(Clone, Debug)]
struct Entry<T> {
    datagram: DatagramKey,
    /// The target of the first fragment, if it has come.
    target: Option<T>,
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

impl DatagramKey {
    /// Returns the datagram of a fragment; none if the packet is not a fragment.
    pub fn of(head: &[u8], meta: &Meta) -> Option<DatagramKey> {
        if meta.flags & flags::FRAGMENT == 0 {
            return None;
        }
        let ip = head.get(usize::from(meta.l3_off)..)?;
        let mut datagram = DatagramKey { version: meta.kind.l3(), ..DatagramKey::default() };
        if meta.kind.l3() == Kind::IP4 {
            datagram.source[..4].copy_from_slice(ip.get(12..16)?);
            datagram.destination[..4].copy_from_slice(ip.get(16..20)?);
            datagram.id[..2].copy_from_slice(ip.get(4..6)?);
            datagram.proto = *ip.get(9)?;
        } else {
            datagram.source.copy_from_slice(ip.get(8..24)?);
            datagram.destination.copy_from_slice(ip.get(24..40)?);
            datagram.id = *identification6(ip)?;
        }
        Some(datagram)
    }
}

/// Numbers of IPv6 extension headers.
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
/// Bytes of the fixed IPv6 header.
const FIXED: usize = 40;

/// The identification in the fragment header of a parsed IPv6 packet. Each step of the walk advances.
fn identification6(ip: &[u8]) -> Option<&[u8; 4]> {
    let (mut next, mut at) = (*ip.get(6)?, FIXED);
    loop {
        let header: &[u8; 8] = ip.get(at..)?.first_chunk()?;
        let length = usize::from(header[1]);
        at += match next {
            FRAGMENT => return header.last_chunk(),
            AUTHENTICATION => (length + 2) * 4,
            _ => (length + 1) * 8,
        };
        next = header[0];
    }
}

impl<T: Copy> FragmentTable<T> {
    /// Creates a table and allocates all of its memory.
    pub fn new(limits: FragmentLimits) -> Self {
        let entry = |i: u32| Entry {
            datagram: DatagramKey::default(),
            target: None,
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

    /// Records the target of a first fragment. Releases the fragments that waited for it.
    pub fn record_first(&mut self, datagram: &DatagramKey, target: T, now: u32) {
        let Some(at) = self.find(datagram).or_else(|| self.insert(datagram)) else { return };
        self.unlink(at);
        let entry = &mut self.entries[at as usize];
        (entry.target, entry.since) = (Some(target), now);
        self.link_newest(at);
        self.release(at);
    }

    /// Decides about a later fragment. `timeout`: how long a first fragment is remembered or awaited, in
    /// milliseconds.
    pub fn resolve_later(&mut self, datagram: &DatagramKey, now: u32, timeout: u32) -> FragmentAction<T> {
        let known = self.find(datagram).filter(|at| {
            let gone = self.is_over(*at, now, timeout);
            if gone {
                self.remove(*at);
            }
            !gone
        });
        if let Some(at) = known
            && let Some(target) = self.entries[at as usize].target
        {
            return FragmentAction::Follow(target);
        }
        let full = known.is_some_and(|at| self.entries[at as usize].waiting_len >= self.per_datagram);
        if full || self.free_tickets == NONE || self.per_datagram == 0 {
            return FragmentAction::Refused;
        }
        let Some(at) = known.or_else(|| {
            let at = self.insert(datagram)?;
            self.entries[at as usize].since = now;
            self.link_newest(at);
            Some(at)
        }) else {
            return FragmentAction::Refused;
        };
        FragmentAction::Wait(self.wait(at))
    }

    /// The target of the first fragment of a datagram, if it has come. The entry may have expired. Changes
    /// nothing.
    pub fn target(&self, datagram: &DatagramKey) -> Option<T> {
        self.entries.get(self.find(datagram)? as usize)?.target
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

    fn is_over(&self, at: u32, now: u32, timeout: u32) -> bool {
        now.wrapping_sub(self.entries[at as usize].since) >= timeout
    }

    fn chain(&self, datagram: &DatagramKey) -> usize {
        self.seed.hash_one(datagram) as usize & (self.heads.len() - 1)
    }

    fn find(&self, datagram: &DatagramKey) -> Option<u32> {
        let mut at = self.heads[self.chain(datagram)];
        while let Some(entry) = self.entries.get(at as usize) {
            if entry.datagram == *datagram {
                return Some(at);
            }
            at = entry.next;
        }
        None
    }

    /// Inserts a datagram into the hash table only. None if there is no room.
    fn insert(&mut self, datagram: &DatagramKey) -> Option<u32> {
        if self.free == NONE && self.oldest != NONE {
            self.remove(self.oldest);
        }
        let (at, chain) = (self.free, self.chain(datagram));
        let entry = self.entries.get_mut(at as usize)?;
        self.free = entry.next;
        (entry.datagram, entry.target, entry.next) = (*datagram, None, self.heads[chain]);
        self.heads[chain] = at;
        self.len += 1;
        Some(at)
    }

    /// Removes a datagram from all lists.
    fn remove(&mut self, at: u32) {
        self.entries[at as usize].target = None;
        self.release(at);
        self.unlink(at);
        let chain = self.chain(&self.entries[at as usize].datagram);
        let next = self.entries[at as usize].next;
        if self.heads[chain] == at {
            self.heads[chain] = next;
        } else {
            let mut before = self.heads[chain];
            while self.entries[before as usize].next != at {
                before = self.entries[before as usize].next;
            }
            self.entries[before as usize].next = next;
        }
        self.entries[at as usize].next = self.free;
        self.free = at;
        self.len -= 1;
    }

    /// Removes a datagram from the list by age, if it is there.
    fn unlink(&mut self, at: u32) {
        let Entry { older, newer, .. } = self.entries[at as usize];
        match self.entries.get_mut(older as usize) {
            Some(entry) => entry.newer = newer,
            None if self.oldest == at => self.oldest = newer,
            None => {}
        }
        match self.entries.get_mut(newer as usize) {
            Some(entry) => entry.older = older,
            None if self.newest == at => self.newest = older,
            None => {}
        }
        let entry = &mut self.entries[at as usize];
        (entry.older, entry.newer) = (NONE, NONE);
    }

    fn link_newest(&mut self, at: u32) {
        self.entries[at as usize].older = self.newest;
        match self.entries.get_mut(self.newest as usize) {
            Some(entry) => entry.newer = at,
            None => self.oldest = at,
        }
        self.newest = at;
    }

    /// Appends the next free ticket to the waiting list of a datagram. A free ticket must exist.
    fn wait(&mut self, at: u32) -> Ticket {
        let ticket = self.free_tickets;
        let slot = &mut self.tickets[ticket as usize];
        self.free_tickets = slot.next;
        (slot.next, slot.target) = (NONE, None);
        let Queue { first, last } = self.entries[at as usize].waiting;
        if last != NONE {
            self.tickets[last as usize].next = ticket;
        }
        let entry = &mut self.entries[at as usize];
        entry.waiting = Queue { first: if first == NONE { ticket } else { first }, last: ticket };
        entry.waiting_len += 1;
        self.waiting += 1;
        Ticket(ticket)
    }

    /// Moves the waiting fragments of a datagram to the end of the released list, with the target.
    fn release(&mut self, at: u32) {
        let entry = &mut self.entries[at as usize];
        let (Queue { first, last }, target) = (entry.waiting, entry.target);
        (entry.waiting, entry.waiting_len) = (Queue::EMPTY, 0);
        if first == NONE {
            return;
        }
        let mut ticket = first;
        while let Some(slot) = self.tickets.get_mut(ticket as usize) {
            slot.target = target;
            ticket = slot.next;
        }
        match self.tickets.get_mut(self.released.last as usize) {
            Some(slot) => slot.next = first,
            None => self.released.first = first,
        }
        self.released.last = last;
    }
}

#[cfg(test)]
mod tests;
