//! Operations on a session after its insertion.

use mmb_packet::prefetch;

use super::{INSERTIONS_AHEAD, ScratchpadPrefetch, ScratchpadStarts, Table, is_set};
use crate::fcb::{Direction, Flow, FlowFlags, FlowRef, SessionId, SessionState};
use crate::key::Key;
use crate::nat::MappingId;
use crate::track::TrackState;

/// How many half-open sessions are compared before one of them is evicted.
const EVICTION_CHOICE: usize = 4;

/// After how many new numbers of sessions memory is requested.
const MEMORY_STEP: u32 = 1024;

impl Table {
    /// Removes a session or redirect and frees its number. False if the number is not in use.
    pub fn remove(&mut self, id: SessionId) -> bool {
        if !self.is_live(id) {
            return false;
        }
        for direction in [Direction::Forward, Direction::Reverse] {
            let found = FlowRef::new(id, direction);
            let flow = self.flow_mut(found);
            if flow.is_listed() {
                flow.flags |= FlowFlags::UNINDEXED;
                let hash = self.hasher.hash(&self.flow(found).packed());
                self.index.remove(hash, found);
            }
        }
        self.timers.disarm(id);
        self.remove_embryonic(id);
        self.live[id.0 as usize / 64] &= !(1 << (id.0 % 64));
        self.len -= 1;
        self.free.push(id.0);
        true
    }

    /// Prefetches what [`Table::remove`] reads. For callers that remove several sessions together.
    pub fn prefetch_keys(&self, id: SessionId) {
        for direction in [Direction::Forward, Direction::Reverse] {
            let hash = self.hasher.hash(&self.flow(FlowRef::new(id, direction)).packed());
            prefetch::read_l2(self.index.buckets().of(hash));
        }
    }

    /// Whether a session or redirect has this number.
    #[inline]
    pub fn is_live(&self, id: SessionId) -> bool {
        is_set(&self.live, id.0)
    }

    /// Incarnation of the number: distinguishes a session from earlier and later ones with the same number.
    pub fn uid(&self, id: SessionId) -> u32 {
        self.session(id).uid()
    }

    /// The flow of a session in one direction.
    ///
    /// # Panics
    /// On [`FlowRef::NONE`].
    #[inline(always)]
    pub fn flow(&self, found: FlowRef) -> &Flow {
        self.flows.at(found.0 as usize)
    }

    /// The flow of a session in one direction, mutable.
    ///
    /// # Panics
    /// On [`FlowRef::NONE`].
    #[inline(always)]
    pub fn flow_mut(&mut self, found: FlowRef) -> &mut Flow {
        self.flows.at_mut(found.0 as usize)
    }

    /// All flows, indexed by [`FlowRef`]: for work on a whole vector.
    #[inline(always)]
    pub fn flows(&self) -> &[Flow] {
        self.flows.get()
    }

    /// All flows, mutable.
    #[inline(always)]
    pub fn flows_mut(&mut self) -> &mut [Flow] {
        self.flows.get_mut()
    }

    /// All flows, mutable, and what prefetches scratchpads meanwhile.
    #[inline(always)]
    pub fn flows_and_scratchpads(&mut self) -> (&mut [Flow], ScratchpadPrefetch<'_>) {
        (self.flows.get_mut(), self.scratchpads.prefetch())
    }

    /// The key of a flow.
    pub fn key(&self, found: FlowRef) -> Key {
        self.flow(found).key()
    }

    /// The state of a session.
    #[inline(always)]
    pub fn session(&self, id: SessionId) -> &SessionState {
        self.sessions.at(id.0 as usize)
    }

    /// The state of a session, mutable.
    #[inline(always)]
    pub fn session_mut(&mut self, id: SessionId) -> &mut SessionState {
        self.sessions.at_mut(id.0 as usize)
    }

    /// The tracker's state of a session.
    #[inline]
    pub fn track(&self, id: SessionId) -> TrackState {
        TrackState::of_parts(self.session(id).track, self.windows.get(id))
    }

