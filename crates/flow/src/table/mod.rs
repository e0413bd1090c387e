//! The table of a worker's sessions.
//!
//! Theory of operation. All memory is taken once, when the table is made, and a session's number says where its parts lie:
//! two [`Flow`]s in one array, the [`SessionState`] part in another, its scratchpad in a third. An index finds halves by the hash
//! of their key ([`index`]); a vector of packets is looked up in passes ([`BatchLookup`]). Numbers are given out in
//! ascending order and those of ended sessions again first, the last one first, as its memory is likely to be near.
//!
//! Sessions that nothing but their first packet speaks for stand in a list in the order in which they began: from its front
//! room is made when the table is full ([`Table::eviction_candidate`]). Who removes a session releases what it holds; the table
//! knows nothing of that.
//!
//! A packet's session may live with another worker because its replies arrive there. The table then holds a *redirect*
//! in its place, which takes a number, a key and a timer, and says only which worker. Redirects stand among the half-open
//! sessions: they can be found anew.

mod batch;
#[cfg(test)]
mod batch_tests;
mod hash;
mod index;
mod recall;
mod sessions;
#[cfg(test)]
mod tests;

use std::io;

use mmb_packet::prefetch;

pub use batch::{BatchLookup, VECTOR};
use hash::{Hash, Hasher};
use index::Index;

use crate::arena::{Arena, HUGE};
use crate::fcb::{Direction, Flow, FlowRef, SessionId, SessionState, flow_flags};
use crate::key::{Key, PackedKey, reversed_tag};
use crate::wheel::{UNARMED, Wheel};

/// Most sessions that a table can have room for.
pub const MAX_CAPACITY: u32 = 1 << 29;

const NONE: u32 = u32::MAX;

/// Bytes of a cache line.
const LINE: usize = 64;

/// How many insertions before it is needed a session's memory is asked for.
const INSERTIONS_AHEAD: usize = 4;

/// Bits of [`SessionState::table_flags`].
mod state {
    /// In the list of half-open sessions.
    pub const EMBRYONIC: u8 = 1 << 0;
    /// The reverse half is not in the index: a redirect, or a session whose keys are one and the same.
    pub const ONE_KEY: u8 = 1 << 1;
}

/// Why a session was not entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InsertError {
    /// All session numbers are taken. There may be a [`Table::eviction_candidate`].
    #[error("the table is full")]
    Full,
    /// Too many keys with hashes near this one's.
    #[error("the key's part of the table is crowded")]
    Crowded,
    /// There is a session with one of the two keys.
    #[error("there is a session with that key")]
    Taken(FlowRef),
}

/// A key as the table looks for it, with its hash: what [`Table::find_with_hash`] has found out, to be used once more.
#[derive(Clone, Copy, Debug, Default)]
pub struct HashedKey {
    key: PackedKey,
    hash: Hash,
}

/// The key of the other direction.
#[inline(always)]
fn reversed(key: &PackedKey) -> PackedKey {
    let [[s0, s1, d0, d1], [tag, proto, ..]]: [[u8; 4]; 2] = bytemuck::cast(key.head[1]);
    let tag = bytemuck::cast([[d0, d1, s0, s1], [reversed_tag(tag), proto, 0, 0]]);
    match key.tail {
        [a, b, c] if key.is_ip6() => PackedKey { head: [b, tag], tail: [c, key.head[0], a] },
        tail => PackedKey { head: [key.head[0].rotate_left(32), tag], tail },
    }
}

/// How full a table is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableOccupancy {
    /// Sessions, redirects among them.
    pub sessions: u32,
    /// Room for so many.
    pub capacity: u32,
    /// Sessions that are only half open, and redirects.
    pub embryonic: u32,
    /// Keys outside of their bucket, which take longer to find.
    pub displaced: u32,
    /// Timers that are armed.
    pub timers: u32,
}

/// The sessions of one worker. See the module's theory of operation.
#[derive(Debug)]
pub struct Table {
    hasher: Hasher,
    index: Index,
    halves: Arena<Flow>,
    commons: Arena<SessionState>,
    scratch: Arena<u8>,
    /// Bytes from one scratchpad to the next.
    stride: usize,
    /// A bit for each session that lives.
    live: Vec<u64>,
    capacity: u32,
    len: u32,
    /// Numbers from here on were never given out.
    fresh: u32,
    /// Numbers that were given back, the last one last.
    free: Vec<u32>,
    /// First and last of the half-open sessions.
    embryonic: [u32; 2],
    embryonic_len: u32,
    wheel: Wheel,
}

