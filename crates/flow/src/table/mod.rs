//! The table of a worker's sessions.
//!
//! # Theory of operation
//!
//! All memory is reserved when the table is created. The number of a session determines where its parts lie:
//! two [`Flow`]s in one array, the [`SessionState`] in another, the deadline in a third (`timers`), the
//! scratchpad in a fourth (`scratchpads`). Fields that few sessions have are in arrays of their own, which
//! take memory only where they are written (`rare`). An index maps the hash of a key to a flow (`index`). The
//! packets of a vector are looked up together, in passes ([`BatchLookup`]). Session numbers are given out in
//! ascending order. Numbers of ended sessions are reused first, the latest first, since their memory is
//! probably still in a cache.
//!
//! Half-open sessions are in a set of numbers. If the table is full, the caller evicts one of them
//! ([`Table::eviction_candidate`]): a hand goes through the set in the order of numbers, and the oldest of
//! the next few is evicted. Under a flood, the new session gets the number of the evicted one, so that the
//! hand meets the sessions in the order of their age, as a queue would have them. The caller that removes a
//! session releases the session's resources. The table does not know them.
//!
//! A packet's session may belong to another worker, because replies arrive there. The table of this worker
//! then holds a *redirect*: a number, a key, a timer, the number of the other worker and a [`RedirectState`],
//! from which its lifetime follows. Redirects are in the set of half-open sessions, since they can be created
//! again.

mod batch;
mod create;
mod hash;
mod index;
mod rare;
mod recall;
mod scratchpads;
mod sessions;
#[cfg(test)]
mod tests;

use mmb_packet::prefetch;

pub use batch::{BatchLookup, VECTOR};
use hash::{Hash, Hasher};
use index::Index;
use rare::RareField;
use scratchpads::Scratchpads;
pub use scratchpads::{ScratchpadFile, ScratchpadPrefetch, ScratchpadStarts};

use crate::arena::Arena;
use crate::fcb::{Direction, Flow, FlowFlags, FlowRef, SessionId, SessionState};
use crate::key::{Key, PackedKey, reversed_tag};
use crate::numbers::NumberSet;
use crate::timers::Timers;
use crate::track::{RedirectState, TrackWindows};

/// Maximum capacity of a table, in sessions.
pub const MAX_CAPACITY: u32 = 1 << 29;

/// How many insertions ahead the memory of a new session is prefetched.
const INSERTIONS_AHEAD: usize = 4;

/// Why a session was not inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InsertError {
    /// All session numbers are in use. There may be an [eviction candidate](Table::eviction_candidate).
    #[error("the table is full")]
    Full,
    /// Too many keys have similar hashes.
    #[error("the key's part of the table is crowded")]
    Crowded,
    /// A session already has one of the two keys.
    #[error("there is a session with that key")]
    Taken(FlowRef),
}

/// A packed key with its hash, and the probable key of replies with its hash. [`Table::find_with_hash`]
/// returns it, so that an insertion does not compute it again.
#[derive(Clone, Copy, Debug, Default)]
pub struct HashedKey {
    key: PackedKey,
    hash: Hash,
    reply: HashedHead,
}

/// The head of a key, with the hash of the whole key. All zero: not known.
#[derive(Clone, Copy, Debug, Default)]
struct HashedHead {
    head: [u64; 2],
    hash: Hash,
}

impl HashedHead {
    /// The hash of an IPv4 key, if it is the one that has this head.
    #[inline(always)]
    fn hash_of(&self, key: &PackedKey) -> Option<Hash> {
        (self.head == key.head && !key.is_ip6()).then_some(self.hash)
    }
}

/// What a packet that may open a session will look up: its key, and the probable key of replies, with their
/// hashes. [`Table::foresee`] computes it.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowForecast {
    forward: HashedHead,
    reply: HashedHead,
}

/// Whether the bit of a session is set. False beyond the end.
#[inline]
fn is_set(bits: &[u64], session: u32) -> bool {
    bits.get(session as usize / 64).is_some_and(|word| word >> (session % 64) & 1 != 0)
}

/// The key of the opposite direction.
#[inline(always)]
fn reversed(key: &PackedKey) -> PackedKey {
    let [[s0, s1, d0, d1], [tag, proto, ..]]: [[u8; 4]; 2] = bytemuck::cast(key.head[1]);
    let tag = bytemuck::cast([[d0, d1, s0, s1], [reversed_tag(tag), proto, 0, 0]]);
    match key.tail {
        [a, b, c] if key.is_ip6() => PackedKey { head: [b, tag], tail: [c, key.head[0], a] },
        tail => PackedKey { head: [key.head[0].rotate_left(32), tag], tail },
    }
}

/// Fill level of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableOccupancy {
    /// Number of sessions, including redirects.
    pub sessions: u32,
    /// Maximum number of sessions.
    pub capacity: u32,
    /// Number of half-open sessions and redirects.
    pub embryonic: u32,
    /// Number of keys outside of their bucket. They take longer to find.
    pub displaced: u32,
    /// Number of armed timers.
    pub timers: u32,
}

