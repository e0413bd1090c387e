//! Buckets that all workers share, by address.
//!
//! Theory of operation. A bucket that is full remembers nothing, so its slot can be given to another key at
//! any time. Therefore nothing counts who uses a slot, and nothing has to be removed. A key belongs to a
//! group of eight slots. A session remembers its slot, and searches again if the slot has another key now. If
//! no slot of a group is full, another key shares one of them, which allows both less and never more.

use std::hash::Hasher;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use siphasher::sip::SipHasher13;

use super::bucket::Filling;
use mmb_flow::Key;
use mmb_nf::SessionKey;

/// Slots of a group.
const GROUP: usize = 8;
/// Groups of a table with a bucket for each address: 4 MiB.
const GROUPS: usize = 1 << 15;

/// What a bucket belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// A session, or addresses of sessions.
    Key(SessionKey),
    /// The instance: there is one bucket.
    Instance,
}

#[repr(align(16))]
pub(super) struct Slot {
    /// The key's hash. 0: none.
    tag: AtomicU64,
    pub bucket: AtomicU64,
}

pub(super) struct SharedBuckets {
    slots: Box<[Slot]>,
    scope: Scope,
    seed: u64,
    /// How often a key had to share the slot of another one.
    collisions: AtomicU64,
}

impl SharedBuckets {
    /// `seed` is a secret: senders cannot choose addresses that meet in a group.
    pub fn new(scope: Scope, seed: u64) -> SharedBuckets {
        let groups = if scope == Scope::Instance { 1 } else { GROUPS };
        let slots =
            (0..groups * GROUP).map(|_| Slot { tag: AtomicU64::new(0), bucket: AtomicU64::new(0) }).collect();
        SharedBuckets { slots, scope, seed, collisions: AtomicU64::new(0) }
    }

    /// Returns the tag of a session: the hash of what its bucket belongs to. Never 0.
    pub fn tag(&self, key: &Key) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.seed, 0);
        let (source, destination) = match self.scope {
            Scope::Instance => return 1,
            Scope::Key(SessionKey::Source) => (true, false),
            Scope::Key(SessionKey::Destination) => (false, true),
            Scope::Key(SessionKey::Pair | SessionKey::Session) => (true, true),
        };
        hasher.write_u8(u8::from(key.is_ip4()));
        if source {
            hasher.write(&key.source);
        }
        if destination {
            hasher.write(&key.destination);
        }
        hasher.finish().max(1)
    }

    /// Returns the slot of a tag that probably is number `hint`, and its number.
    #[inline(always)]
    pub fn slot(&self, tag: u64, hint: u32, now: u32, filling: &Filling) -> (&Slot, u32) {
        match self.slots.get(hint as usize) {
            Some(slot) if slot.tag.load(Relaxed) == tag => (slot, hint),
            _ => self.find(tag, now, filling),
        }
    }

    /// Gives back units that were taken out of a slot's bucket.
    #[inline(always)]
    pub fn give_back(&self, slot: u32, units: u64, filling: &Filling) {
        if let Some(slot) = self.slots.get(slot as usize) {
            filling.give_back(&slot.bucket, units);
        }
    }

    #[inline(never)]
    fn find(&self, tag: u64, now: u32, filling: &Filling) -> (&Slot, u32) {
        let groups = self.slots.len() / GROUP;
        let first = (tag as usize & (groups - 1)) * GROUP;
        let group = &self.slots[first..first + GROUP];
        let known = group.iter().position(|slot| slot.tag.load(Relaxed) == tag);
        let at = known.or_else(|| group.iter().position(|slot| slot.claim(tag, now, filling)));
        let at = at.unwrap_or_else(|| {
            self.collisions.fetch_add(1, Relaxed);
            (tag >> 61) as usize
        });
        (&group[at], (first + at) as u32)
    }

    /// How often a key had to share the bucket of another one.
    pub fn collisions(&self) -> u64 {
        self.collisions.load(Relaxed)
    }
}

impl Slot {
    /// Takes the slot for a tag if its bucket is full. Also true if another worker has done so.
    fn claim(&self, tag: u64, now: u32, filling: &Filling) -> bool {
        let old = self.tag.load(Relaxed);
        (old == 0 || filling.is_full(self.bucket.load(Relaxed), now))
            && self.tag.compare_exchange(old, tag, Relaxed, Relaxed).map_or_else(|now| now == tag, |_| true)
    }
}