impl Table {
    /// A table for `capacity` sessions (1 to [`MAX_CAPACITY`]; others are brought into these bounds), each with a
    /// scratchpad of `scratch_bytes` bytes, rounded up to 8, from 64 on to 64. The seed is a secret: who knows it can make keys collide.
    ///
    /// # Errors
    /// The system's, if there is not as much address space.
    pub fn new(capacity: u32, scratch_bytes: usize, seed: u64) -> io::Result<Table> {
        let capacity = capacity.clamp(1, MAX_CAPACITY);
        // Those of a cache line and more begin with one: what is used first is then in one line.
        let stride = scratch_bytes.next_multiple_of(if scratch_bytes < LINE { 8 } else { LINE });
        let count = capacity as usize;
        let scratch = count.checked_mul(stride).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut halves = Arena::new(count * 2)?;
        let mut commons = Arena::new(count)?;
        let mut scratch = Arena::new(scratch)?;
        // These fill from the front.
        halves.touch(HUGE);
        commons.touch(HUGE);
        scratch.touch(HUGE);
        Ok(Table {
            hasher: Hasher::new(seed),
            index: Index::new(capacity * 2)?,
            halves,
            commons,
            scratch,
            stride,
            live: vec![0; count.div_ceil(64)],
            capacity,
            len: 0,
            fresh: 0,
            free: Vec::with_capacity(count),
            embryonic: [NONE; 2],
            embryonic_len: 0,
            wheel: Wheel::new(),
        })
    }

    /// Sessions, redirects among them.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Room for so many sessions.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Bytes of memory when all sessions are in use.
    pub fn bytes(&self) -> usize {
        let parts =
            [size_of_val(self.halves.get()), size_of_val(self.commons.get()), size_of_val(&*self.live)];
        parts.iter().sum::<usize>()
            + self.scratch.get().len()
            + self.index.bytes()
            + self.capacity as usize * size_of::<u32>()
    }

    /// How full the table is.
    pub fn occupancy(&self) -> TableOccupancy {
        TableOccupancy {
            sessions: self.len,
            capacity: self.capacity,
            embryonic: self.embryonic_len,
            displaced: self.index.displaced(),
            timers: self.wheel.armed(),
        }
    }

    /// Finds a session and the direction by the key of a packet.
    pub fn find(&self, key: &Key) -> FlowRef {
        let key = key.pack();
        self.find_hashed(&key, self.hasher.hash(&key))
    }

    /// Asks for the memory that [`Table::find`] and [`Table::insert`] of the key will look at.
    pub fn prefetch(&self, key: &Key) {
        prefetch::read(self.index.buckets().of(self.hasher.hash(&key.pack())));
    }

    /// Prefetches the index entries of the replies to some packets of a vector, as if all of them opened sessions.
    ///
    /// `translated_source` predicts the source address and port of a packet after translation, in network byte order;
    /// none if the source stays.
    pub fn prefetch_replies(
        &self,
        lookups: &BatchLookup,
        packets: impl Iterator<Item = usize>,
        translated_source: impl Fn(&PackedKey) -> Option<([u8; 4], [u8; 2])>,
    ) {
        let buckets = self.index.buckets();
        for at in packets {
            let key = lookups.packed(at);
            let mut reply = reversed(&key);
            if let Some((address, port)) = translated_source(&key) {
                let [from, _]: [[u8; 4]; 2] = bytemuck::cast(reply.head[0]);
                let [[a, b, ..], tag]: [[u8; 4]; 2] = bytemuck::cast(reply.head[1]);
                reply.head =
                    [bytemuck::cast([from, address]), bytemuck::cast([[a, b, port[0], port[1]], tag])];
            }
            prefetch::read(buckets.of(self.hasher.hash(&reply)));
        }
    }

    /// The same as [`Table::find`], and what a session with the key is entered by if there is none.
    #[inline]
    pub fn find_with_hash(&self, key: &Key) -> (FlowRef, HashedKey) {
        let key = key.pack();
        let hash = self.hasher.hash(&key);
        (self.find_hashed(&key, hash), HashedKey { key, hash })
    }

