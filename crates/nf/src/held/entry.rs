//! Packets with a ticket, as far as they are known here.

use arrayvec::ArrayVec;
use mmb_flow::{Direction, FlowRef};
use mmb_packet::DropReason;
use mmb_stream::{HeldRange, View};

use super::HeldPlace;
use super::list::Links;
use crate::verdict::{EditRights, ProcessVerdict, Verdict};

/// Most functions `flow` in front of a function that holds packets.
pub(crate) const MAX_FLOWS: usize = 3;

/// No buffer.
pub(crate) const NO_BUFFER: u32 = u32::MAX;

/// A session of a function `flow` that a held packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldLevel {
    /// Index of the state of the function `flow`.
    pub state: usize,
    pub flow: FlowRef,
    pub uid: u32,
}

/// Where a packet with a ticket stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TicketState {
    /// The entry is not in use.
    Free,
    /// A function holds the packet.
    Held,
    /// The packet is released, and its event waits.
    Released,
    /// The caller has taken the event.
    Taken,
    /// The packet is to be dropped.
    Dropped(DropReason),
}

/// A packet that is held or released.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub place: HeldPlace,
    pub direction: Direction,
    pub status: TicketState,
    pub order: u32,
    /// When it was held, in milliseconds.
    pub since: u32,
    pub links: [Links; 2],
    /// The verdict of the function on a packet that follows released ones. None: the function is asked when
    /// the packet goes on.
    pub verdict: Option<Verdict>,
    /// The packet was not held, and follows others.
    pub is_follower: bool,
    /// Identity of the flow manager's session.
    pub uid: u32,
    /// Its sessions of functions `flow`, the innermost first.
    pub levels: ArrayVec<HeldLevel, MAX_FLOWS>,
    /// The bytes of a segment that waits.
    pub range: HeldRange,
    /// What stream functions get of a packet that goes on.
    pub view: View,
    /// The timestamp with which a segment that waited goes on. None: its own.
    pub stamp: Option<u32>,
    /// The buffer of a packet that is in the process of the function, or [`NO_BUFFER`].
    pub buffer: u32,
    /// What came back from the process of a stream function.
    pub returned: ProcessVerdict,
    /// What a function that edits in a process may do with the bytes.
    pub rights: EditRights,
    /// The number of the bytes that functions in front have changed, in the memory of edits. 0: none have.
    pub rope: u32,
}

impl Entry {
    pub const FREE: Entry = Entry {
        place: HeldPlace { space: 0, session: 0, state: 0 },
        direction: Direction::Forward,
        status: TicketState::Free,
        order: 0,
        since: 0,
        links: [Links::NONE; 2],
        verdict: None,
        is_follower: false,
        uid: 0,
        levels: ArrayVec::new_const(),
        range: HeldRange { from: 0, to: 0, has_fin: false },
        view: View::NONE,
        stamp: None,
        buffer: NO_BUFFER,
        returned: ProcessVerdict::Lost,
        rights: EditRights::NONE,
        rope: 0,
    };
}

/// A packet that goes on.
#[derive(Clone, Debug)]
pub(crate) struct Resumed {
    /// Index of the state of the instance that held it.
    pub state: u32,
    pub verdict: Option<Verdict>,
    pub is_follower: bool,
    pub uid: u32,
    pub levels: ArrayVec<HeldLevel, MAX_FLOWS>,
    pub view: View,
    /// See [`Entry`].
    pub stamp: Option<u32>,
    /// The buffer of a packet that came back from a process, or [`NO_BUFFER`].
    pub buffer: u32,
    /// What came back from the process of a stream function.
    pub returned: ProcessVerdict,
    /// What a function that edits in a process may do with the bytes.
    pub rights: EditRights,
    /// The number of the bytes that functions in front have changed. 0: none have.
    pub rope: u32,
}

impl Resumed {
    /// Whether another packet was held by the same function, behind the same functions `flow`.
    pub fn has_place_of(&self, other: &Resumed) -> bool {
        let states =
            |one: &Resumed| one.levels.iter().map(|level| level.state).collect::<ArrayVec<_, MAX_FLOWS>>();
        self.state == other.state && states(self) == states(other)
    }
}
