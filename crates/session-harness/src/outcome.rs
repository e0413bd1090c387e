//! The outcome of a packet.

use mmb_packet::{DropReason, VecPacket};

/// The outcome of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The packet is sent by this port; 0xffff: no route leads to its destination.
    Out(u16),
    /// The packet is dropped.
    Dropped(DropReason),
    /// A function has sent the packet's bytes in other frames.
    Consumed,
    /// The packet is dropped for this reason, and an ICMP error or the answer of a function is sent by this
    /// port in its place.
    Answered(u16, DropReason),
    /// A function has made this frame. It is sent by this port.
    Emitted(u16),
    /// No worker took the packet: a fault of the code under test.
    Lost,
}

/// A packet whose processing is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessedPacket {
    /// The packet with all edits. A dropped packet has the edits that came before the drop.
    pub packet: VecPacket,
    /// The ingress port. For an emitted frame, the ingress port of the packet whose function emitted it.
    pub in_port: u16,
    /// The outcome.
    pub outcome: Outcome,
}