    #[inline]
    fn find_hashed(&self, key: &PackedKey, hash: Hash) -> FlowRef {
        self.index.find(hash, |found| self.flow(found).is(&key.head, &key.tail))
    }

    /// Enters a session that begins `now` (milliseconds) with the keys of its directions. It is half open until it is
    /// settled ([`Table::remove_embryonic`]), its timer is not armed, its halves and common part are zeros but for the keys, the
    /// time and the number of the mapping, which is none.
    ///
    /// # Errors
    /// See [`InsertError`]; the table is as before then.
    pub fn insert(&mut self, forward: &Key, reverse: &Key, now: u32) -> Result<SessionId, InsertError> {
        self.insert_hashed(&self.seek_free(forward)?, Some(reverse), now)
    }

    /// The same of a session whose forward key has been sought ([`Table::find_with_hash`]) and not found, and not been entered since.
    /// Without a reverse key it is the same ends'.
    ///
    /// # Errors
    /// As [`Table::insert`].
    pub fn insert_hashed(
        &mut self,
        forward: &HashedKey,
        reverse: Option<&Key>,
        now: u32,
    ) -> Result<SessionId, InsertError> {
        let id = self.enter_both(forward, reverse, now)?;
        self.join_embryonic(id);
        Ok(id)
    }

    /// The same of a session of which more is known: until when it lives if no packet comes, and whether it is half open.
    ///
    /// # Errors
    /// As [`Table::insert`].
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
            self.join_embryonic(id);
        }
        self.arm_new(id, deadline);
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
        let hash = self.hasher.hash(&reverse);
        match self.find_hashed(&reverse, hash) {
            FlowRef::NONE => self.enter(forward, Some(&HashedKey { key: reverse, hash }), now),
            found => Err(InsertError::Taken(found)),
        }
    }

    /// Enters a redirect: packets with that key go to another worker.
    ///
    /// # Errors
    /// As [`Table::insert`].
    pub fn insert_redirect(&mut self, key: &Key, worker: u16, now: u32) -> Result<SessionId, InsertError> {
        let id = self.enter(&self.seek_free(key)?, None, now)?;
        self.join_embryonic(id);
        let half = self.flow_mut(FlowRef::new(id, Direction::Forward));
        half.flags |= flow_flags::REDIRECT;
        half.set_decision(u32::from(worker));
        Ok(id)
    }

    /// The worker that a redirect names; none if this is a session.
    pub fn redirect_worker(&self, found: FlowRef) -> Option<u16> {
        let half = self.flow(found);
        (half.flags & flow_flags::REDIRECT != 0).then_some(half.decision() as u16)
    }

    /// Puts keys into the index and writes the parts; neither the half-open ones nor the timers know of it yet.
    #[inline]
    fn enter(
        &mut self,
        forward: &HashedKey,
        reverse: Option<&HashedKey>,
        now: u32,
    ) -> Result<SessionId, InsertError> {
        let id = self.next_free().ok_or(InsertError::Full)?;
        let [there, home] = [Direction::Forward, Direction::Reverse].map(|d| FlowRef::new(id, d));
        if !self.index.insert(forward.hash, there) {
            return Err(InsertError::Crowded);
        }
        if reverse.is_some_and(|reverse| !self.index.insert(reverse.hash, home)) {
            self.index.remove(forward.hash, there);
            return Err(InsertError::Crowded);
        }
        self.take(id);
        let (halves, common) = self.parts_mut(id);
        let flags = if reverse.is_none() { flow_flags::UNINDEXED } else { 0 };
        *halves = [
            Flow { last_seen: now, ..Flow::new(&forward.key) },
            Flow { last_seen: now, flags, ..Flow::new(&reverse.unwrap_or(forward).key) },
        ];
        *common = SessionState {
            timer: UNARMED,
            created: now,
            mapping: NONE,
            table_flags: if reverse.is_none() { state::ONE_KEY } else { 0 },
            uid: common.uid.wrapping_add(1),
            ..SessionState::default()
        };
        self.wheel.start(now);
        self.grow_index();
        self.prefetch_free();
        Ok(id)
    }

    /// A key that no session has.
    fn seek_free(&self, key: &Key) -> Result<HashedKey, InsertError> {
        match self.find_with_hash(key) {
            (FlowRef::NONE, sought) => Ok(sought),
            (found, _) => Err(InsertError::Taken(found)),
        }
    }
}
