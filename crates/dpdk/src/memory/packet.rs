//! Borrowed packets: their bytes and metadata.
//!
//! The mbuf header holds two dynamic fields: [`Meta`] at byte 92, and the time stamp of DPDK's capture
//! drivers at byte
//! 120. Both are registered at start-up, so that no driver takes their place.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use mmb_dpdk_sys as sys;
use mmb_packet::{Meta, TailSegments};

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
            let rest = Segments { next: (*header).next, packet: PhantomData };
            (std::slice::from_raw_parts_mut(segment_start(header), usize::from((*header).data_len)), rest)
        }
    }

    /// All segments, in order.
    pub fn segments(&self) -> Segments<'_> {
        Segments { next: self.raw(), packet: PhantomData }
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

    /// Bytes free in front of the frame.
    #[inline]
    pub fn headroom(&self) -> usize {
        // SAFETY: the header is valid.
        unsafe { usize::from((*self.raw()).data_off) }
    }

    /// Bytes free behind the last segment's data.
    pub fn tailroom(&self) -> usize {
        // SAFETY: the packet's chain is valid.
        unsafe { segment_tailroom(self.last_segment()) }
    }

    pub(crate) fn last_segment(&self) -> *mut sys::rte_mbuf {
        let mut segment = self.raw();
        // SAFETY: the packet's chain is valid and ends with a null pointer.
        unsafe {
            while !(*segment).next.is_null() {
                segment = (*segment).next;
            }
        }
        segment
    }

    /// Extends the frame at its end by `n` bytes and returns these, whose content is arbitrary. None, and no
    /// change: the last segment has no room.
    pub fn append(&mut self, n: usize) -> Option<&mut [u8]> {
        let last = self.last_segment();
        // SAFETY: the chain is valid and borrowed exclusively; the new bytes lie inside the last segment's
        // buffer.
        unsafe {
            if n > segment_tailroom(last) {
                return None;
            }
            let from = usize::from((*last).data_len);
            (*last).data_len += n as u16;
            (*self.raw()).pkt_len += n as u32;
            Some(std::slice::from_raw_parts_mut(segment_start(last).add(from), n))
        }
    }

    /// Extends the frame at its front by `n` bytes and returns these, whose content is arbitrary. None, and
    /// no change: there is no headroom.
    #[inline]
    pub fn prepend(&mut self, n: usize) -> Option<&mut [u8]> {
        let header = self.raw();
        // SAFETY: the header is valid and borrowed exclusively; the new bytes lie inside its buffer.
        unsafe {
            if n > usize::from((*header).data_off) || n > usize::from(u16::MAX - (*header).data_len) {
                return None;
            }
            (*header).data_off -= n as u16;
            (*header).data_len += n as u16;
            (*header).pkt_len += n as u32;
            Some(std::slice::from_raw_parts_mut(segment_start(header), n))
        }
    }

    /// Removes `n` bytes at the front. False, and no change: the first segment is shorter.
    #[inline]
    pub fn adj(&mut self, n: usize) -> bool {
        let header = self.raw();
        // SAFETY: the header is valid and borrowed exclusively.
        unsafe {
            if n > usize::from((*header).data_len) {
                return false;
            }
            (*header).data_off += n as u16;
            (*header).data_len -= n as u16;
            (*header).pkt_len -= n as u32;
        }
        true
    }

    /// Removes `n` bytes at the end, across segments. False, and no change: the packet is shorter.
    pub fn trim(&mut self, n: usize) -> bool {
        let Some(keep) = self.pkt_len().checked_sub(n) else { return false };
        let header = self.raw();
        let (mut segment, mut left) = (header, keep);
        // SAFETY: the chain is valid and borrowed exclusively. Segments behind the last one kept are unlinked
        // before they are freed.
        unsafe {
            (*header).pkt_len = keep as u32;
            let mut kept = 1;
            while left > usize::from((*segment).data_len) {
                left -= usize::from((*segment).data_len);
                segment = (*segment).next;
                kept += 1;
            }
            (*segment).data_len = left as u16;
            let rest = std::mem::replace(&mut (*segment).next, std::ptr::null_mut());
            (*header).nb_segs = kept;
            free_segments(rest);
        }
        true
    }

    /// Makes the first `n` bytes contiguous, so that [`Packet::data`] has at least that many. False, and no
    /// change: the packet is shorter, or one buffer cannot hold them.
    pub fn pull_up(&mut self, n: usize) -> bool {
        let header = self.raw();
        // SAFETY: the chain is valid and borrowed exclusively. All copies stay inside buffers: into the first
        // one because `n` fits it, out of the others because of their lengths. Segments that become empty are
        // unlinked before they are freed.
        unsafe {
            let have = usize::from((*header).data_len);
            if n <= have {
                return true;
            }
            if n > self.pkt_len() || n > usize::from((*header).buf_len) {
                return false;
            }
            let short = (n - have).saturating_sub(segment_tailroom(header));
            if short > 0 {
                let start = segment_start(header);
                std::ptr::copy(start, start.sub(short), have);
                (*header).data_off -= short as u16;
            }
            while usize::from((*header).data_len) < n {
                let segment = (*header).next;
                let take = (n - usize::from((*header).data_len)).min(usize::from((*segment).data_len));
                let end = segment_start(header).add(usize::from((*header).data_len));
                std::ptr::copy_nonoverlapping(segment_start(segment), end, take);
                (*header).data_len += take as u16;
                (*segment).data_off += take as u16;
                (*segment).data_len -= take as u16;
                if (*segment).data_len == 0 {
                    (*header).next = (*segment).next;
                    (*header).nb_segs -= 1;
                    (*segment).next = std::ptr::null_mut();
                    sys::mmb_pktmbuf_free_seg(segment);
                }
            }
        }
        true
    }

    /// Makes the packet one segment. False: it does not fit one buffer.
    pub fn linearize(&mut self) -> bool {
        self.nb_segs() == 1 || self.pull_up(self.pkt_len())
    }

    /// Whether a driver stripped VLAN tags from the frame; the header holds them.
    #[inline]
    pub fn has_stripped_vlan(&self) -> bool {
        // SAFETY: the header is valid.
        unsafe { (*self.raw()).ol_flags & STRIPPED != 0 }
    }

    /// Restores VLAN tags that a driver stripped: the inner one as 0x8100, the outer one of a pair as 0x88a8.
    /// False, and no change: there is no room.
    pub fn restore_vlan(&mut self) -> bool {
        let header = self.raw();
        // SAFETY: the header is valid and borrowed exclusively.
        let (flags, inner, outer) =
            unsafe { ((*header).ol_flags, (*header).vlan_tci, (*header).vlan_tci_outer) };
        if flags & STRIPPED == 0 {
            return true;
        }
        let both = flags & FLAG_QINQ_STRIPPED != 0;
        let tags: &[[u16; 2]] = if both { &[[0x88a8, outer], [0x8100, inner]] } else { &[[0x8100, inner]] };
        const ADDRESSES: usize = 12;
        if !self.pull_up(ADDRESSES) || self.prepend(4 * tags.len()).is_none() {
            return false;
        }
        let frame = self.data_mut();
        frame.copy_within(4 * tags.len()..4 * tags.len() + ADDRESSES, 0);
        for (tag, to) in tags.iter().flatten().zip(frame[ADDRESSES..].chunks_exact_mut(2)) {
            to.copy_from_slice(&tag.to_be_bytes());
        }
        // SAFETY: the header is valid and borrowed exclusively.
        unsafe { (*header).ol_flags = flags & !(STRIPPED | FLAG_VLAN | FLAG_QINQ) };
        true
    }

    /// Sets a tag as stripped by a driver.
    pub fn set_stripped_vlan(&mut self, tci: u16) {
        // SAFETY: the header is valid and borrowed exclusively.
        unsafe {
            (*self.raw()).vlan_tci = tci;
            (*self.raw()).ol_flags |= FLAG_VLAN | FLAG_VLAN_STRIPPED;
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

const FLAG_VLAN: u64 = sys::RTE_MBUF_F_RX_VLAN as u64;
const FLAG_VLAN_STRIPPED: u64 = sys::RTE_MBUF_F_RX_VLAN_STRIPPED as u64;
const FLAG_QINQ: u64 = sys::RTE_MBUF_F_RX_QINQ as u64;
const FLAG_QINQ_STRIPPED: u64 = sys::RTE_MBUF_F_RX_QINQ_STRIPPED as u64;
const STRIPPED: u64 = FLAG_VLAN_STRIPPED | FLAG_QINQ_STRIPPED;

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

/// First byte of a segment's data.
///
/// # Safety
/// `segment` is a valid header.
#[inline(always)]
unsafe fn segment_start(segment: *mut sys::rte_mbuf) -> *mut u8 {
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
unsafe fn segment_bytes<'a>(segment: *mut sys::rte_mbuf) -> &'a [u8] {
    // SAFETY: the caller's promise; the data lies inside the buffer, which is initialised.
    unsafe { std::slice::from_raw_parts(segment_start(segment), usize::from((*segment).data_len)) }
}

/// Free bytes behind a segment's data.
///
/// # Safety
/// `segment` is a valid header.
unsafe fn segment_tailroom(segment: *mut sys::rte_mbuf) -> usize {
    // SAFETY: the caller's promise.
    unsafe {
        usize::from((*segment).buf_len) - usize::from((*segment).data_off) - usize::from((*segment).data_len)
    }
}

/// Frees a chain that was unlinked from its packet.
///
/// # Safety
/// `segment` is null or the first of a valid chain that nothing else refers to.
unsafe fn free_segments(mut segment: *mut sys::rte_mbuf) {
    while !segment.is_null() {
        // SAFETY: the caller's promise.
        unsafe {
            let next = std::mem::replace(&mut (*segment).next, std::ptr::null_mut());
            sys::mmb_pktmbuf_free_seg(segment);
            segment = next;
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
        Segments { next, packet: PhantomData }.nth(number)
    }
}

/// The segments of a packet, in order.
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    next: *mut sys::rte_mbuf,
    packet: PhantomData<&'a Packet>,
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