/// The sessions of one worker. See the module's theory of operation.
#[derive(Debug)]
pub struct Table {
    hasher: Hasher,
    index: Index,
    flows: Arena<Flow>,
    sessions: Arena<SessionState>,
    scratchpads: Scratchpads,
    timers: Timers,
    /// What the window check knows.
    windows: RareField<TrackWindows>,
    /// Number of the NAT mapping, plus 1; 0: none.
    mappings: RareField<u32>,
    /// The port that leads to the broker, plus 1; 0: none.
    brokers: RareField<u8>,
    /// One bit per session: whether it is in use.
    live: Vec<u64>,
    capacity: u32,
    len: u32,
    /// Numbers from here on have never been in use.
    fresh: u32,
    /// Free numbers below `fresh`. The last is reused first.
    free: Vec<u32>,
    half_open: NumberSet,
    /// The half-open sessions before this number come last when sessions are evicted.
    hand: u32,
}

impl Table {
    /// Bytes of a session without index, scratchpad and what few sessions have: flows, state and deadline.
    pub const SESSION_BYTES: usize = size_of::<[Flow; 2]>() + size_of::<SessionState>() + size_of::<u32>();

    /// Number of sessions, including redirects.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Maximum number of sessions.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Fill level of the table.
    pub fn occupancy(&self) -> TableOccupancy {
        TableOccupancy {
            sessions: self.len,
            capacity: self.capacity,
            embryonic: self.half_open.len(),
            displaced: self.index.displaced(),
            timers: self.timers.armed(),
        }
    }

    /// Returns the flow with the key of a packet.
    pub fn find(&self, key: &Key) -> FlowRef {
        let key = key.pack();
        self.find_hashed(&key, self.hasher.hash(&key))
    }

    /// Prefetches the index entry that [`Table::find`] and [`Table::insert`] of the key read.
    pub fn prefetch(&self, key: &Key) {
        prefetch::read(self.index.buckets().of(self.hasher.hash(&key.pack())));
    }

    /// Computes what a packet with this key will look up if it opens a session, and prefetches the index
    /// entry of the reply, one of many.
    ///
    /// `source`: prediction of the source address and port of the packet after translation, in network byte
    /// order; none if the source stays.
    #[inline]
    pub fn foresee(&self, key: &PackedKey, source: Option<([u8; 4], [u8; 2])>) -> FlowForecast {
        let mut reply = reversed(key);
        if let Some((address, port)) = source {
            let [from, _]: [[u8; 4]; 2] = bytemuck::cast(reply.head[0]);
            let [[a, b, ..], tag]: [[u8; 4]; 2] = bytemuck::cast(reply.head[1]);
            reply.head = [bytemuck::cast([from, address]), bytemuck::cast([[a, b, port[0], port[1]], tag])];
        }
        let hash = self.hasher.hash(&reply);
        prefetch::read_l2(self.index.buckets().of(hash));
        FlowForecast {
            forward: HashedHead { head: key.head, hash: self.hasher.hash(key) },
            reply: HashedHead { head: reply.head, hash },
        }
    }

    /// Prefetches what a packet looks up that [`Table::foresee`] was called for: it is the next one.
    #[inline]
    pub fn prefetch_foreseen(&self, forecast: &FlowForecast) {
        for head in [&forecast.forward, &forecast.reply] {
            prefetch::read(self.index.buckets().of(head.hash));
        }
    }

    /// Returns the flow with a key, and the key with its hash for a later insertion.
    #[inline]
    pub fn find_with_hash(&self, key: &Key) -> (FlowRef, HashedKey) {
        let (found, hashed, _) = self.find_foreseen(key, None);
        (found, hashed)
    }

    /// As [`Table::find_with_hash`]. Also returns whether `forecast` is of this key.
    #[inline]
    pub fn find_foreseen(&self, key: &Key, forecast: Option<&FlowForecast>) -> (FlowRef, HashedKey, bool) {
        let key = key.pack();
        let foreseen = forecast.and_then(|forecast| Some((forecast.forward.hash_of(&key)?, forecast.reply)));
        let (hash, reply) = foreseen.unwrap_or_else(|| (self.hasher.hash(&key), HashedHead::default()));
        (self.find_hashed(&key, hash), HashedKey { key, hash, reply }, foreseen.is_some())
    }

    #[inline]
    fn find_hashed(&self, key: &PackedKey, hash: Hash) -> FlowRef {
        self.index.find(hash, |found| self.flow(found).is(&key.head, &key.tail))
    }

    /// Inserts a session with the keys of its two directions.
    ///
    /// The session is half open until [`Table::remove_embryonic`]. Its timer is not armed. Its flows and its
    /// state are zero, except for the keys and the time `now` (milliseconds).
    ///
    /// # Errors
    /// [`InsertError`]. The table is then unchanged.
    pub fn insert(&mut self, forward: &Key, reverse: &Key, now: u32) -> Result<SessionId, InsertError> {
        self.insert_hashed(&self.seek_free(forward)?, Some(reverse), now)
    }

