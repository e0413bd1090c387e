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
        let queue = self.queues.get(&place);
        let held = queue.map_or(0, |queue| queue.held.iter().map(|list| list.bytes).sum());
        self.fits(self.limits.session, self.len_of(place), 0)
            && held + u64::from(len) <= most_of(self.limits.session)
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
        let furthest = self.queues.get(&place).map(|queue| queue.furthest_end[direction as usize]);
        // Segments behind a gap usually come in order. Then none has to be looked at.
        furthest.is_some_and(|furthest| !is_after(range.to, furthest))
            && self.ranges(place, direction).any(|held| held.contains(range))
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
        let most = self.limits.session;
        let ticket = self.hold_within(most, (place, direction), Some(range.from), range)?;
        self.segment_bytes += range.len();
        if let Some(queue) = self.queues.get_mut(&place) {
            let is_first = queue.held[direction as usize].len == 1;
            let furthest = &mut queue.furthest_end[direction as usize];
            if is_first || is_after(range.to, *furthest) {
                *furthest = range.to;
            }
        }
        if let Some(stamp) = stamp {
            self.note_stamp(place, direction, stamp);
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

#[cfg(test)]
mod tests {
    use mmb_flow::HeldLimits;
    use proptest::prelude::*;

    use super::*;
    use crate::held::OUTER_SPACE;

    const PLACE: HeldPlace = HeldPlace { space: OUTER_SPACE, session: 7, state: 3 };

    proptest! {
        /// Segments come in any order, go on, are dropped and time out. What is known of them without a look
        /// at each is what a look at each tells.
        #[test]
        fn bytes_and_ends_are_those_of_the_segments(
            start: u32,
            steps in prop::collection::vec((0..6u8, 0..2usize, 0..4000u32, 0..300u32), 0..60),
        ) {
            let limits = HeldLimits { session: 20, worker: 30 };
            let mut held = HeldPackets::with_limits(limits);
            for (now, (step, direction, from, len)) in steps.into_iter().enumerate() {
                let direction = [Direction::Forward, Direction::Reverse][direction];
                let from = start.wrapping_add(from);
                let range = HeldRange { from, to: from.wrapping_add(len), has_fin: len % 7 == 0 };
                held.set_time(now as u32);
                let ranges: Vec<_> = [Direction::Forward, Direction::Reverse]
                    .map(|direction| held.ranges(PLACE, direction).collect::<Vec<_>>())
                    .concat();
                let bytes: u64 = ranges.iter().map(|range| range.len()).sum();
                prop_assert_eq!(held.has_room(PLACE, len), held.len_of(PLACE) < 20 && held.len() < 30
                    && bytes + u64::from(len) <= 20 * PACKET_BYTES
                    && held.segment_bytes + u64::from(len) <= 30 * PACKET_BYTES);
                let has = held.ranges(PLACE, direction).any(|held| held.contains(range));
                prop_assert_eq!(held.has_range(PLACE, direction, range), has);
                match step {
                    0 => drop(held.release_segment(PLACE, direction, View::NONE)),
                    1 => held.drop_segment(PLACE, direction, DropReason::StreamEnd),
                    2 => drop(held.expire(now as u32, 10, 2)),
                    _ if has || !held.has_room(PLACE, len) => {}
                    _ => drop(held.hold_segment((PLACE, direction), range, None)),
                }
                while let Some(event) = held.next_event() {
                    if let crate::HeldEvent::Released(ticket) = event {
                        held.finish(ticket);
                    }
                }
                let orders: Vec<_> = held.ranges(PLACE, direction).map(|range| range.from.wrapping_sub(start)).collect();
                prop_assert!(orders.is_sorted());
            }
        }
    }
}
