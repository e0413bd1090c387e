//! Packets that are held no more: they go on, or are dropped.

use mmb_flow::Direction;
use mmb_packet::DropReason;

use super::entry::{Entry, NO_BUFFER, Resumed, TicketState};
use super::list::{AGE, QUEUE};
use super::{HeldPackets, HeldPlace};

/// A packet that is no longer held, by its ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldEvent {
    /// The packet goes on behind the function ([`crate::Runner::resume`]).
    Released(u32),
    /// The packet is dropped.
    Dropped(u32, DropReason),
}

impl HeldPackets {
    /// A packet that is in no list goes on: its event waits behind others.
    pub(super) fn add_pending(&mut self, place: HeldPlace, direction: Direction, ticket: u32) {
        if let Some(queue) = self.queues.get_mut(&place) {
            queue.pending[direction as usize].push(&mut self.entries, QUEUE, ticket);
        }
        if let Some(entry) = self.entries.get_mut(ticket as usize) {
            entry.status = TicketState::Released;
        }
        self.pending += 1;
        self.events.push_back(ticket);
    }

    /// Takes the first held packet of a queue out of it.
    pub(super) fn pop_held(&mut self, place: HeldPlace, direction: Direction) -> Option<u32> {
        let list = &mut self.queues.get_mut(&place)?.held[direction as usize];
        let ticket = list.first_ticket()?;
        list.remove(&mut self.entries, QUEUE, ticket);
        self.by_age.remove(&mut self.entries, AGE, ticket);
        Some(ticket)
    }

    /// Marks a packet as dropped that is in no list.
    pub(super) fn drop_later(&mut self, ticket: u32, reason: DropReason) {
        if let Some(entry) = self.entries.get_mut(ticket as usize) {
            entry.status = TicketState::Dropped(reason);
            self.events.push_back(ticket);
        }
    }

    /// The packet that was being processed has its place: packets that go on behind it are pending now.
    pub fn flush_behind(&mut self) {
        while let Some(ticket) = self.behind.first_ticket() {
            self.behind.remove(&mut self.entries, QUEUE, ticket);
            if let Some(&Entry { place, direction, .. }) = self.entries.get(ticket as usize) {
                self.add_pending(place, direction, ticket);
            }
        }
    }

    /// Takes the next event.
    pub fn next_event(&mut self) -> Option<HeldEvent> {
        let ticket = self.events.pop_front()?;
        let entry = self.entries.get_mut(ticket as usize)?;
        if let TicketState::Dropped(reason) = entry.status {
            self.release_entry(ticket);
            return Some(HeldEvent::Dropped(ticket, reason));
        }
        entry.status = TicketState::Taken;
        Some(HeldEvent::Released(ticket))
    }

    /// Returns what is known of a packet whose event was taken.
    pub fn taken(&self, ticket: u32) -> Result<Resumed, DropReason> {
        match self.entries.get(ticket as usize) {
            Some(&Entry {
                status: TicketState::Taken,
                place,
                verdict,
                is_follower,
                uid,
                ref levels,
                view,
                stamp,
                buffer,
                returned,
                rights,
                rope,
                ..
            }) => {
                let (state, levels) = (place.state, levels.clone());
                Ok(Resumed {
                    state,
                    verdict,
                    is_follower,
                    uid,
                    levels,
                    view,
                    stamp,
                    buffer,
                    returned,
                    rights,
                    rope,
                })
            }
            Some(&Entry { status: TicketState::Dropped(reason), .. }) => Err(reason),
            _ => Err(DropReason::ChainError),
        }
    }

    /// A packet whose event was taken goes on. Its ticket is free.
    pub fn finish(&mut self, ticket: u32) {
        let Some(entry) = self.entries.get(ticket as usize) else { return };
        let (place, direction) = (entry.place, entry.direction);
        match entry.status {
            TicketState::Taken => {
                if let Some(queue) = self.queues.get_mut(&place) {
                    queue.pending[direction as usize].remove(&mut self.entries, QUEUE, ticket);
                }
                self.pending -= 1;
                self.remove_empty(place);
            }
            TicketState::Dropped(_) => {}
            TicketState::Free | TicketState::Held | TicketState::Released => return,
        }
        self.release_entry(ticket);
    }

    fn release_entry(&mut self, ticket: u32) {
        if let Some(entry) = self.entries.get_mut(ticket as usize) {
            entry.status = TicketState::Free;
            self.segment_bytes -= std::mem::take(&mut entry.range).len();
            if let Some(count) = self.of_states.get_mut(entry.place.state as usize) {
                *count = count.saturating_sub(1);
            }
            if entry.buffer != NO_BUFFER {
                self.unused_buffers.push((entry.place.state, entry.buffer));
                entry.buffer = NO_BUFFER;
            }
            if entry.rope != 0 {
                self.unused_ropes.push(std::mem::take(&mut entry.rope));
            }
            self.free.push(ticket);
        }
    }

    pub(super) fn remove_empty(&mut self, place: HeldPlace) {
        if self.queues.get(&place).is_some_and(|queue| queue.len() == 0) {
            self.queues.remove(&place);
        }
    }

    /// A session leaves a function: its packets there are dropped.
    pub fn leave(&mut self, place: HeldPlace) {
        if self.queues.is_empty() {
            return;
        }
        for direction in [Direction::Forward, Direction::Reverse] {
            while let Some(ticket) = self.pop_held(place, direction) {
                self.drop_later(ticket, DropReason::HeldEnded);
            }
            let Some(queue) = self.queues.get_mut(&place) else { return };
            let list = &mut queue.pending[direction as usize];
            while let Some(ticket) = list.first_ticket() {
                list.remove(&mut self.entries, QUEUE, ticket);
                self.pending -= 1;
                if let Some(entry) = self.entries.get_mut(ticket as usize) {
                    // Its event waits already, or the caller has it.
                    entry.status = TicketState::Dropped(DropReason::HeldEnded);
                }
            }
        }
        self.queues.remove(&place);
    }

    /// Drops packets that were held for longer than `timeout` milliseconds, at most `budget`. Returns true if
    /// there may be more.
    pub fn expire(&mut self, now: u32, timeout: u32, budget: usize) -> bool {
        for _ in 0..budget {
            let oldest = self.by_age.first_ticket().and_then(|ticket| self.entries.get(ticket as usize));
            let Some(oldest) = oldest.filter(|entry| now.wrapping_sub(entry.since) >= timeout) else {
                return false;
            };
            let (place, direction) = (oldest.place, oldest.direction as usize);
            let Some(ticket) = self.by_age.first_ticket() else { return false };
            if self.lose_in_process(ticket) {
                continue;
            }
            self.by_age.remove(&mut self.entries, AGE, ticket);
            if let Some(queue) = self.queues.get_mut(&place) {
                queue.held[direction].remove(&mut self.entries, QUEUE, ticket);
            }
            self.drop_later(ticket, DropReason::HeldTimeout);
            self.remove_empty(place);
        }
        true
    }
}
