//! Buffers into which the kernel reads a frame whose length is not known before.

use mmb_dpdk_sys as sys;

use super::mbuf::Mbuf;
use super::mempool::{CHAIN, Mempool, link_buffers};
use super::packet::describe_buffer;

/// Empty buffers of a pool. Those that a frame has filled become a packet, and are replaced before the next
/// frame.
#[derive(Debug)]
pub(crate) struct ScatterBuffers {
    /// The buffers. The first `missing` ones are not there.
    headers: Vec<*mut sys::rte_mbuf>,
    /// A place for what precedes the frame, and the buffers.
    pieces: Vec<libc::iovec>,
    missing: usize,
    /// Bytes of a buffer.
    room: usize,
}

// SAFETY: the buffers belong to this value, and pools may be used from every thread.
unsafe impl Send for ScatterBuffers {}
// SAFETY: a shared reference reads no buffer.
unsafe impl Sync for ScatterBuffers {}

impl ScatterBuffers {
    /// Buffers for frames shorter than `bytes`, or for as many as a packet can have. They are not there yet.
    pub(crate) fn new(pool: &Mempool, bytes: usize) -> ScatterBuffers {
        let room = pool.data_room().max(1);
        let n = bytes.div_ceil(room).clamp(1, CHAIN);
        let piece = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        ScatterBuffers {
            headers: vec![std::ptr::null_mut(); n],
            pieces: vec![piece; 1 + n],
            missing: n,
            room,
        }
    }

    /// Bytes of all buffers.
    pub(crate) fn capacity(&self) -> usize {
        self.headers.len() * self.room
    }

    /// Takes the missing buffers from the pool, which is always the same. False: it is exhausted.
    #[inline]
    pub(crate) fn fill(&mut self, pool: &Mempool) -> bool {
        if self.missing == 0 {
            return true;
        }
        let missing = self.missing as u32;
        // SAFETY: the pool is never freed; on success it wrote `missing` owned packets, otherwise none.
        if unsafe { sys::mmb_pktmbuf_alloc_bulk(pool.raw(), self.headers.as_mut_ptr(), missing) } != 0 {
            return false;
        }
        let headers = self.headers[..self.missing].iter();
        for (piece, header) in self.pieces[1..].iter_mut().zip(headers) {
            // SAFETY: a valid, owned and empty packet.
            *piece = unsafe { describe_buffer(*header, self.room) };
        }
        self.missing = 0;
        true
    }

    /// The buffers, behind `first`, for the kernel to write to. All are there.
    #[inline]
    pub(crate) fn pieces(&mut self, first: libc::iovec) -> &mut [libc::iovec] {
        self.pieces[0] = first;
        &mut self.pieces
    }

    /// Makes a packet of the first `n` bytes. `None` if there are not so many.
    #[inline]
    pub(crate) fn take(&mut self, n: usize) -> Option<Mbuf> {
        let count = n.div_ceil(self.room).max(1);
        let taken = self.headers.get(..count).filter(|_| self.missing == 0)?;
        self.missing = count;
        // SAFETY: the packets are valid, owned and empty, and from now on missing here.
        unsafe { link_buffers(taken, n, self.room) }
    }
}

impl Drop for ScatterBuffers {
    fn drop(&mut self) {
        let present = &mut self.headers[self.missing..];
        // SAFETY: valid and owned packets.
        unsafe { sys::mmb_pktmbuf_free_bulk(present.as_mut_ptr(), present.len() as u32) };
    }
}
