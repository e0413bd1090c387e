//! What the runner shares with its callers.

use std::sync::Arc;

use mmb_flow::{FlowRef, ScratchpadStarts, SessionId};
use mmb_packet::{DropReason, Meta};

use crate::{Packet, SessionInfo, Verdict};

/// What becomes of a packet that has passed its chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChainVerdict {
    /// The packet goes on to `meta.out_port`.
    #[default]
    Pass,
    /// The packet is dropped.
    Drop(DropReason),
    /// The packet is freed, and is no drop: its bytes leave in other frames, or nothing of them is left.
    Consume,
    /// The packet is dropped, and so are all packets of its session until rules or chains change.
    Refuse(DropReason),
    /// The packet is dropped, and its session has to be ended.
    End(DropReason),
    /// The packet is kept under the ticket in `meta.stage` until [`crate::Runner::next_held_event`] returns
    /// that ticket.
    Hold,
}

/// Access to the sessions of the packets in chains.
pub trait SessionAccess {
    /// Returns all scratchpads, and their starts. Each has [`crate::Program::bytes`] of its session's program
    /// or more. They stay where they are while packets pass chains.
    fn pads(&mut self) -> (&mut [u8], ScratchpadStarts<'_>);
    /// Returns the scratchpad of a session.
    fn pad(&mut self, id: SessionId) -> &mut [u8];
    /// Returns a closure that translates packets of translated sessions, one by one. Its error is why the
    /// packet is dropped.
    fn translator(&mut self) -> impl FnMut(FlowRef, &mut [u8], &Meta) -> Result<(), DropReason>;
    /// Completes a frame that a function has made for the receiver of a flow, as a packet is completed that
    /// has passed its chain. `has_addresses`: its addresses and ports are those that the receiver knows.
    /// Returns false if the frame cannot be sent.
    fn finish_emission(&mut self, flow: FlowRef, has_addresses: bool, frame: &mut [u8]) -> bool;
    /// Returns what is known of a session. The caller does not use `key`.
    fn info(&self, id: SessionId) -> SessionInfo;
    /// Returns the identity of the session that has a number now ([`SessionInfo::uid`]). None: there is none,
    /// or it passes no chain.
    fn uid(&self, id: SessionId) -> Option<u32>;
    /// Returns the bytes of the longest IP packet that the output of a packet takes. Functions do not make
    /// datagrams longer.
    fn mtu(&self, packet: &Packet<'_>) -> usize;
}

/// Counters of a stage of a chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageCounters {
    /// Packets in front of the function.
    pub packets: u64,
    /// Packets that it dropped.
    pub drops: u64,
    /// Packets that it dropped together with their session: refused or ended.
    pub refused: u64,
    /// Packets that it consumed: other frames with their bytes leave in their place, or none.
    pub consumed: u64,
    /// Packets that it held.
    pub held: u64,
    /// Held packets that went on.
    pub released: u64,
    /// Ticks of the runner's clock.
    pub ticks: u64,
    /// Vectors.
    pub vectors: u64,
}

/// A watched packet passed a function.
#[derive(Clone, Debug)]
pub struct FunctionVisit {
    /// The packet: the address of its metadata.
    pub packet: usize,
    /// Name of the instance.
    pub function: Arc<str>,
    /// What the function decided.
    pub verdict: Verdict,
    /// The contiguous beginning of the frame behind the function.
    pub head: Vec<u8>,
}

/// The packets that are watched, and what functions did to them.
#[derive(Debug, Default)]
pub(super) struct Watch {
    pub packets: Vec<usize>,
    pub visits: Vec<FunctionVisit>,
}
