//! Hits: a packet of the vector and a rule that matches it.

use bytemuck::{Pod, Zeroable};

/// Maximum number of packets in a vector.
pub const VECTOR: usize = 256;

/// The numbers of all packets.
pub(crate) static ALL: [u16; VECTOR] = {
    let (mut all, mut packet) = ([0; VECTOR], 0);
    while packet < VECTOR {
        all[packet] = packet as u16;
        packet += 1;
    }
    all
};

/// A packet of the batch and the slot of a rule that matches it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
pub struct Hit {
    /// Index of the packet's window.
    pub pkt: u16,
    /// Explicit padding, so that hits can be written as whole words.
    zero: u16,
    /// The rule's slot.
    pub slot: u32,
}

impl Hit {
    /// A hit of rule `slot` for packet `pkt`.
    #[inline(always)]
    pub fn new(pkt: u16, slot: u32) -> Hit {
        Hit { pkt, zero: 0, slot }
    }
}
