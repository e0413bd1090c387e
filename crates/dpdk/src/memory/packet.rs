//! Borrowed packets: their bytes and metadata.
//!
//! The mbuf header holds two dynamic fields: [`Meta`] at byte 92, and the time stamp of DPDK's capture
//! drivers at byte 120. Both are registered at start-up, so that no driver takes their place.

mod buf;
mod hints;
mod large;
mod resize;
mod segments;
mod vlan;

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use mmb_dpdk_sys as sys;
use mmb_packet::Meta;

pub(super) use segments::describe_buffer;
pub use segments::{Segments, Tail};
use segments::{segment_bytes, segment_start};

use crate::error::{Error, last_errno, strerror};

/// Offset of [`Meta`] in the header.
const META_OFFSET: usize = 92;
/// Offset of the time stamp.
const TIMESTAMP_OFFSET: usize = 120;

const _: () = assert!(META_OFFSET >= std::mem::offset_of!(sys::rte_mbuf, dynfield1));
const _: () = assert!(META_OFFSET.is_multiple_of(align_of::<Meta>()));
const _: () = assert!(META_OFFSET + size_of::<Meta>() <= TIMESTAMP_OFFSET);
const _: () = assert!(TIMESTAMP_OFFSET + size_of::<u64>() == size_of::<sys::rte_mbuf>());

/// Bit of `ol_flags` that marks a valid time stamp; registered at start-up.
static TIMESTAMP_FLAG: AtomicU64 = AtomicU64::new(0);

/// Registers the two fields. EAL must run.
pub(crate) fn register_fields() -> Result<(), Error> {
    let mut meta =
        sys::rte_mbuf_dynfield { size: size_of::<Meta>(), align: align_of::<Meta>(), ..Default::default() };
    for (to, from) in meta.name.iter_mut().zip(b"mmb_meta\0") {
        *to = from.cast_signed();
    }
    // SAFETY: EAL runs; `meta` is a valid description that outlives the call.
    let offset = unsafe { sys::rte_mbuf_dynfield_register_offset(&meta, META_OFFSET) };
    if usize::try_from(offset) != Ok(META_OFFSET) {
        return Err(Error::Start {
            reason: format!("no room for metadata in packet headers: {}", strerror(last_errno())),
        });
    }
    let (mut offset, mut flag) = (0, 0);
    // SAFETY: EAL runs; both pointers are to live locals.
    let status = unsafe { sys::rte_mbuf_dyn_rx_timestamp_register(&mut offset, &mut flag) };
    if status != 0 || usize::try_from(offset) != Ok(TIMESTAMP_OFFSET) {
        return Err(Error::Start {
            reason: format!("no room for time stamps in packet headers: {}", strerror(status)),
        });
    }
    TIMESTAMP_FLAG.store(flag, Ordering::Relaxed);
    Ok(())
}

/// A borrowed packet, which exists only behind a reference. [`crate::Mbuf`] is the owned form.
#[repr(C)]
pub struct Packet {
    /// Empty: the header is reached through the reference's address.
    nothing: [u8; 0],
    header: PhantomData<sys::rte_mbuf>,
}

impl Packet {
    /// The header. It may be written only if `self` came from a `&mut`.
    #[inline(always)]
    pub(crate) fn raw(&self) -> *mut sys::rte_mbuf {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// The bytes of the first segment: the contiguous beginning of the frame.
    #[inline]
    pub fn data(&self) -> &[u8] {
        // SAFETY: a packet's header is valid, and its data lies inside its buffer, which is initialised
        // memory.
        unsafe { segment_bytes(self.raw()) }
    }

    /// The bytes of the first segment, to write.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        let header = self.raw();
        // SAFETY: as in `data`; the buffer belongs to this packet alone and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(segment_start(header), usize::from((*header).data_len)) }
    }

    /// The first segment's bytes to write, and the other segments to read.
    pub fn split_first_segment(&mut self) -> (&mut [u8], Segments<'_>) {
        let header = self.raw();
        // SAFETY: as in `data_mut`; the other segments have buffers of their own.
        unsafe {
            let rest = Segments::from_raw((*header).next);
            (std::slice::from_raw_parts_mut(segment_start(header), usize::from((*header).data_len)), rest)
        }
    }

