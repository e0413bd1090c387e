//! What becomes of a session in the table once it is entered.

use mmb_packet::prefetch;

use super::{INSERTIONS_AHEAD, NONE, Table, state};
use crate::fcb::{Direction, Flow, FlowRef, SessionId, SessionState, flow_flags};
use crate::key::Key;

impl Table {
    /// Takes a session or redirect out and gives its number back. False: there was none.
    pub fn remove(&mut self, id: SessionId) -> bool {
        if !self.is_live(id) {
            return false;
        }
        let one_key = self.session(id).table_flags & state::ONE_KEY != 0;
        for direction in
            [Direction::Forward, Direction::Reverse].into_iter().take(if one_key { 1 } else { 2 })
        {
            let found = FlowRef::new(id, direction);
            let hash = self.hasher.hash(&self.flow(found).packed());
            self.index.remove(hash, found);
        }
        for direction in [Direction::Forward, Direction::Reverse] {
            self.flow_mut(FlowRef::new(id, direction)).flags |= flow_flags::UNINDEXED;
        }
        self.disarm(id);
        self.remove_embryonic(id);
        self.live[id.0 as usize / 64] &= !(1 << (id.0 % 64));
        self.len -= 1;
        self.free.push(id.0);
        true
    }

    /// Asks for the memory that [`Table::remove`] will look at: for all of several sessions that are to be removed.
    pub fn prefetch_keys(&self, id: SessionId) {
        for direction in [Direction::Forward, Direction::Reverse] {
            let hash = self.hasher.hash(&self.flow(FlowRef::new(id, direction)).packed());
            prefetch::read(self.index.buckets().of(hash));
        }
    }

    /// Whether there is a session or redirect of that number.
    #[inline]
    pub fn is_live(&self, id: SessionId) -> bool {
        self.live.get(id.0 as usize / 64).is_some_and(|word| word >> (id.0 % 64) & 1 != 0)
    }

    /// How often the session's number had been given out when it began: tells it from earlier and later ones.
    pub fn uid(&self, id: SessionId) -> u32 {
        self.session(id).uid
    }

    /// One direction of a session.
    ///
    /// # Panics
    /// On [`FlowRef::NONE`].
    #[inline(always)]
    pub fn flow(&self, found: FlowRef) -> &Flow {
        &self.halves.get()[found.0 as usize]
    }

    /// One direction of a session.
    ///
    /// # Panics
    /// On [`FlowRef::NONE`].
    #[inline(always)]
    pub fn flow_mut(&mut self, found: FlowRef) -> &mut Flow {
        &mut self.halves.get_mut()[found.0 as usize]
    }

    /// All halves, by [`FlowRef`]'s number: for work on a whole vector.
    #[inline(always)]
    pub fn flows_mut(&mut self) -> &mut [Flow] {
        self.halves.get_mut()
    }

    /// The key of a direction.
    pub fn key(&self, found: FlowRef) -> Key {
        self.flow(found).key()
    }

    /// What a session's directions share.
    #[inline(always)]
    pub fn session(&self, id: SessionId) -> &SessionState {
        &self.commons.get()[id.0 as usize]
    }

    /// What a session's directions share.
    #[inline(always)]
    pub fn session_mut(&mut self, id: SessionId) -> &mut SessionState {
        &mut self.commons.get_mut()[id.0 as usize]
    }

    /// Both directions of a session, and what they share.
    ///
    /// # Panics
    /// If there is no room for a session of that number.
    #[inline(always)]
    pub fn parts_mut(&mut self, id: SessionId) -> (&mut [Flow; 2], &mut SessionState) {
        let at = id.0 as usize;
        let (pairs, _) = self.halves.get_mut().as_chunks_mut::<2>();
        (&mut pairs[at], &mut self.commons.get_mut()[at])
    }

    /// A session's scratchpad: what was last written there, be it for an earlier session; see [`Table::clear_scratch`].
    #[inline]
    pub fn scratch(&self, id: SessionId) -> &[u8] {
        let at = id.0 as usize * self.stride;
        &self.scratch.get()[at..at + self.stride]
    }

    /// A session's scratchpad, likewise. It begins at a multiple of 8 bytes.
    #[inline]
    pub fn scratch_mut(&mut self, id: SessionId) -> &mut [u8] {
        let at = id.0 as usize * self.stride;
        &mut self.scratch.get_mut()[at..at + self.stride]
    }

    /// All scratchpads, and the bytes from one to the next: that of a session begins at its number times these. For work
    /// on a whole vector.
    #[inline(always)]
    pub fn scratchpads_mut(&mut self) -> (&mut [u8], usize) {
        (self.scratch.get_mut(), self.stride)
    }

    /// The same, to be read.
    #[inline(always)]
    pub fn scratchpads(&self) -> (&[u8], usize) {
        (self.scratch.get(), self.stride)
    }

    /// Asks for the beginning of a session's scratchpad.
    #[inline(always)]
    pub fn prefetch_scratch(&self, id: SessionId) {
        if let Some(byte) = self.scratch.get().get(id.0 as usize * self.stride) {
            prefetch::read(byte);
        }
    }

