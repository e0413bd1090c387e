//! Whether a worker may open one more session.
//!
//! Theory of operation. A session needs room, which workers borrow from each other ([`super::quota`]). Its
//! source may have a limited number of sessions of all workers. Open sessions need nothing of this.

use std::net::IpAddr;
use std::sync::Arc;

use mmb_flow::{Key, SessionSettings};

use super::limits::LimitGate;
use super::sources::{CountPlace, SourceHash};
use super::{LimitedSource, Room, SharedSessions};

/// The sessions of a source, as [`Admission::may_open`] has found them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SourceCount {
    /// None: sources are not limited.
    hash: Option<SourceHash>,
    /// Where the sessions are counted; none if there was no count.
    place: Option<CountPlace>,
}

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

    /// Returns the count of the source of `key` if the source may open one more session, for
    /// [`Admission::add`]. A refusal is reported, at most once in a second. `now`: milliseconds. `foreseen`:
    /// the hash of the source, if it is known.
    #[inline]
    pub fn may_open(&mut self, now: u32, key: &Key, foreseen: Option<SourceHash>) -> Option<SourceCount> {
        let Some(limit) = self.source_limit else { return Some(SourceCount::default()) };
        let sources = &self.shared.sources;
        let hash = foreseen.unwrap_or_else(|| sources.hash(key.source));
        let (count, place) = sources.count(hash);
        if count < u64::from(limit) {
            return Some(SourceCount { hash: Some(hash), place });
        }
        if let Some(refused) = self.gate.refuse(now) {
            // If the control side is behind, the next report will do.
            let _ = self.shared.limited.push(LimitedSource { address: source_address(key), limit, refused });
        }
        None
    }

    /// Prefetches what [`Admission::may_open`], [`Admission::add`] and [`Admission::remove`] read of a
    /// source, one of many. Returns the hash of the source, if sources are limited.
    #[inline]
    pub fn prefetch(&self, source: [u8; 16]) -> Option<SourceHash> {
        self.source_limit?;
        let hash = self.shared.sources.hash(source);
        self.shared.sources.prefetch(hash);
        Some(hash)
    }

    /// As [`Admission::prefetch`], for a hash that it has returned: the source is the next one.
    #[inline]
    pub fn prefetch_foreseen(&self, source: SourceHash) {
        self.shared.sources.prefetch_next(source);
    }

    /// Counts a new session for a source that may open it. Returns whether it is counted: then
    /// [`Admission::remove`] is to be called when it ends.
    #[inline]
    pub fn add(&self, source: SourceCount) -> bool {
        source.hash.is_some_and(|hash| self.shared.sources.add_at(hash, source.place))
    }

    /// Counts an open session for its source, whatever the limit. Returns as [`Admission::add`].
    pub fn add_open(&self, source: [u8; 16]) -> bool {
        let sources = &self.shared.sources;
        self.source_limit.is_some() && sources.add(sources.hash(source))
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
        let count = |admission: &mut Admission, now| admission.may_open(now, &key, None);
        let added =
            |admission: &Admission, count: Option<SourceCount>| admission.add(count.expect("a count"));
        let free = count(&mut admission, 0);
        assert!(!added(&admission, free), "no limit, no count");
        admission.source_limit = Some(1);
        let first = count(&mut admission, 0);
        assert!(added(&admission, first));
        assert!(count(&mut admission, 5).is_none() && count(&mut admission, 6).is_none());
        let reports = shared.take_limited();
        let report = LimitedSource { address: source_address(&key), limit: 1, refused: 1 };
        assert_eq!(reports, [report], "the second refusal waits for its report");
        admission.remove(key.source);
        assert!(count(&mut admission, 7).is_some());
    }
}
