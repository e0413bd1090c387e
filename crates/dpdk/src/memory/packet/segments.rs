//! The segments of a packet.

use std::marker::PhantomData;

use mmb_dpdk_sys as sys;
use mmb_packet::TailSegments;

use super::Packet;

/// First byte of a segment's data.
///
/// # Safety
/// `segment` is a valid header.
#[inline(always)]
pub(super) unsafe fn segment_start(segment: *mut sys::rte_mbuf) -> *mut u8 {
    // SAFETY: the caller's promise; the data starts inside the buffer, which has a non-null address.
    unsafe {
        let start = (*segment).buf_addr.cast::<u8>().add(usize::from((*segment).data_off));
        std::hint::assert_unchecked(!start.is_null());
        start
    }
}

/// A segment's data.
///
/// # Safety
/// `segment` is a valid header, and its buffer is not written to while the result lives.
#[inline(always)]
pub(super) unsafe fn segment_bytes<'a>(segment: *mut sys::rte_mbuf) -> &'a [u8] {
    // SAFETY: the caller's promise; the data lies inside the buffer, which is initialised.
    unsafe { std::slice::from_raw_parts(segment_start(segment), usize::from((*segment).data_len)) }
}

/// Describes the first `n` bytes of an empty packet to the kernel.
///
/// # Safety
/// `header` is a valid packet of one segment whose buffer has room for `n` bytes.
pub(in crate::memory) unsafe fn describe_buffer(header: *mut sys::rte_mbuf, n: usize) -> libc::iovec {
    // SAFETY: the caller's promise.
    libc::iovec { iov_base: unsafe { segment_start(header) }.cast(), iov_len: n }
}

impl Packet {
    /// Describes the segments, in order, to the kernel. Returns how many fit `pieces`. The kernel may write
    /// to them until the packet is used again.
    pub(crate) fn describe_segments(&mut self, pieces: &mut [libc::iovec]) -> usize {
        let (mut next, mut n) = (self.raw(), 0);
        for piece in pieces {
            if next.is_null() {
                break;
            }
            // SAFETY: a segment of this packet, which is borrowed exclusively.
            unsafe {
                let (start, length) = (segment_start(next), usize::from((*next).data_len));
                *piece = libc::iovec { iov_base: start.cast(), iov_len: length };
                next = (*next).next;
            }
            n += 1;
        }
        n
    }

    /// Overwrites the first bytes of the frame, across segments. What is longer than the frame is left out.
    pub(in crate::memory) fn overwrite(&mut self, mut bytes: &[u8]) {
        let mut next = self.raw();
        while !next.is_null() && !bytes.is_empty() {
            // SAFETY: a segment of this packet, which is borrowed exclusively; no more is written than its
            // data has bytes.
            unsafe {
                let (now, rest) = bytes.split_at(bytes.len().min(usize::from((*next).data_len)));
                std::ptr::copy_nonoverlapping(now.as_ptr(), segment_start(next), now.len());
                (bytes, next) = (rest, (*next).next);
            }
        }
    }
}

/// The segments of a packet behind the first one. It only exists behind a reference, to the header of the
/// second segment.
#[repr(C)]
pub struct Tail {
    /// Nothing of its own: the header is reached through the reference's address.
    nothing: [u8; 0],
    header: PhantomData<sys::rte_mbuf>,
}

impl std::fmt::Debug for Tail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tail").finish_non_exhaustive()
    }
}

impl TailSegments for Tail {
    fn segment(&self, number: usize) -> Option<&[u8]> {
        let next = std::ptr::from_ref(self).cast_mut().cast();
        // SAFETY: the header is that of a packet's second segment, and the packet is borrowed.
        unsafe { Segments::from_raw(next) }.nth(number)
    }
}

/// The segments of a packet, in order.
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    next: *mut sys::rte_mbuf,
    packet: PhantomData<&'a Packet>,
}

impl Segments<'_> {
    /// The segments from `next` on.
    ///
    /// # Safety
    /// `next` is null or a valid segment of a packet that is borrowed for the lifetime.
    pub(super) unsafe fn from_raw<'a>(next: *mut sys::rte_mbuf) -> Segments<'a> {
        Segments { next, packet: PhantomData }
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.next.is_null() {
            return None;
        }
        // SAFETY: a segment of a packet that is borrowed for 'a.
        unsafe {
            let bytes = segment_bytes(self.next);
            self.next = (*self.next).next;
            Some(bytes)
        }
    }
}
