//! Packets that wait for the verdict of a function in a process.

use mmb_flow::Direction;
use mmb_packet::DropReason;
use mmb_stream::{HeldRange, View};

use super::entry::{NO_BUFFER, TicketState};
use super::list::{AGE, QUEUE};
use super::{HeldPackets, HeldPlace};
use crate::verdict::{EditRights, ProcessVerdict};

/// How many times as many packets of a session wait for processes as functions hold. A process runs when the
/// scheduler lets it: what comes meanwhile of one connection is a burst, which must not cost it losses.
const PROCESS_SHARE: u32 = 4;
/// How many times as many packets wait for the process of a function as tickets of the worker are free. One
/// function alone has seven eighths of all, and whatever those of other domains take, some are free for more.
const FREE_SHARE: u32 = 7;

impl HeldPackets {
    /// Returns the most packets of a session that wait for a process, or go on behind others.
    pub(super) fn process_limit(&self) -> u32 {
        self.limits.session.saturating_mul(PROCESS_SHARE)
    }

    /// Whether the limits allow one more packet for a process of a session that has `of_session` packets
    /// there, and `more` of all sessions.
    pub fn fits_in_process(&self, of_session: u32, more: u32) -> bool {
        self.fits(self.process_limit(), of_session, more)
    }

    /// Whether a function has its share of the worker's packets not used up, `more` packets considered. It is
    /// asked before a packet goes to its first process. Shared buffers of switches are divided like that
    /// (Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches").
    #[inline]
    pub fn has_share(&self, state: u32, more: u32) -> bool {
        let free = self.limits.worker.saturating_sub(self.len() as u32).saturating_sub(more);
        self.len_of_state(state).saturating_add(more) < free.saturating_mul(FREE_SHARE)
    }

    /// Holds a packet that is in a buffer of a process. `view`, `rights`: what a stream function gets of it.
    /// Returns its ticket.
    ///
    /// # Errors
    /// See [`HeldPackets::hold`].
    pub fn hold_in_process(
        &mut self,
        place: HeldPlace,
        direction: Direction,
        (buffer, view, rights): (u32, View, EditRights),
    ) -> Result<u32, DropReason> {
        let ticket =
            self.hold_within(self.process_limit(), (place, direction), None, HeldRange::default())?;
        if let Some(entry) = self.entries.get_mut(ticket as usize) {
            (entry.buffer, entry.view, entry.rights) = (buffer, view, rights);
        }
        Ok(ticket)
    }

    /// Gives a ticket to a packet that is not sent to the process of a function that edits, if it has to
    /// follow others ([`HeldPackets::follow`]). `returned`: what is applied when it goes on.
    pub fn follow_edited(
        &mut self,
        place: HeldPlace,
        direction: Direction,
        (view, rights): (View, EditRights),
        returned: ProcessVerdict,
    ) -> Option<Result<u32, DropReason>> {
        let ticket = self.follow(place, direction, None)?;
        let entry = ticket.ok().and_then(|ticket| self.entries.get_mut(ticket as usize));
        if let Some(entry) = entry {
            (entry.view, entry.rights, entry.returned) = (view, rights, returned);
        }
        Some(ticket)
    }

    /// Releases a packet with new bytes of a stream that is in a process for too long: its bytes are noted,
    /// so that it cannot be dropped like others. Returns false if it is another packet.
    #[cold]
    pub(super) fn lose_in_process(&mut self, ticket: u32) -> bool {
        let Some(entry) = self.entries.get(ticket as usize) else { return false };
        let (state, buffer) = (entry.place.state, entry.buffer);
        let is_read = buffer != NO_BUFFER && !entry.view.is_none();
        is_read && self.return_from_process(ticket, state, buffer, ProcessVerdict::Lost)
    }

    /// Releases a packet with the verdict that came back. One on a stream is applied when the packet goes on.
    /// Returns false if the packet does not wait for this buffer any more.
    pub fn return_from_process(
        &mut self,
        ticket: u32,
        state: u32,
        buffer: u32,
        verdict: ProcessVerdict,
    ) -> bool {
        let Some(entry) = self.entries.get_mut(ticket as usize) else { return false };
        if (entry.status, entry.place.state, entry.buffer) != (TicketState::Held, state, buffer) {
            return false;
        }
        match verdict {
            ProcessVerdict::Packet(verdict) => entry.verdict = Some(verdict),
            of_stream => entry.returned = of_stream,
        }
        let (place, direction) = (entry.place, entry.direction);
        if let Some(queue) = self.queues.get_mut(&place) {
            queue.held[direction as usize].remove(&mut self.entries, QUEUE, ticket);
        }
        self.by_age.remove(&mut self.entries, AGE, ticket);
        self.add_pending(place, direction, ticket);
        true
    }

    /// Notes the number of the bytes of a packet that functions have changed.
    pub fn set_rope(&mut self, ticket: u32, rope: u32) {
        if let Some(entry) = self.entries.get_mut(ticket as usize) {
            entry.rope = rope;
        }
    }

    /// Takes the number of changed bytes whose packet does not wait any more.
    pub fn pop_unused_rope(&mut self) -> Option<u32> {
        self.unused_ropes.pop()
    }

    /// Takes a state and a buffer whose packet does not wait any more.
    pub fn pop_unused_buffer(&mut self) -> Option<(u32, u32)> {
        self.unused_buffers.pop()
    }
}

#[cfg(test)]
mod tests {
    use mmb_flow::HeldLimits;

    use super::*;
    use crate::held::OUTER_SPACE;

    /// Sends packets to the process of a function while its share allows it. Returns how many.
    fn fill(held: &mut HeldPackets, state: u32) -> u32 {
        let place = HeldPlace { space: OUTER_SPACE, session: 1, state };
        let mut sent = 0;
        while held.has_share(state, 0) {
            let held = held.hold_in_process(place, Direction::Forward, (sent, View::NONE, EditRights::NONE));
            assert!(held.is_ok());
            sent += 1;
        }
        sent
    }

    #[test]
    fn functions_whose_processes_return_nothing_leave_room_for_others() {
        let mut held = HeldPackets::with_limits(HeldLimits { session: 4096, worker: 4096 });
        assert_eq!(fill(&mut held, 1), 4096 / 8 * 7);
        assert_eq!(fill(&mut held, 2), 512 / 8 * 7);
        assert_eq!([3, 4].map(|state| fill(&mut held, state)), [56, 7]);
        assert!(!held.has_share(1, 0));
        assert!(held.has_share(7, 0) && !held.has_share(7, 4096));
    }
}
