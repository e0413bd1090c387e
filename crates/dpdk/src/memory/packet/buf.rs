//! A DPDK packet as the core crates see packets whose length may change.

use mmb_packet::PacketBuf;

use super::Packet;

impl PacketBuf for Packet {
    #[inline]
    fn head(&self) -> &[u8] {
        self.data()
    }

    #[inline]
    fn head_mut(&mut self) -> &mut [u8] {
        self.data_mut()
    }

    #[inline]
    fn len(&self) -> usize {
        self.pkt_len()
    }

    #[inline]
    fn longest_frame(&self) -> usize {
        Packet::longest_frame(self)
    }

    #[inline]
    fn head_room(&self) -> usize {
        self.headroom()
    }

    #[inline]
    fn tail_room(&self) -> usize {
        self.tailroom()
    }

    #[inline]
    fn grow_front(&mut self, n: usize) -> bool {
        self.prepend(n).is_some()
    }

    #[inline]
    fn shrink_front(&mut self, n: usize) -> bool {
        self.adj(n)
    }

    #[inline]
    fn grow_back(&mut self, n: usize) -> bool {
        self.append(n).is_some()
    }

    #[inline]
    fn shrink_back(&mut self, n: usize) -> bool {
        self.trim(n)
    }
}
