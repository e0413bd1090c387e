//! The index of the fast path: from a flow's key to its slot, in memory that kernel and process share.
//!
//! # Theory of operation
//! A hash table of buckets with eight lanes; a bucket is a cache line. A key is hashed with secrets to 64
//! bits. Two parts of the hash select two buckets, and the upper half is the *tag*. A lane holds a tag and a
//! slot number, or 0. The program compares all lanes of both buckets with the packet's tag (fast_lookup() in
//! bpf/fast_table.h). A new key goes to the emptier bucket, so that it finds room as long as half of the
//! lanes are free, which holds when every slot has a flow. With one bucket for a key, one key in a hundred
//! would find no room. The secrets keep senders from choosing keys that fill one bucket, which would leave
//! those flows with the engine.
//!
//! The index is a hint: a slot holds its whole key ([`super::fast_path`]). Several threads write and the
//! program reads, without locks:
//!
//! * a lane is one word, read and written as a whole;
//! * a free lane is taken by a compare-and-exchange; a thread that loses tries again;
//! * a taken lane is changed only by its owner: one thread at a time uses a slot and its key, and two pairs
//!   of key and slot never have the same lane value, since equal tags come with different slots;
//! * a slot is written before the lane that leads to it (release; the program's loads are ordered, as on
//!   x86), so that a reader of a new lane reads the new slot.

use std::ffi::CStr;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use mmb_dpdk_sys as sys;

use super::format::{self, Key, Secrets};
use super::maps::{Mapped, create, errno_of};

const LANES: usize = sys::STEER_FAST_LANES as usize;

/// One bucket (`struct fast_bucket`).
#[derive(Debug)]
#[repr(C)]
struct Bucket([AtomicU64; LANES]);

const _: () = {
    assert!(size_of::<Bucket>() == size_of::<sys::fast_bucket>());
    assert!(sys::STEER_FAST_BUCKETS.is_power_of_two());
    // The tag takes 32 bits of the hash, the two bucket numbers the other 32.
    assert!(sys::STEER_FAST_BUCKETS <= 1 << 16);
};

impl Bucket {
    fn free_lanes(&self) -> usize {
        self.0.iter().filter(|at| at.load(Ordering::Relaxed) == 0).count()
    }

    /// Writes a value to a free lane. False: there was none, or other threads took them.
    fn insert(&self, lane: u64) -> bool {
        self.0.iter().any(|at| {
            at.load(Ordering::Relaxed) == 0
                && at.compare_exchange(0, lane, Ordering::Release, Ordering::Relaxed).is_ok()
        })
    }

    /// The lane with this value.
    fn find(&self, lane: u64) -> Option<&AtomicU64> {
        self.0.iter().find(|at| at.load(Ordering::Relaxed) == lane)
    }
}

/// The index.
#[derive(Debug)]
pub(super) struct Index {
    map: OwnedFd,
    /// A power of two of them.
    buckets: Mapped<Bucket>,
    mask: usize,
    secrets: Secrets,
}

impl Index {
    /// Makes an empty index. The program must know its size.
    pub(super) fn create(name: &CStr, buckets: u32) -> Result<Index, i32> {
        let map = create::<u32, Bucket>(name, sys::BPF_MAP_TYPE_ARRAY, sys::BPF_F_MMAPABLE, buckets)?;
        // SAFETY: the map was created with this many values of this type; a bucket consists of atomics.
        let memory = unsafe { Mapped::map(map.as_raw_fd(), buckets as usize) };
        let random = RandomState::new();
        let secrets = std::array::from_fn(|at| random.hash_one(at) as u32);
        let mask = buckets as usize - 1;
        Ok(Index { map, buckets: memory.map_err(|error| errno_of(&error))?, mask, secrets })
    }

    pub(super) fn map(&self) -> RawFd {
        self.map.as_raw_fd()
    }

    /// The secrets of the hash function, which the program needs as well.
    pub(super) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// The lane value of a key and slot, and the key's two buckets, which may be the same one.
    fn locate(&self, key: &Key, slot: u32) -> Option<(u64, [&Bucket; 2])> {
        let hash = format::hash(key, &self.secrets);
        let bucket = |bits: u64| self.buckets.get(bits as usize & self.mask);
        Some((hash >> 32 << 32 | u64::from(slot), [bucket(hash)?, bucket(hash >> 16)?]))
    }

    /// Adds a slot to those of a key. False: there is no room.
    pub(super) fn insert(&self, key: &Key, slot: u32) -> bool {
        let Some((lane, [first, second])) = self.locate(key, slot) else { return false };
        if first.find(lane).or_else(|| second.find(lane)).is_some() {
            return true;
        }
        loop {
            let (free, free2) = (first.free_lanes(), second.free_lanes());
            if free == 0 && free2 == 0 {
                return false;
            }
            // Each failure means that another thread has taken a lane.
            if if free >= free2 { first } else { second }.insert(lane) {
                return true;
            }
        }
    }

    /// Removes a slot from those of a key.
    pub(super) fn remove(&self, key: &Key, slot: u32) {
        let Some((lane, [first, second])) = self.locate(key, slot) else { return };
        if let Some(at) = first.find(lane).or_else(|| second.find(lane)) {
            at.store(0, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests;
