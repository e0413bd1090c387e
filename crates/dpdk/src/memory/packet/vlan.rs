//! VLAN tags that a driver took out of the frame and put into the header.

use mmb_dpdk_sys as sys;

use super::Packet;

const FLAG_VLAN: u64 = sys::RTE_MBUF_F_RX_VLAN as u64;
const FLAG_VLAN_STRIPPED: u64 = sys::RTE_MBUF_F_RX_VLAN_STRIPPED as u64;
const FLAG_QINQ: u64 = sys::RTE_MBUF_F_RX_QINQ as u64;
const FLAG_QINQ_STRIPPED: u64 = sys::RTE_MBUF_F_RX_QINQ_STRIPPED as u64;
const STRIPPED: u64 = FLAG_VLAN_STRIPPED | FLAG_QINQ_STRIPPED;

impl Packet {
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
}