    /// Stores the tracker's state of a session.
    #[inline]
    pub fn set_track(&mut self, id: SessionId, track: &TrackState) {
        let (core, windows) = track.parts();
        self.session_mut(id).track = core;
        self.windows.set(id, windows);
    }

    /// The NAT mapping of a session.
    #[inline]
    pub fn mapping(&self, id: SessionId) -> Option<MappingId> {
        self.mappings.get(id).checked_sub(1).map(MappingId)
    }

    /// Stores the NAT mapping of a session.
    #[inline]
    pub fn set_mapping(&mut self, id: SessionId, mapping: Option<MappingId>) {
        self.mappings.set(id, mapping.map_or(0, |MappingId(number)| number + 1));
    }

    /// The port that leads to the broker at which the session ends.
    #[inline]
    pub fn broker(&self, id: SessionId) -> Option<u16> {
        self.brokers.get(id).checked_sub(1).map(u16::from)
    }

    /// Makes the session one of a broker. A port above 254 cannot be stored.
    pub fn set_broker(&mut self, id: SessionId, port: u16) {
        self.brokers.set(id, u8::try_from(port).map_or(0, |port| port.wrapping_add(1)));
    }

    /// Both flows of a session, and its state.
    ///
    /// # Panics
    /// If the number exceeds the capacity.
    #[inline(always)]
    pub fn parts_mut(&mut self, id: SessionId) -> (&mut [Flow; 2], &mut SessionState) {
        let at = id.0 as usize;
        let (pairs, _) = self.flows.get_mut().as_chunks_mut::<2>();
        (&mut pairs[at], self.sessions.at_mut(at))
    }

    /// Sees to it that the scratchpad of a session has `bytes` bytes or more; bytes that it has stay. Returns
    /// `false` if that is more than the table's limit. The scratchpads of other sessions may move.
    #[inline]
    pub fn reserve_scratch(&mut self, id: SessionId, bytes: usize) -> bool {
        self.scratchpads.reserve(id, bytes, &self.live)
    }

    /// Makes the system allocate the memory of the first scratchpads with so many bytes now.
    pub fn touch_scratchpads(&mut self, bytes: usize) {
        self.scratchpads.touch(bytes);
    }

    /// The scratchpad of a session: at least as many bytes as were reserved for the session, else maybe none.
    /// It may still hold the bytes of an earlier session: see [`Table::clear_scratch`].
    #[inline]
    pub fn scratch(&self, id: SessionId) -> &[u8] {
        self.scratchpads.get(id)
    }

    /// The scratchpad of a session, mutable. It begins at a multiple of 8 bytes.
    #[inline]
    pub fn scratch_mut(&mut self, id: SessionId) -> &mut [u8] {
        self.scratchpads.get_mut(id)
    }

    /// All scratchpads, and their starts. For work on a whole vector.
    #[inline(always)]
    pub fn scratchpads_mut(&mut self) -> (&mut [u8], ScratchpadStarts<'_>) {
        self.scratchpads.all_mut()
    }

