//! Learned flows of sessions that wait for the other direction.
//!
//! A session's directions are installed together, so that its first packets go through the engine. What was
//! learned of the opening packet is kept until the answer arrives. The table is direct-mapped: a later
//! session may take the place of an earlier one, whose flow is then learned from a later packet.

use mmb_session::OffloadCandidate;

use super::learned::LearnedFlow;

/// Number of places; a power of two.
const PLACES: usize = 4096;

/// Learned flows by the number of their direction.
#[derive(Default)]
pub(crate) struct PendingFlows {
    places: Box<[Option<Box<LearnedFlow>>]>,
}

impl PendingFlows {
    fn place(&mut self, candidate: OffloadCandidate) -> Option<&mut Option<Box<LearnedFlow>>> {
        self.places.get_mut(candidate.number() as usize % PLACES)
    }

    /// Keeps what was learned of a direction.
    pub fn insert(&mut self, candidate: OffloadCandidate, learned: Box<LearnedFlow>) {
        if self.places.is_empty() {
            self.places = (0..PLACES).map(|_| None).collect();
        }
        if let Some(place) = self.place(candidate) {
            *place = Some(learned);
        }
    }

    /// Removes and returns what was learned of a direction.
    pub fn take(&mut self, candidate: OffloadCandidate) -> Option<Box<LearnedFlow>> {
        let place = self.place(candidate)?;
        place.take_if(|learned| learned.credit.session == Some(candidate))
    }

    /// Removes all.
    pub fn clear(&mut self) {
        self.places.fill_with(|| None);
    }
}