    /// A session's scratchpad, filled with zeros: for a session that begins to use it.
    pub fn clear_scratch(&mut self, id: SessionId) -> &mut [u8] {
        let scratch = self.scratch_mut(id);
        scratch.fill(0);
        scratch
    }

    /// Arms a session's timer for `deadline` (milliseconds, less than 2^31 ahead), in place of what it was armed for.
    pub fn arm_timer(&mut self, id: SessionId, deadline: u32) {
        self.disarm(id);
        let commons = self.commons.get_mut();
        commons[id.0 as usize].expires = deadline;
        self.wheel.arm(commons, id);
    }

    /// The same of a session that has just been entered.
    pub(super) fn arm_new(&mut self, id: SessionId, deadline: u32) {
        let commons = self.commons.get_mut();
        commons[id.0 as usize].expires = deadline;
        self.wheel.arm(commons, id);
    }

    fn disarm(&mut self, id: SessionId) {
        self.wheel.disarm(self.commons.get_mut(), id);
    }

    /// What a session's timer was last armed for.
    pub fn deadline(&self, id: SessionId) -> u32 {
        self.session(id).expires
    }

    /// The next session whose timer has gone off by `now`, no longer armed: the caller arms it again or removes it.
    /// `budget` goes down by one for each that is returned or moved inside of the wheel; nothing comes at zero.
    pub fn next_expired(&mut self, now: u32, budget: &mut u32) -> Option<SessionId> {
        let id = self.wheel.due(self.commons.get_mut(), now, budget);
        if let Some(next) = self.wheel.next() {
            self.prefetch_session(next);
        }
        id
    }

    /// Takes a session out of the list of half-open ones: it will not have to make room for others.
    pub fn remove_embryonic(&mut self, id: SessionId) {
        let common = self.session_mut(id);
        if common.table_flags & state::EMBRYONIC == 0 {
            return;
        }
        common.table_flags &= !state::EMBRYONIC;
        let [before, behind] = common.embryonic;
        match before {
            NONE => self.embryonic[0] = behind,
            before => self.session_mut(SessionId(before)).embryonic[1] = behind,
        }
        match behind {
            NONE => self.embryonic[1] = before,
            behind => self.session_mut(SessionId(behind)).embryonic[0] = before,
        }
        self.embryonic_len -= 1;
    }

    /// Whether a session is half open.
    pub fn is_embryonic(&self, id: SessionId) -> bool {
        self.session(id).table_flags & state::EMBRYONIC != 0
    }

    /// The oldest half-open session: the one to remove if room is needed.
    pub fn eviction_candidate(&self) -> Option<SessionId> {
        (self.embryonic[0] != NONE).then_some(SessionId(self.embryonic[0]))
    }

    /// The first session or redirect from number `cursor` on: for dumps, which ask for the one behind it next.
    pub fn next_session(&self, cursor: u32) -> Option<SessionId> {
        let mut at = cursor as usize / 64;
        let mut word = self.live.get(at)? & u64::MAX << (cursor % 64);
        while word == 0 {
            at += 1;
            word = *self.live.get(at)?;
        }
        Some(SessionId(at as u32 * 64 + word.trailing_zeros()))
    }

    /// Has the index keep up with the keys.
    #[inline(always)]
    pub(super) fn grow_index(&mut self) {
        let Table { index, hasher, halves, .. } = self;
        let halves = halves.get();
        let half = |found: FlowRef| &halves[found.0 as usize];
        index.grow(|found| hasher.hash(&half(found).packed()), |found| prefetch::read(half(found)));
    }

    /// At the end of the list.
    pub(super) fn join_embryonic(&mut self, id: SessionId) {
        let [_, last] = self.embryonic;
        let commons = self.commons.get_mut();
        let common = &mut commons[id.0 as usize];
        common.embryonic = [last, NONE];
        common.table_flags |= state::EMBRYONIC;
        match last {
            NONE => self.embryonic[0] = id.0,
            last => commons[last as usize].embryonic[1] = id.0,
        }
        self.embryonic[1] = id.0;
        self.embryonic_len += 1;
    }

    /// The number that the next session gets, or that of a later one.
    fn free_number(&self, ahead: usize) -> Option<SessionId> {
        let id = match self.free.len().checked_sub(1 + ahead) {
            Some(at) => *self.free.get(at)?,
            None => self.fresh + (ahead - self.free.len()) as u32,
        };
        (id < self.capacity).then_some(SessionId(id))
    }

    /// The number that the next session gets.
    pub(super) fn next_free(&self) -> Option<SessionId> {
        self.free_number(0)
    }

    /// Takes that number.
    pub(super) fn take(&mut self, id: SessionId) {
        if self.free.pop().is_none() {
            self.fresh += 1;
        }
        self.live[id.0 as usize / 64] |= 1 << (id.0 % 64);
        self.len += 1;
    }

    /// Asks for the memory of a session to come.
    pub(super) fn prefetch_free(&self) {
        if let Some(id) = self.free_number(INSERTIONS_AHEAD) {
            self.prefetch_session(id);
        }
    }

    fn prefetch_session(&self, id: SessionId) {
        prefetch::read(self.session(id));
        let (pairs, _) = self.halves.get().as_chunks::<2>();
        pairs[id.0 as usize].iter().for_each(prefetch::read);
    }
}
