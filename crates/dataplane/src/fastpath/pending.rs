//! What was read off packets of sessions too early: before the other side had answered.
//!
//! A session's directions are given to the kernel together, so that whatever opens it goes through the engine and nothing else. What
//! the first packet shows (a SYN, a datagram) is kept until the answer comes. There is one place
//! for each of many sessions; who comes later to a place has it, and the other session is learnt a packet later.

use mmb_session::OffloadCandidate;

use super::learn::Learnt;

/// A power of two.
const PLACES: usize = 4096;

#[derive(Default)]
pub(super) struct Pending {
    places: Box<[Option<Box<Learnt>>]>,
}

impl Pending {
    fn place(&mut self, session: OffloadCandidate) -> Option<&mut Option<Box<Learnt>>> {
        self.places.get_mut(session.number() as usize % PLACES)
    }

    /// Keeps what was learnt of a direction.
    pub fn keep(&mut self, session: OffloadCandidate, learnt: Box<Learnt>) {
        if self.places.is_empty() {
            self.places = (0..PLACES).map(|_| None).collect();
        }
        if let Some(place) = self.place(session) {
            *place = Some(learnt);
        }
    }

    /// What is kept of this direction, if anything is.
    pub fn take(&mut self, session: OffloadCandidate) -> Option<Box<Learnt>> {
        let place = self.place(session)?;
        place.take_if(|learnt| learnt.credit.session == Some(session))
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.places.fill_with(|| None);
    }
}
