//! Source and sink of a worker without ports.

use std::any::Any;

use mmb_dpdk::{Packet, Slots};

/// Source and sink of a detached worker.
pub trait PacketIo: Any {
    /// Adds packets to `slots`, up to its room; called once per walk.
    fn receive(&mut self, slots: &mut Slots<'_>);

    /// Reads the packets that leave; called any number of times per walk. The caller frees them.
    fn transmit(&mut self, packets: &[&mut Packet]);
}
