//! Segments that wait for the bytes in front of them.

use mmb_flow::Direction;
use mmb_packet::DropReason;
use mmb_stream::{HeldRange, View, is_after};

use super::{HeldPackets, HeldPlace, Queue};

/// Bytes of segments for each packet that may be held: those of a buffer.
const PACKET_BYTES: u64 = 2048;

impl HeldPackets {
    /// Whether the limits allow to hold another packet of a session, with `len` bytes of payload.
    ///
    /// A packet that is allowed stands for [`PACKET_BYTES`]: large frames have no more memory than others.
    pub fn has_room(&self, place: HeldPlace, len: u32) -> bool {
        let most_of = |packets: u32| u64::from(packets) * PACKET_BYTES;
        let held = [Direction::Forward, Direction::Reverse]
            .map(|direction| self.ranges(place, direction).map(HeldRange::len).sum::<u64>());
        self.fits(self.limits.session, self.len_of(place), 0)
            && held[0] + held[1] + u64::from(len) <= most_of(self.limits.session)
            && self.segment_bytes + u64::from(len) <= most_of(self.limits.worker)
    }

    /// Returns the number of packets of all sessions that a function holds, or has released and that have not
    /// gone on.
    pub fn len_of_state(&self, state: u32) -> u32 {
        self.of_states.get(state as usize).copied().unwrap_or(0)
    }

    /// Returns the most packets of a session.
    pub fn session_limit(&self) -> u32 {
        self.limits.session
    }

    /// Returns the number of packets that a function holds of a session, or has released and that have not
    /// gone on.
    pub fn len_of(&self, place: HeldPlace) -> u32 {
        self.queues.get(&place).map_or(0, Queue::len)
    }

    /// Whether one more packet fits for a session that has `of_session` packets at a function, and `most` at
    /// most, behind `more` of all sessions.
    pub(super) fn fits(&self, most: u32, of_session: u32, more: u32) -> bool {
        of_session < most && self.len() + (more as usize) < self.limits.worker as usize
    }

    /// Whether released packets of a session and direction have not gone on.
    pub fn has_pending(&self, place: HeldPlace, direction: Direction) -> bool {
        self.queues.get(&place).is_some_and(|queue| queue.pending[direction as usize].len != 0)
    }

    /// Returns the number of held packets of a session and direction.
    pub fn held_of(&self, place: HeldPlace, direction: Direction) -> u32 {
        self.queues.get(&place).map_or(0, |queue| queue.held[direction as usize].len)
    }

    /// Returns the bytes of the first held segment.
    pub fn first_range(&self, place: HeldPlace, direction: Direction) -> Option<HeldRange> {
        let list = &self.queues.get(&place)?.held[direction as usize];
        list.first(&self.entries).map(|entry| entry.range)
    }

    /// Whether one held segment has all bytes of a range.
    pub fn has_range(&self, place: HeldPlace, direction: Direction, range: HeldRange) -> bool {
        self.ranges(place, direction).any(|held| held.contains(range))
    }

    /// Iterates over the bytes of the held segments, in the order of their first numbers.
    pub fn ranges(&self, place: HeldPlace, direction: Direction) -> impl Iterator<Item = HeldRange> {
        let queue = self.queues.get(&place);
        let entries = queue.map(|queue| queue.held[direction as usize].iter(&self.entries));
        entries.into_iter().flatten().map(|entry| entry.range)
    }

    /// Holds a segment in the order of sequence numbers. `stamp`: its timestamp, if it has one. Returns its
    /// ticket.
    ///
    /// # Errors
    /// See [`HeldPackets::hold`].
    pub fn hold_segment(
        &mut self,
        (place, direction): (HeldPlace, Direction),
        range: HeldRange,
        stamp: Option<u32>,
    ) -> Result<u32, DropReason> {
        let ticket = self.hold(place, direction, Some(range.from))?;
        if let Some(stamp) = stamp {
            self.note_stamp(place, direction, stamp);
        }
        if let Some(entry) = self.entries.get_mut(ticket as usize) {
            entry.range = range;
            self.segment_bytes += range.len();
        }
        Ok(ticket)
    }

    /// Notes the timestamp of a segment that waits, or goes on in front of those. Returns the latest one of
    /// all that have waited at the same time.
    pub fn note_stamp(&mut self, place: HeldPlace, direction: Direction, stamp: u32) -> Option<u32> {
        let latest = &mut self.queues.get_mut(&place)?.latest_stamp[direction as usize];
        if latest.is_none_or(|latest| is_after(stamp, latest)) {
            *latest = Some(stamp);
        }
        *latest
    }

    /// Releases the first held segment. Stream functions get the bytes of `view`. Returns the timestamp with
    /// which it goes on.
    pub fn release_segment(&mut self, place: HeldPlace, direction: Direction, view: View) -> Option<u32> {
        let stamp = self.queues.get(&place).and_then(|queue| queue.latest_stamp[direction as usize]);
        if let Some(ticket) = self.pop_held(place, direction) {
            self.set_view(ticket, view);
            if let Some(entry) = self.entries.get_mut(ticket as usize) {
                entry.stamp = stamp;
            }
            self.add_pending(place, direction, ticket);
        }
        stamp
    }

    /// Drops the first held segment.
    pub fn drop_segment(&mut self, place: HeldPlace, direction: Direction, reason: DropReason) {
        if let Some(ticket) = self.pop_held(place, direction) {
            self.drop_later(ticket, reason);
            self.remove_empty(place);
        }
    }

    /// Notes what stream functions get of a packet.
    pub fn set_view(&mut self, ticket: u32, view: View) {
        if let Some(entry) = self.entries.get_mut(ticket as usize) {
            entry.view = view;
        }
    }
}
