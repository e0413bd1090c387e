//! The packet that a stream context processes, and what can be done with it.

use mmb_flow::Direction;
use mmb_packet::DropReason;
use mmb_stream::{OnOverflow, Policy, Segment, TcpStream, is_after};

use super::edits::ExpectedNumbers;
use super::reset_both;
use crate::context::{Emissions, Holding};
use crate::held::{ApartStates, HeldPlace, ProcessRoom, Urgency};
use crate::set::VECTOR;
use crate::{Packet, Verdict};

/// The packet that is being processed, and what can be done with it.
pub(super) struct Step<'a> {
    pub holding: Holding<'a>,
    pub emissions: &'a mut Emissions,
    pub policy: Policy,
    pub worker: u16,
    /// Milliseconds.
    pub now: u32,
    pub at: usize,
    /// The numbers that the ends expect, if functions may edit the connection.
    pub edited: Option<ExpectedNumbers>,
    /// Connections that were reset.
    pub resets: u64,
    /// Indices of the states of functions in processes, if one of the group edits.
    pub apart: ApartStates,
}

impl<'a> Step<'a> {
    pub fn new(
        (holding, emissions): (Holding<'a>, &'a mut Emissions),
        policy: Policy,
        (worker, now): (u16, u32),
    ) -> Step<'a> {
        let apart = ApartStates::new();
        Step { holding, emissions, policy, worker, now, at: 0, edited: None, resets: 0, apart }
    }

    pub(super) fn place(&self, packet: &Packet<'_>) -> HeldPlace {
        self.holding.place(packet)
    }

    /// Returns why a segment is dropped for want of room in a process. Nothing is noted of it, so that it can
    /// come again.
    #[inline]
    pub fn refusal(
        &self,
        room: &mut ProcessRoom,
        (packet, at): (&Packet<'_>, usize),
        (segment, stream): (&Segment, &TcpStream),
        bases: &[u32; VECTOR],
    ) -> Option<DropReason> {
        let (place, direction) = (self.place(packet), packet.direction);
        let held = &*self.holding.held;
        let may_be_read = segment.len != 0 || segment.flags & (Segment::SYN | Segment::FIN) != 0;
        if !may_be_read && !room.has_others(at, (place, direction), bases, held) {
            return None;
        }
        let next = stream.next(direction as usize);
        let urgency = match next.is_some_and(|next| is_after(segment.seq, next)) {
            true => Urgency::Early,
            false if held.held_of(place, direction) != 0 => Urgency::Awaited,
            false => Urgency::Ordinary,
        };
        room.take(at, (place, urgency), bases, held).err()
    }

    /// Whether segments of a packet's direction wait for bytes in front of them.
    pub fn has_early(&self, packet: &Packet<'_>) -> bool {
        self.holding.held.held_of(self.place(packet), packet.direction) != 0
    }

    /// Whether packets of a packet's session and a direction are in processes of the group.
    pub fn is_apart(&self, packet: &Packet<'_>, direction: Direction) -> bool {
        let (place, held) = (self.place(packet), &*self.holding.held);
        self.apart
            .iter()
            .map(|&state| HeldPlace { state, ..place })
            .any(|place| held.held_of(place, direction) != 0 || held.has_pending(place, direction))
    }

    /// Whether packets of a packet's session wait in the group, or are in its processes.
    pub fn has_packets(&self, packet: &Packet<'_>) -> bool {
        let (place, held) = (self.place(packet), &*self.holding.held);
        [Direction::Forward, Direction::Reverse].into_iter().any(|direction| {
            held.held_of(place, direction) != 0
                || held.has_pending(place, direction)
                || self.is_apart(packet, direction)
        })
    }

    /// Drops the packets of a session that are in processes of the group.
    #[cold]
    pub fn drop_apart(&mut self, packet: &Packet<'_>) {
        let place = self.place(packet);
        for &state in &self.apart {
            self.holding.held.leave(HeldPlace { state, ..place });
        }
    }

    /// A packet repeats bytes that are not kept. They cannot come again, so that the connection cannot go on.
    #[cold]
    pub fn unkept(&mut self, packet: &Packet<'_>) -> Verdict {
        if self.policy.overflow == OnOverflow::Pass { Verdict::Pass } else { self.reset(packet) }
    }

    pub fn reset(&mut self, packet: &Packet<'_>) -> Verdict {
        self.resets += 1;
        reset_both(self.emissions, (packet, self.at), self.edited);
        Verdict::End(DropReason::StreamReset)
    }
}
