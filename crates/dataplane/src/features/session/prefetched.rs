//! The vector that the input nodes have prefetched for `flow-lookup`.

use mmb_dpdk::Packet;
use mmb_session::PrefetchToken;

use crate::engine::node::vector::packet_addr;

/// A vector whose sessions were prefetched.
pub(crate) struct PrefetchedVector {
    pub token: PrefetchToken,
    /// The version of IP of all packets.
    pub version: u8,
    /// Address of the first packet.
    first: usize,
}

impl PrefetchedVector {
    /// Creates the record of a vector that has at least one packet.
    pub fn new(token: PrefetchToken, version: u8, first: &Packet) -> PrefetchedVector {
        PrefetchedVector { token, version, first: packet_addr(first) }
    }

    /// Whether these are the packets of the vector.
    #[inline]
    pub fn has_packets(&self, packets: &[&mut Packet]) -> bool {
        packets.len() == self.token.len()
            && packets.first().is_some_and(|first| packet_addr(first) == self.first)
    }
}
