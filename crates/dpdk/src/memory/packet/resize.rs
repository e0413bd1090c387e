//! Operations that change the length of a packet or move its bytes between segments.

use mmb_dpdk_sys as sys;

use super::Packet;
use super::segments::segment_start;

impl Packet {
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
