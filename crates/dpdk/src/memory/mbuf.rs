//! Owned packets (DPDK's mbufs).
//!
//! # Theory of operation
//! An mbuf is a 128-byte header in front of a buffer; long packets are chains of them. [`Mbuf`] owns a chain
//! and returns it to its pool when dropped. [`Packet`] is the borrowed form: it exists only behind a
//! reference, has size 0 (so that safe code cannot swap two headers by value), and has the operations on the
//! bytes.
//!
//! No operation here shares a buffer between packets (DPDK's clones and attached buffers), nor do the drivers
//! in use. A packet's bytes belong to it alone.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use mmb_dpdk_sys as sys;

use super::packet::Packet;

/// Most segments of a packet.
pub(crate) const MAX_BUFFERS: u16 = 255;

/// An owned packet. Dropping it returns it to its pool.
#[repr(transparent)]
#[derive(Debug)]
pub struct Mbuf(NonNull<Packet>);

// SAFETY: the owner of a packet alone uses it, and pools may be used from every thread.
unsafe impl Send for Mbuf {}
// SAFETY: `&Mbuf` only reads.
unsafe impl Sync for Mbuf {}

impl Mbuf {
    /// Releases ownership; the receiver of the header owns the packet.
    #[inline]
    pub fn into_raw(self) -> *mut sys::rte_mbuf {
        ManuallyDrop::new(self).0.as_ptr().cast()
    }

    /// Takes ownership of a packet.
    ///
    /// # Safety
    /// `header` is the head of a valid packet that nobody else owns, with unshared buffers.
    #[inline]
    pub unsafe fn from_raw(header: NonNull<sys::rte_mbuf>) -> Mbuf {
        Mbuf(header.cast())
    }

    /// Appends another packet's segments.
    ///
    /// # Errors
    /// The other packet, when there would be too many segments.
    pub fn chain(&mut self, tail: Mbuf) -> Result<(), Mbuf> {
        if self.nb_segs().saturating_add(tail.nb_segs()) > MAX_BUFFERS {
            return Err(tail);
        }
        let last = self.last_segment();
        // SAFETY: it is the last segment, and there is room for more.
        unsafe { self.chain_behind(last, tail) };
        Ok(())
    }
}

impl Packet {
    /// Appends another packet's segments.
    ///
    /// # Safety
    /// `last` is the last segment of this packet, which has at most [`MAX_BUFFERS`] afterwards.
    pub(crate) unsafe fn chain_behind(&mut self, last: *mut sys::rte_mbuf, tail: Mbuf) {
        let (header, tail) = (self.raw(), tail.into_raw());
        // SAFETY: the caller's promise. Both chains are valid and owned; `tail` becomes part of this one and
        // its header a plain segment.
        unsafe {
            (*last).next = tail;
            (*header).nb_segs += (*tail).nb_segs;
            (*header).pkt_len += (*tail).pkt_len;
            (*tail).nb_segs = 1;
            (*tail).pkt_len = u32::from((*tail).data_len);
        }
    }
}

impl Deref for Mbuf {
    type Target = Packet;

    #[inline]
    fn deref(&self) -> &Packet {
        // SAFETY: the packet is owned by `self` and valid.
        unsafe { self.0.as_ref() }
    }
}

impl DerefMut for Mbuf {
    #[inline]
    fn deref_mut(&mut self) -> &mut Packet {
        // SAFETY: the packet is owned by `self`, which is borrowed exclusively.
        unsafe { self.0.as_mut() }
    }
}

impl Drop for Mbuf {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the packet is owned and not used afterwards.
        unsafe { sys::mmb_pktmbuf_free(self.0.as_ptr().cast()) }
    }
}
