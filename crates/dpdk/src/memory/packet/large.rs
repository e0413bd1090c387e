//! Large frames: frames with the payload of several segments ([`LargeFrame`]).

use mmb_dpdk_sys as sys;
use mmb_packet::LargeFrame;

use super::Packet;

const FLAG: u64 = sys::RTE_MBUF_F_RX_LRO as u64;

impl Packet {
    /// Whether the packet is a large frame: it has the payload of several segments, and no valid transport
    /// checksum.
    #[inline(always)]
    pub fn is_large(&self) -> bool {
        // SAFETY: the header is valid.
        unsafe { (*self.raw()).ol_flags & FLAG != 0 }
    }

    /// Bytes of payload of each segment of a large frame but the last. 0: the frame's headers are not known,
    /// so that nothing can segment it.
    #[inline]
    pub fn segment_size(&self) -> u16 {
        // SAFETY: the header is valid, and any bytes are a size.
        unsafe { (*self.raw()).__bindgen_anon_3.__bindgen_anon_1.tso_segsz() as u16 }
    }

    /// Makes the packet a large frame with segments of `size` bytes of payload, as [`Packet::segment_size`]
    /// returns it.
    pub fn set_large(&mut self, size: u16) {
        let header = self.raw();
        // SAFETY: the header is valid and borrowed exclusively.
        unsafe {
            (*header).__bindgen_anon_3.__bindgen_anon_1.set_tso_segsz(size.into());
            (*header).ol_flags |= FLAG;
        }
    }

    /// Makes the packet an ordinary one.
    pub fn clear_large(&mut self) {
        // SAFETY: the header is valid and borrowed exclusively.
        unsafe { (*self.raw()).ol_flags &= !FLAG }
    }

    /// The headers of a large frame. `None` if it has none that segments can have.
    pub fn large_frame(&self) -> Option<LargeFrame> {
        LargeFrame::parse(self.data(), self.pkt_len())
    }

    /// Length of the longest frame as which the packet leaves: of one segment, if it is a large frame.
    #[inline]
    pub fn longest_frame(&self) -> usize {
        if self.is_large() { self.longest_segment() } else { self.pkt_len() }
    }

    #[cold]
    fn longest_segment(&self) -> usize {
        let length = |frame: LargeFrame| {
            frame.header_len() + frame.payload_len().min(usize::from(self.segment_size()))
        };
        self.large_frame().map_or(self.pkt_len(), length)
    }
}
