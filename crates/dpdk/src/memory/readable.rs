//! Pools whose packets another process reads where they are.
//!
//! # Theory of operation
//! The other process gets a descriptor that is open to read only, so it cannot change the headers of packets,
//! nor their bytes: the kernel refuses a mapping to write. While it reads a packet, the buffer is *pinned*:
//! its reference count is one higher. If the owner drops the packet meanwhile, the buffer goes back to the
//! pool when it is unpinned. A packet must be unpinned before it goes on, since drivers and nodes expect that
//! nobody shares it.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU16};

use mmb_dpdk_sys as sys;

use super::mempool::Mempool;

/// A pool whose packets another process can read.
#[derive(Debug)]
pub struct ReadablePool {
    pool: Mempool,
    /// Open to read only.
    file: OwnedFd,
    /// Where the pool's memory begins in the file.
    offset: u64,
    start: usize,
    bytes: usize,
    /// Finds the buffer of an address without a division: 2^64 divided by the bytes of a buffer, rounded up.
    reciprocal: u64,
    /// Whether each buffer is pinned. So a pin ends once, whatever the caller does.
    pinned: Box<[AtomicBool]>,
}

/// A frame in a pool whose buffer is pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinnedFrame {
    /// Offset of the frame from the beginning of the pool's memory.
    pub offset: u64,
    /// Number of the buffer.
    pub buffer: u32,
}

impl ReadablePool {
    /// Opens the file of a pool to read only. None: the pool has no file ([`Mempool::file`]), or the process
    /// cannot open its own descriptors (`/proc` is missing).
    pub fn new(pool: Mempool) -> Option<ReadablePool> {
        let shared = pool.file()?;
        let file = File::open(format!("/proc/self/fd/{}", shared.fd().as_raw_fd())).ok()?;
        let (offset, start, bytes) = (shared.offset(), shared.start(), shared.bytes());
        let reciprocal = u64::MAX / pool.buffer_bytes() as u64 + 1;
        let pinned = (0..pool.size()).map(|_| AtomicBool::new(false)).collect();
        Some(ReadablePool { file: file.into(), offset, start, bytes, reciprocal, pinned, pool })
    }

    /// Returns the descriptor for the other process.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Returns where the pool's memory begins in the file: a multiple of the page size.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the size of the pool's memory in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Pins the buffer with a frame, which one thread uses at a time: bytes of a packet, from one segment.
    /// None: they are not in this pool, or the buffer is pinned already.
    #[inline]
    pub fn pin(&self, frame: &[u8]) -> Option<PinnedFrame> {
        let offset = frame.as_ptr().addr().checked_sub(self.start).filter(|offset| *offset < self.bytes)?;
        let buffer = self.buffer_at(offset);
        let pinned = self.pinned.get(buffer as usize).filter(|pinned| !pinned.load(Relaxed))?;
        let header = self.header(buffer);
        // SAFETY: the header is valid, and its packet is in use: `frame` is borrowed from it. All accesses to
        // the count are atomic.
        let owners = unsafe { AtomicU16::from_ptr(&raw mut (*header).refcnt) };
        owners.fetch_add(1, Relaxed);
        pinned.store(true, Relaxed);
        Some(PinnedFrame { offset: offset as u64, buffer })
    }

    /// Ends the pin of a buffer. It goes back to the pool if its packet was dropped meanwhile. Does nothing
    /// if the buffer is not pinned.
    #[inline]
    pub fn unpin(&self, buffer: u32) {
        let is_pinned = |pinned: &&AtomicBool| pinned.swap(false, AcqRel);
        if self.pinned.get(buffer as usize).filter(is_pinned).is_none() {
            return;
        }
        let header = self.header(buffer);
        // SAFETY: the flag says that the pin is one of the owners of the buffer, and it ends here. The last
        // owner gives the buffer back, with the count that the pool expects. A packet that was dropped in
        // the meantime is cut into its segments, of which this is one.
        unsafe {
            let owners = AtomicU16::from_ptr(&raw mut (*header).refcnt);
            if owners.fetch_sub(1, AcqRel) == 1 {
                owners.store(1, Relaxed);
                sys::mmb_pktmbuf_free_seg(header);
            }
        }
    }

    /// Returns the number of the buffer at an offset.
    #[inline]
    fn buffer_at(&self, offset: usize) -> u32 {
        ((offset as u128 * u128::from(self.reciprocal)) >> 64) as u32
    }

    /// Returns the header of a buffer, which there must be.
    #[inline]
    fn header(&self, buffer: u32) -> *mut sys::rte_mbuf {
        // SAFETY: the pool is never freed; this field does not change.
        let front = unsafe { (*self.pool.raw()).header_size } as usize;
        let at = self.start + buffer as usize * self.pool.buffer_bytes() + front;
        std::ptr::with_exposed_provenance_mut(at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        /// The product with the reciprocal is the quotient, for all pools of less than 4 GiB.
        #[test]
        fn reciprocals_divide(bytes in 64_u64..70_000, offset in 0_u64..1 << 32) {
            let bytes = bytes.next_multiple_of(8);
            let reciprocal = u64::MAX / bytes + 1;
            let of = |offset: u64| ((u128::from(offset) * u128::from(reciprocal)) >> 64) as u64;
            prop_assert_eq!(of(offset), offset / bytes);
            let first = offset / bytes * bytes;
            prop_assert_eq!(of(first), first / bytes);
            prop_assert_eq!(of(first + bytes - 1), first / bytes);
        }
    }
}
