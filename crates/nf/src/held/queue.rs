//! The held packets of a session, as the function that holds them sees them.

use mmb_flow::Direction;
use mmb_packet::DropReason;

use super::list::QUEUE;
use super::{HeldPackets, HeldPlace};

/// The packets of one session and direction that a function holds, in order.
#[derive(Debug)]
pub struct HeldQueue<'a> {
    pub(crate) held: &'a mut HeldPackets,
    pub(crate) place: HeldPlace,
    pub(crate) direction: Direction,
    /// Released packets go on behind the packet that is being processed.
    pub(crate) is_behind: bool,
}

impl HeldQueue<'_> {
    /// Returns the queue of the other direction of the session.
    pub fn opposite(mut self) -> Self {
        self.direction = self.direction.opposite();
        self
    }

    /// Lets packets that are released go on behind the packet that is being processed, instead of in front of
    /// it.
    pub fn behind_packet(mut self) -> Self {
        self.is_behind = true;
        self
    }

    /// Returns the number of held packets.
    pub fn len(&self) -> usize {
        let queue = self.held.queues.get(&self.place);
        queue.map_or(0, |queue| queue.held[self.direction as usize].len as usize)
    }

    /// Whether no packet is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the limits allow to hold another packet of the session.
    pub fn has_room(&self) -> bool {
        let of_session = self.held.queues.get(&self.place).map_or(0, super::Queue::len);
        of_session < self.held.limits.session && self.held.len() < self.held.limits.worker as usize
    }

    /// Returns the order of the first held packet: see [`crate::Context::hold_at`].
    pub fn first_order(&self) -> Option<u32> {
        let list = &self.held.queues.get(&self.place)?.held[self.direction as usize];
        list.first(&self.held.entries).map(|entry| entry.order)
    }

    /// Releases all packets. Returns how many.
    pub fn release(&mut self) -> usize {
        self.release_first(usize::MAX)
    }

    /// Releases the first `n` packets, or all. Returns how many.
    pub fn release_first(&mut self, n: usize) -> usize {
        let mut released = 0;
        while released < n && self.release_one() {
            released += 1;
        }
        released
    }

    /// Releases the packets whose order is before this one, modulo 2^32. Returns how many.
    pub fn release_before(&mut self, order: u32) -> usize {
        let mut released = 0;
        while self.first_order().is_some_and(|first| (first.wrapping_sub(order) as i32) < 0)
            && self.release_one()
        {
            released += 1;
        }
        released
    }

    fn release_one(&mut self) -> bool {
        let HeldQueue { held, place, direction, is_behind } = self;
        let Some(ticket) = held.pop_held(*place, *direction) else { return false };
        match is_behind {
            true => held.behind.push(&mut held.entries, QUEUE, ticket),
            false => held.add_pending(*place, *direction, ticket),
        }
        true
    }

    /// Drops all packets. Returns how many.
    pub fn drop_all(&mut self, reason: DropReason) -> usize {
        self.drop_first(usize::MAX, reason)
    }

    /// Drops the first `n` packets, or all. Returns how many.
    pub fn drop_first(&mut self, n: usize, reason: DropReason) -> usize {
        let mut dropped = 0;
        while dropped < n
            && let Some(ticket) = self.held.pop_held(self.place, self.direction)
        {
            self.held.drop_later(ticket, reason);
            dropped += 1;
        }
        self.held.remove_empty(self.place);
        dropped
    }
}
