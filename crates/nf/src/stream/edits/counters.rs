//! Counters of edits.

use super::error::EditError;
use crate::stream::counters::StreamCounter;

/// The counters: those of holds and edits, and then refused edits in the order of [`EditError::ALL`].
pub(in crate::stream) const COUNTERS: [StreamCounter; REFUSED + EditError::ALL.len()] = [
    StreamCounter::bytes("pre-acknowledged", "bytes acknowledged before their receiver"),
    StreamCounter::event("holds-ended-by-time", "holds ended by time"),
    StreamCounter::event("holds-ended-by-size", "holds ended by size"),
    StreamCounter::event("edits", "edits"),
    StreamCounter::bytes("removed", "bytes removed by edits"),
    StreamCounter::bytes("inserted", "bytes inserted by edits"),
    StreamCounter::event("edited-datagrams", "edited datagrams"),
    StreamCounter::refusal("datagram-end", "ends of datagrams without room"),
    StreamCounter::event("resets", "connections reset"),
    StreamCounter::event("duplicate-acks", "duplicate acknowledgements sent"),
    StreamCounter::event("mptcp-stripped", "options of several paths removed"),
    StreamCounter::refusal("mptcp", "connections of several paths, not edited"),
    StreamCounter::refusal("not-editable", "edits refused: not-editable"),
    StreamCounter::refusal("one-way", "edits refused: one-way"),
    StreamCounter::refusal("fragment", "edits refused: fragment"),
    StreamCounter::refusal("gone", "edits refused: gone"),
    StreamCounter::refusal("mtu", "edits refused: mtu"),
    StreamCounter::refusal("udp-length", "edits refused: udp-length"),
    StreamCounter::refusal("too-many", "edits refused: too-many"),
    StreamCounter::refusal("order", "edits refused: order"),
];
pub(super) const PREACKED: usize = 0;
pub(super) const BY_TIME: usize = 1;
pub(super) const BY_SIZE: usize = 2;
pub(super) const EDITS: usize = 3;
pub(super) const REMOVED: usize = 4;
pub(super) const INSERTED: usize = 5;
pub(super) const DATAGRAMS: usize = 6;
pub(super) const NO_ROOM_FOR_END: usize = 7;
pub(in crate::stream) const RESETS: usize = 8;
pub(in crate::stream) const DUPLICATE_ACKS: usize = 9;
pub(super) const STRIPPED: usize = 10;
pub(super) const SEVERAL_PATHS: usize = 11;
pub(super) const REFUSED: usize = 12;

/// Behind the counters of edits: bytes held back without room, which [`Cause::NoRoom`] counts.
pub(super) const NO_ROOM_TO_HOLD: usize = COUNTERS.len();

/// What functions have done since the counters were updated.
#[derive(Debug, Default)]
pub(crate) struct EditTally {
    counts: [u64; COUNTERS.len() + 1],
    has_counts: bool,
}

impl EditTally {
    pub fn add(&mut self, which: usize, count: usize) {
        if let Some(place) = self.counts.get_mut(which).filter(|_| count != 0) {
            *place += count as u64;
            self.has_counts = true;
        }
    }

    /// Returns the counts, and begins anew. None: all are zero.
    #[inline]
    pub fn take(&mut self) -> Option<[u64; COUNTERS.len() + 1]> {
        self.has_counts.then(|| std::mem::take(self).counts)
    }

    pub fn refuse(&mut self, error: EditError) {
        self.add(REFUSED + error as usize, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_a_counter_with_its_name() {
        for error in EditError::ALL {
            let counter = COUNTERS[REFUSED + error as usize];
            assert_eq!(counter.name, error.name());
            assert_eq!(counter.text.strip_prefix("edits refused: "), Some(error.name()));
        }
    }
}
