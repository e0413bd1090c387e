//! Packets that wait for the verdict of a function in a process.

use mmb_flow::Direction;
use mmb_packet::DropReason;
use mmb_stream::View;

use super::list::{AGE, QUEUE};
use super::{HeldPackets, HeldPlace, TicketState};
use crate::verdict::ProcessVerdict;

impl HeldPackets {
    /// Holds a packet that is in a buffer of a process. `view`: what a stream function gets of it. Returns
    /// its ticket.
    ///
    /// # Errors
    /// See [`HeldPackets::hold`].
    pub fn hold_in_process(
        &mut self,
        place: HeldPlace,
        direction: Direction,
        (buffer, view): (u32, View),
    ) -> Result<u32, DropReason> {
        let ticket = self.hold(place, direction, None)?;
        if let Some(entry) = self.entries.get_mut(ticket as usize) {
            (entry.buffer, entry.view) = (buffer, view);
        }
        Ok(ticket)
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

    /// Takes a state and a buffer whose packet does not wait any more.
    pub fn pop_unused_buffer(&mut self) -> Option<(u32, u32)> {
        self.unused_buffers.pop()
    }
}
