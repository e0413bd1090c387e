//! The lists of a [`FragmentTable`]: hash chains, age, free entries and tickets.

use std::hash::BuildHasher;

use super::datagram::DatagramKey;
use super::{DatagramState, Entry, FragmentTable, NONE, Queue, Ticket};

impl<T: Copy> FragmentTable<T> {
    pub(super) fn is_over(&self, at: u32, now: u32, timeout: u32) -> bool {
        now.wrapping_sub(self.entries[at as usize].since) >= timeout
    }

    fn chain(&self, datagram: &DatagramKey) -> usize {
        self.seed.hash_one(datagram) as usize & (self.heads.len() - 1)
    }

    pub(super) fn find(&self, datagram: &DatagramKey) -> Option<u32> {
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
    pub(super) fn insert(&mut self, datagram: &DatagramKey) -> Option<u32> {
        if self.free == NONE && self.oldest != NONE {
            self.remove(self.oldest);
        }
        let (at, chain) = (self.free, self.chain(datagram));
        let entry = self.entries.get_mut(at as usize)?;
        self.free = entry.next;
        (entry.datagram, entry.target, entry.next) = (*datagram, None, self.heads[chain]);
        entry.state = DatagramState::Incomplete;
        self.heads[chain] = at;
        self.len += 1;
        Some(at)
    }

    /// Removes a datagram from all lists.
    pub(super) fn remove(&mut self, at: u32) {
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
    pub(super) fn unlink(&mut self, at: u32) {
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

    pub(super) fn link_newest(&mut self, at: u32) {
        self.entries[at as usize].older = self.newest;
        match self.entries.get_mut(self.newest as usize) {
            Some(entry) => entry.newer = at,
            None => self.oldest = at,
        }
        self.newest = at;
    }

    /// Appends the next free ticket to the waiting list of a datagram. A free ticket must exist.
    pub(super) fn wait(&mut self, at: u32) -> Ticket {
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
    pub(super) fn release(&mut self, at: u32) {
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
