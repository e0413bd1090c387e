//! Room in a process, as the stream context in front of its function sees it.

use mmb_flow::Direction;
use mmb_packet::DropReason;

use super::{HeldPackets, HeldPlace};
use crate::set::{Set, VECTOR};

/// The part of a session's packets that is kept for those in front of early ones.
const KEPT_PACKETS: u32 = 8;

/// How many packets of a vector the process of a stream function takes.
///
/// The context asks before it notes a packet. What is dropped is not noted, and read when it comes again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessRoom {
    /// Packets that can be sent, and those of them for which early segments leave room.
    pub left: u32,
    pub kept: u32,
    /// Why no more can be sent.
    pub reason: DropReason,
    /// Index of the function's state.
    pub state: u32,
    /// Positions of the packets that go to the process.
    pub taken: Set,
}

impl ProcessRoom {
    /// Whether others of the session and direction of the packet at a position are in the process, or go
    /// there: it follows them, also if nothing of it is read.
    pub fn has_others(
        &self,
        i: usize,
        (context, direction): (HeldPlace, Direction),
        bases: &[u32; VECTOR],
        held: &HeldPackets,
    ) -> bool {
        let base = bases[i & (VECTOR - 1)];
        held.held_of(HeldPlace { state: self.state, ..context }, direction) != 0
            || self.taken.iter().any(|other| bases[other & (VECTOR - 1)] == base)
    }

    /// Takes room for the packet at a position. `context`: its session at the context, which may hold
    /// segments that will need room, too: all at once, when the one comes that they wait for. `is_early`: the
    /// packet may wait there.
    ///
    /// # Errors
    /// Why the packet is to be dropped.
    pub fn take(
        &mut self,
        i: usize,
        (context, is_early): (HeldPlace, bool),
        bases: &[u32; VECTOR],
        held: &HeldPackets,
    ) -> Result<(), DropReason> {
        let taken = self.taken.len() as u32;
        let (kept, kept_packets) =
            if is_early { (self.kept, held.session_limit() / KEPT_PACKETS) } else { (0, 0) };
        if taken.saturating_add(held.len_of_state(context.state)).saturating_add(kept) >= self.left {
            return Err(self.reason);
        }
        let waiting =
            kept_packets + held.len_of(context) + held.len_of(HeldPlace { state: self.state, ..context });
        let of_session = || {
            let base = bases[i & (VECTOR - 1)];
            self.taken.filter(|other| bases[other & (VECTOR - 1)] == base).len() as u32
        };
        let has_room = held.fits(waiting + taken, taken) || held.fits(waiting + of_session(), taken);
        if !has_room {
            return Err(DropReason::HeldFull);
        }
        self.taken.insert(i);
        Ok(())
    }
}