    /// Returns what prefetches scratchpads.
    #[inline(always)]
    pub fn scratchpad_prefetch(&self) -> ScratchpadPrefetch<'_> {
        self.scratchpads.prefetch()
    }

    /// Fills the scratchpad of a session with zeros and returns it.
    pub fn clear_scratch(&mut self, id: SessionId) -> &mut [u8] {
        let scratch = self.scratch_mut(id);
        scratch.fill(0);
        scratch
    }

    /// Arms the timer of a session for `deadline`, in milliseconds, less than 2^31 ahead. Replaces an earlier
    /// deadline.
    pub fn arm_timer(&mut self, id: SessionId, deadline: u32) {
        self.timers.arm(id, deadline);
    }

    /// The deadline of a session's timer, which must be armed.
    pub fn deadline(&self, id: SessionId) -> u32 {
        self.timers.deadline(id)
    }

    /// Returns the next session whose timer has expired by `now`. Its timer is disarmed: the caller arms it
    /// again or removes the session. `budget` decreases by one for each session that is returned, and for
    /// each group of timers that is examined. At zero the result is none.
    pub fn next_expired(&mut self, now: u32, budget: &mut u32) -> Option<SessionId> {
        let id = self.timers.due(now, budget);
        if let Some(next) = self.timers.next() {
            self.prefetch_session(next);
        }
        id
    }

    /// Removes a session from those that are half open. It is then no longer a candidate for eviction.
    pub fn remove_embryonic(&mut self, id: SessionId) {
        self.half_open.remove(id.0);
    }

    /// Whether a session is half open.
    pub fn is_embryonic(&self, id: SessionId) -> bool {
        self.half_open.contains(id.0)
    }

    /// An old half-open session: the one to remove if the table is full. The next call returns another one.
    pub fn eviction_candidate(&mut self) -> Option<SessionId> {
        let after = |hand| self.half_open.next(hand).or_else(|| self.half_open.next(0));
        let first = after(self.hand)?;
        let (mut oldest, mut next) = (first, first);
        for _ in 1..EVICTION_CHOICE {
            next = after(next + 1)?;
            let created = |number| self.session(SessionId(number)).created;
            if (created(next).wrapping_sub(created(oldest)) as i32) < 0 {
                oldest = next;
            }
        }
        self.hand = first + 1;
        Some(SessionId(oldest))
    }

    /// The first session or redirect with a number of at least `cursor`. For dumps.
    pub fn next_session(&self, cursor: u32) -> Option<SessionId> {
        let mut at = cursor as usize / 64;
        let mut word = self.live.get(at)? & u64::MAX << (cursor % 64);
        while word == 0 {
            at += 1;
            word = *self.live.get(at)?;
        }
        Some(SessionId(at as u32 * 64 + word.trailing_zeros()))
    }

    /// Lets the index grow with the number of keys.
    #[inline(always)]
    pub(super) fn grow_index(&mut self) {
        let Table { index, hasher, flows, .. } = self;
        let flows = flows.get();
        let flow = |found: FlowRef| &flows[found.0 as usize];
        index.grow(|found| hasher.hash(&flow(found).packed()), |found| prefetch::read(flow(found)));
    }

    /// The number of the next session, or of the one `ahead` sessions later.
    fn free_number(&self, ahead: usize) -> Option<SessionId> {
        let id = match self.free.len().checked_sub(1 + ahead) {
            Some(at) => *self.free.get(at)?,
            None => self.fresh + (ahead - self.free.len()) as u32,
        };
        (id < self.capacity).then_some(SessionId(id))
    }

    /// The number of the next session.
    pub(super) fn next_free(&self) -> Option<SessionId> {
        self.free_number(0)
    }

    /// Marks the number of the next session as used.
    pub(super) fn take(&mut self, id: SessionId) {
        if self.free.pop().is_none() {
            self.fresh += 1;
            if self.fresh.is_multiple_of(MEMORY_STEP) {
                self.request_memory();
            }
        }
        self.live[id.0 as usize / 64] |= 1 << (id.0 % 64);
        self.len += 1;
    }

    /// Requests the memory of the next sessions.
    #[cold]
    fn request_memory(&mut self) {
        let sessions = self.fresh as usize;
        self.flows.request_next(2 * sessions);
        self.sessions.request_next(sessions);
        self.timers.request_next(sessions);
        self.windows.request_next(sessions);
        self.mappings.request_next(sessions);
        self.brokers.request_next(sessions);
    }

    /// Prefetches the memory of a later session.
    pub(super) fn prefetch_free(&self) {
        if let Some(id) = self.free_number(INSERTIONS_AHEAD) {
            self.prefetch_session(id);
        }
    }

    fn prefetch_session(&self, id: SessionId) {
        prefetch::read(self.session(id));
        prefetch::read(self.timers.place(id));
        self.mappings.prefetch(id);
        for direction in [Direction::Forward, Direction::Reverse] {
            prefetch::read(self.flow(FlowRef::new(id, direction)));
        }
    }
}