    /// All segments, in order.
    pub fn segments(&self) -> Segments<'_> {
        // SAFETY: the packet's chain is valid and borrowed.
        unsafe { Segments::from_raw(self.raw()) }
    }

    /// Length of the whole packet.
    #[inline]
    pub fn pkt_len(&self) -> usize {
        // SAFETY: the header is valid.
        unsafe { (*self.raw()).pkt_len as usize }
    }

    /// Number of segments.
    #[inline]
    pub fn nb_segs(&self) -> u16 {
        // SAFETY: the header is valid.
        unsafe { (*self.raw()).nb_segs }
    }

    /// The ingress port, as the driver or [`Packet::set_port`] wrote it; 0xffff: none.
    #[inline]
    pub fn port(&self) -> u16 {
        // SAFETY: the header is valid.
        unsafe { (*self.raw()).port }
    }

    /// Sets the ingress port.
    #[inline]
    pub fn set_port(&mut self, port: u16) {
        // SAFETY: the header is valid and borrowed exclusively.
        unsafe { (*self.raw()).port = port }
    }

    /// The packet's metadata. It is not cleared between packets: the parser writes it.
    #[inline]
    pub fn meta(&self) -> &Meta {
        // SAFETY: the field lies inside the header (asserted above), is registered, aligned, and any bytes
        // are a Meta.
        unsafe { &*self.raw().cast::<u8>().add(META_OFFSET).cast() }
    }

    /// The metadata, to write.
    #[inline]
    pub fn meta_mut(&mut self) -> &mut Meta {
        // SAFETY: as in `meta`; `self` is borrowed exclusively.
        unsafe { &mut *self.raw().cast::<u8>().add(META_OFFSET).cast() }
    }

    /// The first segment's bytes and the metadata, both to write.
    #[inline]
    pub fn data_and_meta(&mut self) -> (&mut [u8], &mut Meta) {
        let header = self.raw();
        // SAFETY: as in `data_mut` and `meta_mut`; the bytes lie in the buffer and the metadata in the
        // header, which do not overlap, and `self` is borrowed exclusively.
        unsafe {
            let data = std::slice::from_raw_parts_mut(segment_start(header), usize::from((*header).data_len));
            (data, &mut *header.cast::<u8>().add(META_OFFSET).cast::<Meta>())
        }
    }

    /// Returns the first segment's bytes and the metadata, to write, and the other segments, to read.
    #[inline]
    pub fn head_tail_and_meta(&mut self) -> (&mut [u8], Option<&Tail>, &mut Meta) {
        let header = self.raw();
        // SAFETY: the header is valid. If the lengths differ, there is another segment. Its header and buffer
        // are its own, so they do not overlap what `data_and_meta` returns. `self` stays borrowed for all of
        // them.
        let tail = unsafe {
            let is_segmented = (*header).pkt_len != u32::from((*header).data_len);
            if is_segmented { (*header).next.cast::<Tail>().as_ref() } else { None }
        };
        let (head, meta) = self.data_and_meta();
        (head, tail, meta)
    }

    /// The capture time in nanoseconds since 1970, if it is known.
    #[inline]
    pub fn timestamp(&self) -> Option<u64> {
        // SAFETY: the field lies inside the header, aligned to 8.
        unsafe {
            let header = self.raw();
            let set = (*header).ol_flags & TIMESTAMP_FLAG.load(Ordering::Relaxed) != 0;
            set.then(|| header.cast::<u8>().add(TIMESTAMP_OFFSET).cast::<u64>().read())
        }
    }

    /// Sets the time stamp: nanoseconds since 1970.
    #[inline]
    pub fn set_timestamp(&mut self, nanoseconds: u64) {
        // SAFETY: as in `timestamp`; `self` is borrowed exclusively.
        unsafe {
            let header = self.raw();
            header.cast::<u8>().add(TIMESTAMP_OFFSET).cast::<u64>().write(nanoseconds);
            (*header).ol_flags |= TIMESTAMP_FLAG.load(Ordering::Relaxed);
        }
    }

    /// A copy of all bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.pkt_len());
        for segment in self.segments() {
            bytes.extend_from_slice(segment);
        }
        bytes
    }

    /// Prefetches the header: lengths and metadata, two cache lines.
    #[inline(always)]
    pub fn prefetch_header(&self) {
        prefetch(self.raw().cast_const().cast());
        // SAFETY: stays inside the header.
        prefetch(unsafe { self.raw().cast::<u8>().add(64) });
    }

    /// Prefetches the part of the header that holds the metadata.
    #[inline(always)]
    pub fn prefetch_meta(&self) {
        prefetch(std::ptr::from_ref(self.meta()).cast());
    }

    /// Prefetches the part of the header that holds the buffer's address.
    #[inline(always)]
    pub fn prefetch_buffer_address(&self) {
        prefetch(self.raw().cast_const().cast());
    }

    /// Prefetches the first 64 bytes of the frame. Reads the header, which should be prefetched earlier.
    #[inline(always)]
    pub fn prefetch_data(&self) {
        // SAFETY: the header is valid; the address is not read from.
        prefetch(unsafe { segment_start(self.raw()) });
    }
}

impl std::fmt::Debug for Packet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packet").field("len", &self.pkt_len()).field("segments", &self.nb_segs()).finish()
    }
}

/// Prefetches a cache line; harmless for any address.
#[inline(always)]
fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing and cannot fault.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
