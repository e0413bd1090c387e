//! Whether a worker may open one more session.
//!
//! Theory of operation. A session needs room, which workers borrow from each other ([`super::quota`]). Its
//! source may have a limited number of sessions of all workers. Open sessions need nothing of this.

use std::net::IpAddr;
use std::sync::Arc;

use mmb_flow::{Key, SessionSettings};

use super::limits::LimitGate;
use super::{LimitedSource, Room, SharedSessions};

/// What limits the sessions that a worker opens.
#[derive(Debug)]
pub(crate) struct Admission {
    shared: Arc<SharedSessions>,
    room: Room,
    /// Maximum number of sessions of a source. `None`: no limit.
    source_limit: Option<u32>,
    gate: LimitGate,
}

impl Admission {
    /// No room is borrowed yet, and sources have no limit.
    pub fn new(shared: Arc<SharedSessions>) -> Admission {
        Admission { shared, room: Room::default(), source_limit: None, gate: LimitGate::default() }
    }

    /// Takes over the limit of the settings.
    pub fn adopt(&mut self, settings: &SessionSettings) {
        self.source_limit = settings.source_limit.for_capacity(self.capacity());
    }

    /// The maximum number of sessions of all workers.
    pub fn capacity(&self) -> u32 {
        self.shared.capacity()
    }

    /// Sessions that a worker with `open` sessions could open, if no other worker borrowed room.
    pub fn free(&self, open: u32) -> u32 {
        self.shared.quota.left() + self.room.limit.saturating_sub(open)
    }

    /// Whether a worker with `open` sessions may have one more. Borrows room if it has used up its own.
    #[inline]
    pub fn has_room(&mut self, open: u32) -> bool {
        open < self.room.limit || self.shared.quota.borrow(&mut self.room)
    }

    /// Gives back the room that a worker with `used` sessions does not need soon.
    pub fn give_back(&mut self, used: u32) {
        self.shared.quota.give_back(&mut self.room, used);
    }

    /// Whether the source of `key` may open one more session. A refusal is reported, at most once in a
    /// second. `now`: milliseconds.
    #[inline]
    pub fn may_open(&mut self, now: u32, key: &Key) -> bool {
        let Some(limit) = self.source_limit else { return true };
        let sources = &self.shared.sources;
        if sources.count(sources.hash(key.source)) < u64::from(limit) {
            return true;
        }
        if let Some(refused) = self.gate.refuse(now) {
            // If the control side is behind, the next report will do.
            let _ = self.shared.limited.push(LimitedSource { address: source_address(key), limit, refused });
        }
        false
    }

    /// Prefetches what [`Admission::may_open`], [`Admission::add`] and [`Admission::remove`] read of a
    /// source.
    #[inline]
    pub fn prefetch(&self, source: [u8; 16]) {
        if self.source_limit.is_some() {
            self.shared.sources.prefetch(self.shared.sources.hash(source));
        }
    }

    /// Counts a new session for the source of `key`. Returns whether it is counted: then
    /// [`Admission::remove`] is to be called when it ends.
    #[inline]
    pub fn add(&self, key: &Key) -> bool {
        let sources = &self.shared.sources;
        self.source_limit.is_some() && sources.add(sources.hash(key.source))
    }

    /// A counted session of this source has ended.
    #[inline]
    pub fn remove(&self, source: [u8; 16]) {
        let sources = &self.shared.sources;
        sources.remove(sources.hash(source));
    }
}

/// Returns the source of packets with this key.
fn source_address(key: &Key) -> IpAddr {
    let [a, b, c, d, ..] = key.source;
    if key.is_ip4() { [a, b, c, d].into() } else { key.source.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_and_sources_are_limited() {
        let shared = Arc::new(SharedSessions::new(2, 1, 1));
        let mut admission = Admission::new(shared.clone());
        assert_eq!((admission.capacity(), admission.free(0)), (2, 2));
        assert!(admission.has_room(0) && admission.has_room(1) && !admission.has_room(2));

        let key = Key::default();
        assert!(admission.may_open(0, &key) && !admission.add(&key), "no limit, no count");
        admission.source_limit = Some(1);
        assert!(admission.may_open(0, &key) && admission.add(&key));
        assert!(!admission.may_open(5, &key) && !admission.may_open(6, &key));
        let reports = shared.take_limited();
        let report = LimitedSource { address: source_address(&key), limit: 1, refused: 1 };
        assert_eq!(reports, [report], "the second refusal waits for its report");
        admission.remove(key.source);
        assert!(admission.may_open(7, &key));
    }
}
