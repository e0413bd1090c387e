//! The index of the fast path: from a flow's key to its slot, in memory that kernel and process share.
//!
//! # Theory of operation
//! A table of buckets of eight lanes, each bucket a cache line. A key is mixed with secrets into 64 bits, of which two parts
//! name its two buckets and the upper half is its *tag*; a lane holds a tag and the number of a slot, or 0. The program looks at
//! all lanes of the two buckets for the packet's tag (fast_find() in bpf/fast.h). A new flow goes to the emptier one, so
//! that no flow is refused while half of the lanes are free, as they are when every slot has a flow: with each bucket on
//! its own, one in a hundred would be. The secrets keep whoever sends packets from choosing those that fall into one bucket;
//! what would come of it is that flows find no room and stay with the engine.
//!
//! Nothing depends on what is in here being right, since a slot holds its whole key (see [`crate::fast`]). Several threads
//! write, and the program reads, without locks:
//!
//! * a lane is one word, read and written as a whole;
//! * a free lane is taken by an exchange that fails where another thread was faster; who fails looks again;
//! * a lane that is taken is changed only by who took it, since a slot and its key are one thread's business at a time, and
//!   no two pairs of both have the same lane to look for: where tags are the same, slots are not;
//! * a slot is written before the lane that leads to it (release, and the program's loads are in order, as x86 does them), so
//!   that who finds a new lane finds what it leads to.

use std::ffi::CStr;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use mmb_dpdk_sys as sys;

use crate::fast_raw::{self, Key, Secrets};
use crate::xdp_map::{Mapped, create, number};

const LANES: usize = sys::STEER_FAST_LANES as usize;

/// One bucket, as `struct fast_bucket` has it.
#[derive(Debug)]
#[repr(C)]
struct Bucket([AtomicU64; LANES]);

const _: () = {
    assert!(size_of::<Bucket>() == size_of::<sys::fast_bucket>());
    assert!(sys::STEER_FAST_BUCKETS.is_power_of_two());
    // A tag has 32 of the mix's bits, and the two numbers the others.
    assert!(sys::STEER_FAST_BUCKETS <= 1 << 16);
};

impl Bucket {
    fn free(&self) -> usize {
        self.0.iter().filter(|at| at.load(Ordering::Relaxed) == 0).count()
    }

    /// Takes a free lane. False: there was none, or another thread was faster each time.
    fn put(&self, lane: u64) -> bool {
        self.0.iter().any(|at| {
            at.load(Ordering::Relaxed) == 0
                && at.compare_exchange(0, lane, Ordering::Release, Ordering::Relaxed).is_ok()
        })
    }

    /// Where a lane is.
    fn find(&self, lane: u64) -> Option<&AtomicU64> {
        self.0.iter().find(|at| at.load(Ordering::Relaxed) == lane)
    }
}

#[derive(Debug)]
pub(crate) struct Index {
    map: OwnedFd,
    /// A power of two of them.
    buckets: Mapped<Bucket>,
    mask: usize,
    secrets: Secrets,
}

impl Index {
    /// An empty one, of a size that the program knows.
    pub(crate) fn create(name: &CStr, buckets: u32) -> Result<Index, i32> {
        let map = create::<u32, Bucket>(name, sys::BPF_MAP_TYPE_ARRAY, sys::BPF_F_MMAPABLE, buckets)?;
        // SAFETY: the map was made so; a bucket is made of atomics.
        let memory = unsafe { Mapped::map(map.as_raw_fd(), buckets as usize) };
        let random = RandomState::new();
        // The upper half is as good as the lower one.
        let secrets = std::array::from_fn(|at| random.hash_one(at) as u32);
        let mask = buckets as usize - 1;
        Ok(Index { map, buckets: memory.map_err(|error| number(&error))?, mask, secrets })
    }

    pub(crate) fn map(&self) -> RawFd {
        self.map.as_raw_fd()
    }

    /// What the program has to mix keys with.
    pub(crate) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// The lane of a pair, and its two buckets, which may be the same one.
    fn place(&self, key: &Key, slot: u32) -> Option<(u64, [&Bucket; 2])> {
        let mix = fast_raw::mix(key, &self.secrets);
        let bucket = |bits: u64| self.buckets.get(bits as usize & self.mask);
        Some((mix >> 32 << 32 | u64::from(slot), [bucket(mix)?, bucket(mix >> 16)?]))
    }

    /// Has a key lead to a slot, beside others that it may lead to. False: there is no room.
    pub(crate) fn put(&self, key: &Key, slot: u32) -> bool {
        let Some((lane, [first, second])) = self.place(key, slot) else { return false };
        if first.find(lane).or_else(|| second.find(lane)).is_some() {
            return true;
        }
        loop {
            let (free, more) = (first.free(), second.free());
            if free == 0 && more == 0 {
                return false;
            }
            // Each time it fails, another thread has taken a lane.
            if if free >= more { first } else { second }.put(lane) {
                return true;
            }
        }
    }

    /// Has a key not lead to a slot any more.
    pub(crate) fn take(&self, key: &Key, slot: u32) {
        let Some((lane, [first, second])) = self.place(key, slot) else { return };
        if let Some(at) = first.find(lane).or_else(|| second.find(lane)) {
            at.store(0, Ordering::Release);
        }
    }
}

#[cfg(test)]
#[path = "fast_index_test.rs"]
mod tests;
