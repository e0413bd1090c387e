//! Metadata from the device: the RSS hash of a packet, and the mark of a flow rule.
//!
//! Both are hints: the hash function and its input are the device's choice, and a mark may come from a
//! removed rule.

use mmb_dpdk_sys as sys;

use super::Packet;

const FLAG_HASH: u64 = sys::RTE_MBUF_F_RX_RSS_HASH as u64;
const FLAG_MARK: u64 = sys::RTE_MBUF_F_RX_FDIR_ID as u64;

impl Packet {
    /// The hash by which the device chose the receive queue; None: the device did not report it.
    #[inline(always)]
    pub fn rss_hash(&self) -> Option<u32> {
        // SAFETY: the header is valid, and any bytes are a hash.
        unsafe {
            let header = self.raw();
            ((*header).ol_flags & FLAG_HASH != 0).then(|| (*header).__bindgen_anon_2.hash.rss)
        }
    }

    /// Sets the hash, in place of a device.
    #[inline]
    pub fn set_rss_hash(&mut self, hash: u32) {
        // SAFETY: the header is valid and borrowed exclusively.
        unsafe {
            let header = self.raw();
            (*header).__bindgen_anon_2.hash.rss = hash;
            (*header).ol_flags |= FLAG_HASH;
        }
    }

    /// The mark of the flow rule that matched the packet; None: no such rule matched.
    #[inline(always)]
    pub fn mark(&self) -> Option<u32> {
        // SAFETY: the header is valid, and any bytes are a mark.
        unsafe {
            let header = self.raw();
            ((*header).ol_flags & FLAG_MARK != 0).then(|| (*header).__bindgen_anon_2.hash.fdir.hi)
        }
    }

    /// Sets the mark, in place of a device.
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
