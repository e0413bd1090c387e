//! Room in processes, as the stream context in front of their functions sees it.

use arrayvec::ArrayVec;
use mmb_flow::Direction;
use mmb_packet::DropReason;

use super::{HeldPackets, HeldPlace};
use crate::set::{Set, VECTOR};

/// The part of a session's packets that is kept for those in front of early ones.
const KEPT_PACKETS: u32 = 8;
/// The part of what is kept that others leave, too, while early ones wait.
const KEPT_OF_OTHERS: u32 = 2;

/// What a packet is for those that wait at the stream context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// It may wait there for others in front of it.
    Early,
    /// Others may wait, and not for it.
    Ordinary,
    /// Others of its direction wait for it. Its sender may repeat it seldom, so it must not be dropped for
    /// want of room that the other direction or other sessions take.
    Awaited,
}

/// Most functions in processes behind a stream context.
pub(crate) const MOST_APART: usize = 8;

/// The indices of the states of functions in processes behind a stream context.
pub(crate) type ApartStates = ArrayVec<u32, MOST_APART>;

/// How many packets the process of a function takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaceRoom {
    /// Packets that can be sent, and those of them for which early segments leave room.
    pub left: u32,
    pub kept: u32,
    /// Why no more can be sent.
    pub reason: DropReason,
}

/// How many packets of a vector the processes of the stream functions behind a context take.
///
/// The context asks before it notes a packet. What is dropped is not noted, and read when it comes again. A
/// packet that has been noted needs room in each process, one after the other. So room in one is kept for
/// all packets that are in front of the others.
#[derive(Clone, Debug)]
pub(crate) struct ProcessRoom {
    room: PlaceRoom,
    /// Indices of the functions' states.
    pub states: ApartStates,
    /// Positions of the packets that go to a process.
    taken: Set,
}

impl ProcessRoom {
    /// Returns the room in all of these processes. `rooms`: the state and the room of each.
    pub fn new(rooms: impl Iterator<Item = (u32, PlaceRoom)>, held: &HeldPackets) -> ProcessRoom {
        let rooms: ArrayVec<(u32, PlaceRoom), MOST_APART> = rooms.take(MOST_APART).collect();
        let states: ApartStates = rooms.iter().map(|&(state, _)| state).collect();
        let all: u32 = states.iter().map(|&state| held.len_of_state(state)).sum();
        let left = |&(state, room): &(u32, PlaceRoom)| {
            let of_others = all - held.len_of_state(state);
            PlaceRoom { left: room.left.saturating_sub(of_others), ..room }
        };
        let least = rooms.iter().map(left).min_by_key(|room| room.left);
        let none = PlaceRoom { left: 0, kept: 0, reason: DropReason::ProcessFailed };
        ProcessRoom { room: least.unwrap_or(none), states, taken: Set::EMPTY }
    }

    /// Whether others of the session and direction of the packet at a position are in a process, or go
    /// there: it follows them, also if nothing of it is read.
    pub fn has_others(
        &self,
        i: usize,
        (context, direction): (HeldPlace, Direction),
        bases: &[u32; VECTOR],
        held: &HeldPackets,
    ) -> bool {
        let base = bases[i & (VECTOR - 1)];
        self.states.iter().any(|&state| held.held_of(HeldPlace { state, ..context }, direction) != 0)
            || self.taken.iter().any(|other| bases[other & (VECTOR - 1)] == base)
    }

    /// Takes room for the packet at a position. `context`: its session at the context, which may hold
    /// segments that will need room, too: all at once, when the one comes that they wait for.
    ///
    /// # Errors
    /// Why the packet is to be dropped.
    pub fn take(
        &mut self,
        i: usize,
        (context, urgency): (HeldPlace, Urgency),
        bases: &[u32; VECTOR],
        held: &HeldPackets,
    ) -> Result<(), DropReason> {
        let taken = self.taken.len() as u32;
        let (kept, kept_packets) = (self.room.kept, held.session_limit() / KEPT_PACKETS);
        let (kept, kept_packets) = match urgency {
            Urgency::Early => (kept, kept_packets),
            Urgency::Ordinary if held.len_of_state(context.state) == 0 => (0, 0),
            Urgency::Ordinary => (kept / KEPT_OF_OTHERS, kept_packets / KEPT_OF_OTHERS),
            Urgency::Awaited => (0, 0),
        };
        if taken.saturating_add(held.len_of_state(context.state)).saturating_add(kept) >= self.room.left {
            return Err(self.room.reason);
        }
        let apart = self.states.iter().map(|&state| held.len_of(HeldPlace { state, ..context }));
        let waiting = kept_packets + held.len_of(context) + apart.sum::<u32>();
        let of_session = || {
            let base = bases[i & (VECTOR - 1)];
            self.taken.filter(|other| bases[other & (VECTOR - 1)] == base).len() as u32
        };
        let has_room = held.fits_in_process(waiting + taken, taken)
            || held.fits_in_process(waiting + of_session(), taken);
        if !has_room || !self.states.iter().all(|&state| held.has_share(state, taken)) {
            return Err(DropReason::HeldFull);
        }
        self.taken.insert(i);
        Ok(())
    }
}
