//! What a device says about a packet beside its bytes: the hash that it spread it by, the mark that a flow
//! rule gave it.
//!
//! Both are hints: the hash is the device's own function of whatever it found, and a mark is as old as the
//! rule behind it.

use mmb_dpdk_sys as sys;

use super::packet::Packet;

const FLAG_HASH: u64 = sys::RTE_MBUF_F_RX_RSS_HASH as u64;
const FLAG_MARK: u64 = sys::RTE_MBUF_F_RX_FDIR_ID as u64;

impl Packet {
    /// The hash by which the device chose the receive queue; none if it has not told.
    #[inline(always)]
    pub fn rss_hash(&self) -> Option<u32> {
        // SAFETY: the header is valid, and any bytes are a hash.
        unsafe {
            let header = self.raw();
            ((*header).ol_flags & FLAG_HASH != 0).then(|| (*header).__bindgen_anon_2.hash.rss)
        }
    }

    /// Says what a device would: for tests, and sources without a device.
    #[inline]
    pub fn set_rss_hash(&mut self, hash: u32) {
        // SAFETY: the header is valid and borrowed exclusively.
        unsafe {
            let header = self.raw();
            (*header).__bindgen_anon_2.hash.rss = hash;
            (*header).ol_flags |= FLAG_HASH;
        }
    }

    /// The mark that a flow rule of the device gave the packet; none if no such rule matched.
    #[inline(always)]
    pub fn mark(&self) -> Option<u32> {
        // SAFETY: the header is valid, and any bytes are a mark.
        unsafe {
            let header = self.raw();
            ((*header).ol_flags & FLAG_MARK != 0).then(|| (*header).__bindgen_anon_2.hash.fdir.hi)
        }
    }

    /// Says what a device would: for tests, and sources without a device.
    #[inline]
    pub fn set_mark(&mut self, mark: u32) {
        // SAFETY: the header is valid and borrowed exclusively.
        unsafe {
            let header = self.raw();
            (*header).__bindgen_anon_2.hash.fdir.hi = mark;
            (*header).ol_flags |= FLAG_MARK;
        }
    }
}
