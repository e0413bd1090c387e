//! The heads of requests that are being read, and those that servers have not acknowledged yet.
//!
//! Theory of operation. A packet without session may be processed by any worker, and a session may live with
//! another worker than the one that has read its request. So all workers share the heads. A head is found by
//! the key of its client's packets: the hash of the key names a set with a few places. A set has a lock that
//! is only tried, never waited for. A packet that finds it taken counts as lost, and its sender repeats it.
//!
//! The bytes of a head fit a place. The memory is reserved when the instance is made. A place is written for
//! the first time when it is used, the first places of a set before the others.

use std::hash::Hasher;
use std::sync::{Mutex, MutexGuard, TryLockError};

use mmb_flow::Key;
use mmb_http::Connection;
use siphasher::sip::SipHasher13;

use crate::shared::handshake::Proven;

/// Most bytes of a head, and what is kept of the bytes behind it.
pub(super) const MOST_HEAD: usize = 16_384;
/// Places of a set, and number of sets.
const WAYS: usize = 8;
const SETS: usize = 256;

/// What becomes of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// The place is free.
    #[default]
    Free,
    /// The head is not complete.
    Reading,
    /// The head is complete, and a server is to be chosen.
    Complete,
    /// A server is chosen, and a session opens or is open.
    Chosen,
    /// The client gets an answer from mmb.
    Answered,
}

/// The answers that clients get from mmb.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum AnswerKind {
    #[default]
    Unavailable,
    BadRequest,
    TooLarge,
    Timeout,
}

/// A head.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Head {
    pub key: Option<Key>,
    pub phase: Phase,
    /// What the client has proven.
    pub proven: Proven,
    /// Distinguishes the head from earlier and later ones in its place.
    pub serial: u32,
    /// When the client has begun to send it, or its session has opened, in milliseconds of a worker's clock.
    pub since: u32,
    /// When the server has got the last SYN, by the clock of the session's worker.
    pub last_syn: u32,
    pub connection: Connection,
    /// Bytes that are kept, and those that the client knows to be received.
    pub len: u16,
    pub acked: u16,
    /// Number of the group and of the back end in it.
    pub group: Option<u8>,
    pub backend: u16,
    /// The back ends of the group that have not answered, by bits.
    pub tried: [u64; 4],
    /// Connections to servers that did not know them any more.
    pub reconnects: u8,
    /// A session uses the head.
    pub has_session: bool,
    pub answer: AnswerKind,
    /// The request that is answered is HEAD.
    pub is_head: bool,
    /// While the client is answered: the next number that it will send.
    pub received: u32,
}

impl Head {
    /// Returns the number of its first byte.
    pub fn start(&self) -> u32 {
        self.proven.isn.wrapping_add(1)
    }

    /// Returns the number behind its last byte.
    pub fn next(&self) -> u32 {
        self.start().wrapping_add(self.len.into())
    }

    /// Notes that a back end of the group has not answered.
    pub fn set_tried(&mut self, backend: u16) {
        if let Some(word) = self.tried.get_mut(usize::from(backend / 64)) {
            *word |= 1 << (backend % 64);
        }
    }

    pub fn was_tried(&self, backend: u16) -> bool {
        self.tried.get(usize::from(backend / 64)).is_some_and(|word| word & 1 << (backend % 64) != 0)
    }

    /// The place is free again.
    pub fn free(&mut self) {
        *self = Head { serial: self.serial.wrapping_add(1), ..Head::default() };
    }

    fn is_expired(&self, now: u32, timeout: u32) -> bool {
        !self.has_session && now.wrapping_sub(self.since) > timeout
    }
}

/// Some places for heads.
#[derive(Debug)]
pub(super) struct HeadSet {
    heads: [Head; WAYS],
    bytes: Vec<u8>,
}

impl HeadSet {
    fn new() -> HeadSet {
        HeadSet { heads: [Head::default(); WAYS], bytes: Vec::with_capacity(WAYS * MOST_HEAD) }
    }

    /// Returns the place of the head of a client.
    pub fn find(&self, key: &Key) -> Option<usize> {
        self.heads.iter().position(|head| head.key.as_ref() == Some(key))
    }

    /// Begins a head, in the place of an earlier one of the client, in a free place, or in that of a head
    /// that is older than `timeout`. None: there is no place.
    pub fn insert(&mut self, key: &Key, proven: Proven, now: u32, timeout: u32) -> Option<usize> {
        let is_free = |head: &Head| head.key.is_none();
        let way = self
            .find(key)
            .or_else(|| self.heads.iter().position(is_free))
            .or_else(|| self.heads.iter().position(|head| head.is_expired(now, timeout)))?;
        let head = self.heads.get_mut(way)?;
        head.free();
        (head.key, head.phase, head.proven, head.since) = (Some(*key), Phase::Reading, proven, now);
        Some(way)
    }

