//! Room in a process, as the stream context in front of its function sees it.

use mmb_packet::DropReason;

use super::{HeldPackets, HeldPlace};
use crate::set::{Set, VECTOR};

/// How many packets of a vector the process of a stream function takes.
///
/// The context asks before it notes a packet. What is dropped is not noted, and read when it comes again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessRoom {
    /// Packets that can be sent.
    pub left: u32,
    /// Why no more can be sent.
    pub reason: DropReason,
    /// Index of the function's state.
    pub state: u32,
    /// Positions of the packets that go to the process.
    pub taken: Set,
}

impl ProcessRoom {
    /// Takes room for the packet at a position. `context`: its session at the context, which may hold
    /// segments that will need room, too.
    ///
    /// # Errors
    /// Why the packet is to be dropped.
    pub fn take(
        &mut self,
        i: usize,
        context: HeldPlace,
        bases: &[u32; VECTOR],
        held: &HeldPackets,
    ) -> Result<(), DropReason> {
        let taken = self.taken.len() as u32;
        if taken >= self.left {
            return Err(self.reason);
        }
        let waiting = held.len_of(context) + held.len_of(HeldPlace { state: self.state, ..context });
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
