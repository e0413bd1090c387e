//! Sessions that are answered in the place of an end: a function answers the client, or both ends have got a
//! FIN.

use mmb_packet::DropReason;

use super::HeldPackets;

/// Most sessions whose clients functions answer at the same time.
pub(super) const MOST_TAKEN_OVER: usize = 65_536;

impl HeldPackets {
    /// Notes that a function answers the client of a session. Returns false if there is no room.
    pub fn take_over(&mut self, session: u32) -> bool {
        self.taken_over.len() < MOST_TAKEN_OVER && self.taken_over.insert(session)
    }

    /// Whether a function answers the client of a session.
    pub fn is_taken_over(&self, session: u32) -> bool {
        self.taken_over.contains(&session)
    }

    /// Notes that both ends of a session have got a FIN. Returns false if there is no room.
    pub fn close(&mut self, session: u32, reason: DropReason) -> bool {
        let has_room = self.closed.len() < MOST_TAKEN_OVER;
        has_room && self.closed.insert(session, reason).is_none()
    }

    /// Whether both ends of any session have got a FIN.
    pub fn has_closed(&self) -> bool {
        !self.closed.is_empty()
    }

    /// Returns why packets of a session are dropped whose ends have got a FIN.
    pub fn closed(&self, session: u32) -> Option<DropReason> {
        self.closed.get(&session).copied()
    }

    /// The session has ended.
    pub fn end_closed(&mut self, session: u32) {
        if !self.closed.is_empty() {
            self.closed.remove(&session);
        }
    }

    /// The session has ended, or a new connection has begun in it.
    pub fn end_takeover(&mut self, session: u32) {
        if !self.taken_over.is_empty() {
            self.taken_over.remove(&session);
        }
    }
}