    /// Inserts a session whose forward key was hashed by [`Table::find_with_hash`] and not found, with no
    /// insertion of that key since. Without `reverse`, the reverse key is the forward key reversed.
    ///
    /// # Errors
    /// [`InsertError`], as for [`Table::insert`].
    pub fn insert_hashed(
        &mut self,
        forward: &HashedKey,
        reverse: Option<&Key>,
        now: u32,
    ) -> Result<SessionId, InsertError> {
        let id = self.enter_both(forward, reverse, now)?;
        self.half_open.insert(id.0);
        Ok(id)
    }

    /// Inserts a session as [`Table::insert_hashed`] does, and arms its timer for `deadline`. `embryonic`:
    /// whether the session is half open.
    ///
    /// # Errors
    /// [`InsertError`], as for [`Table::insert`].
    pub fn open(
        &mut self,
        forward: &HashedKey,
        reverse: Option<&Key>,
        now: u32,
        deadline: u32,
        embryonic: bool,
    ) -> Result<SessionId, InsertError> {
        let id = self.enter_both(forward, reverse, now)?;
        if embryonic {
            self.half_open.insert(id.0);
        }
        self.timers.arm(id, deadline);
        Ok(id)
    }

    fn enter_both(
        &mut self,
        forward: &HashedKey,
        reverse: Option<&Key>,
        now: u32,
    ) -> Result<SessionId, InsertError> {
        debug_assert_eq!(self.find_hashed(&forward.key, forward.hash), FlowRef::NONE);
        let reverse = reverse.map_or_else(|| reversed(&forward.key), Key::pack);
        if reverse == forward.key {
            return self.enter(forward, None, now);
        }
        let hash = forward.reply.hash_of(&reverse).unwrap_or_else(|| self.hasher.hash(&reverse));
        match self.find_hashed(&reverse, hash) {
            FlowRef::NONE => self.enter(forward, Some((&reverse, hash)), now),
            found => Err(InsertError::Taken(found)),
        }
    }

    /// Inserts a redirect: packets with this key belong to another worker.
    ///
    /// # Errors
    /// [`InsertError`], as for [`Table::insert`].
    pub fn insert_redirect(
        &mut self,
        key: &Key,
        (worker, state): (u16, RedirectState),
        now: u32,
    ) -> Result<SessionId, InsertError> {
        let id = self.enter(&self.seek_free(key)?, None, now)?;
        self.half_open.insert(id.0);
        let redirect = FlowRef::new(id, Direction::Forward);
        self.flow_mut(redirect).flags |= FlowFlags::REDIRECT;
        self.flow_mut(redirect).set_decision(u32::from(worker));
        self.set_redirect_state(redirect, state);
        Ok(id)
    }

    /// The worker that a redirect names; none if the flow belongs to a session.
    pub fn redirect_worker(&self, found: FlowRef) -> Option<u16> {
        let flow = self.flow(found);
        (flow.flags.contains(FlowFlags::REDIRECT)).then_some(flow.decision() as u16)
    }

    /// The state of a redirect.
    pub fn redirect_state(&self, redirect: FlowRef) -> RedirectState {
        RedirectState::from_number((self.flow(redirect).decision() >> u16::BITS) as u8)
    }

    /// Stores the state of a redirect.
    pub fn set_redirect_state(&mut self, redirect: FlowRef, state: RedirectState) {
        let flow = self.flow_mut(redirect);
        flow.set_decision(flow.decision() & u32::from(u16::MAX) | (state as u32) << u16::BITS);
    }

    /// Inserts the keys into the index and writes flows and state. The caller adds the session to those that
    /// are half open, and arms its timer.
    #[inline]
    fn enter(
        &mut self,
        forward: &HashedKey,
        reverse: Option<(&PackedKey, Hash)>,
        now: u32,
    ) -> Result<SessionId, InsertError> {
        let id = self.next_free().ok_or(InsertError::Full)?;
        let [there, home] = [Direction::Forward, Direction::Reverse].map(|d| FlowRef::new(id, d));
        if !self.index.insert(forward.hash, there) {
            return Err(InsertError::Crowded);
        }
        if reverse.is_some_and(|(_, hash)| !self.index.insert(hash, home)) {
            self.index.remove(forward.hash, there);
            return Err(InsertError::Crowded);
        }
        self.take(id);
        let (flows, session) = self.parts_mut(id);
        let flags = if reverse.is_none() { FlowFlags::UNINDEXED } else { FlowFlags::empty() };
        *flows = [
            Flow { last_seen: now, ..Flow::new(&forward.key) },
            Flow { last_seen: now, flags, ..Flow::new(reverse.map_or(&forward.key, |(key, _)| key)) },
        ];
        *session = SessionState { created: now, uid: session.next_uid(), ..SessionState::default() };
        self.windows.set(id, TrackWindows::default());
        self.mappings.set(id, 0);
        self.brokers.set(id, 0);
        self.grow_index();
        self.prefetch_free();
        Ok(id)
    }

    /// A hashed key that no session has.
    fn seek_free(&self, key: &Key) -> Result<HashedKey, InsertError> {
        match self.find_with_hash(key) {
            (FlowRef::NONE, sought) => Ok(sought),
            (found, _) => Err(InsertError::Taken(found)),
        }
    }
}