    /// Returns a head and its room.
    pub fn get(&mut self, way: usize) -> Option<(&mut Head, &mut [u8])> {
        let (head, end) = (self.heads.get_mut(way)?, (way + 1) * MOST_HEAD);
        if self.bytes.len() < end {
            // Within what is reserved.
            self.bytes.resize(end, 0);
        }
        Some((head, self.bytes.get_mut(end - MOST_HEAD..end)?))
    }
}

/// The place of a head, as a session notes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeadPlace {
    pub number: u16,
    pub serial: u32,
}

/// All heads of an instance.
#[derive(Debug)]
pub(super) struct Heads {
    sets: Vec<Mutex<HeadSet>>,
    seed: u64,
}

impl Heads {
    pub fn new(seed: u64) -> Heads {
        Heads { sets: (0..SETS).map(|_| Mutex::new(HeadSet::new())).collect(), seed }
    }

    fn set_of(&self, key: &Key) -> usize {
        let mut hasher = SipHasher13::new_with_keys(self.seed, 0);
        hasher.write(bytemuck::bytes_of(key));
        hasher.finish() as usize % SETS
    }

    fn lock(&self, set: usize) -> Option<MutexGuard<'_, HeadSet>> {
        match self.sets.get(set)?.try_lock() {
            Ok(set) => Some(set),
            Err(TryLockError::Poisoned(set)) => Some(set.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Calls a closure with the set of a key. None: another worker uses it now.
    pub fn with<R>(&self, key: &Key, f: impl FnOnce(&mut HeadSet) -> R) -> Option<R> {
        Some(f(&mut *self.lock(self.set_of(key))?))
    }

    /// Returns how a session notes a head of a key.
    pub fn place(&self, key: &Key, way: usize, serial: u32) -> HeadPlace {
        HeadPlace { number: (self.set_of(key) * WAYS + way) as u16, serial }
    }

    /// Calls a closure with a head and its bytes. None: it is gone, or another worker uses the set now.
    pub fn at<R>(&self, place: HeadPlace, f: impl FnOnce(&mut Head, &[u8]) -> R) -> Option<R> {
        let number = usize::from(place.number);
        let mut set = self.lock(number / WAYS)?;
        let (head, bytes) = set.get(number % WAYS)?;
        (head.serial == place.serial).then(|| f(head, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> Key {
        let mut bytes = [number; size_of::<Key>()];
        bytes[0] = 1;
        bytemuck::pod_read_unaligned(&bytes)
    }

    #[test]
    fn a_set_has_so_many_places_and_replaces_what_is_too_old() {
        let mut set = HeadSet::new();
        let room = set.bytes.as_ptr();
        for number in 0..WAYS as u8 {
            let way = set.insert(&key(number), Proven::default(), number.into(), 100).expect("a place");
            assert_eq!((set.find(&key(number)), usize::from(number)), (Some(way), way));
        }
        assert_eq!(set.insert(&key(99), Proven::default(), 100, 100), None);
        assert_eq!(
            set.insert(&key(3), Proven::default(), 100, 100),
            Some(3),
            "another one of the same client"
        );
        set.heads[0].has_session = true;
        assert_eq!(set.insert(&key(99), Proven::default(), 101, 100), None, "a session uses the oldest one");
        assert_eq!(set.insert(&key(99), Proven::default(), 102, 100), Some(1));
        assert_eq!(set.find(&key(1)), None);
        assert!((0..WAYS).all(|way| set.get(way).is_some()) && set.get(WAYS).is_none());
        assert_eq!((set.bytes.as_ptr(), set.bytes.len()), (room, WAYS * MOST_HEAD), "nothing was allocated");
    }

    #[test]
    fn a_session_finds_its_head_until_the_place_is_used_again() {
        let heads = Heads::new(7);
        let (way, serial) = heads
            .with(&key(1), |set| {
                let way = set.insert(&key(1), Proven::default(), 0, 100).expect("a place");
                let (head, bytes) = set.get(way).expect("a head");
                bytes[0] = b'G';
                head.len = 1;
                (way, head.serial)
            })
            .expect("no other worker");
        let place = heads.place(&key(1), way, serial);
        assert_eq!(heads.at(place, |head, bytes| (head.len, bytes[0])), Some((1, b'G')));
        let inner = heads.with(&key(1), |_| heads.at(place, |_, _| ()));
        assert_eq!(inner, Some(None), "the lock is taken");
        heads.at(place, |head, _| head.free());
        assert_eq!(heads.at(place, |_, _| ()), None);
    }
}
