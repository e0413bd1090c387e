//! Offload: packets of settled flows that an XDP program forwards instead of this engine.
//!
//! Theory of operation. A flow can be offloaded when all that the engine does to its packets is to count
//! them, to translate them and to send them on ([`OffloadSource::offload_state`]). The [`OffloadDriver`]
//! then forwards and counts these packets. It leaves packets that open or reset connections to the engine,
//! whose connection tracker compares their numbers with the session. Of FINs, it forwards and records the
//! first of a flow whose session has no chain ([`OffloadSource::may_pass_fins`]). The tracker sees it when
//! the counters are collected.
//!
//! A session with a chain qualifies if each function on its path says that it only adds constants to the
//! session's packets ([`mmb_nf::Function::constant_rewrite`]). The packets that the driver leaves to the
//! engine still pass the chain. When a function changes its mind without a packet, which each tick finds out
//! by a number, the flows of sessions that no longer qualify are revoked.
//!
//! A TCP connection can be offloaded one packet before it is established. The flow of its originator is then
//! [`OffloadState::AwaitingAck`]: the driver forwards nothing before the segment that acknowledges the
//! answer. As soon as the driver has counted a packet of that flow, the engine passes this acknowledgement to
//! the tracker, before anything else.
//!
//! The engine collects the counters of an offloaded flow when the session's timer fires, when a packet of the
//! session takes the slow path, when rules change, when the session ends, and on request
//! ([`OffloadSource::collect_offloaded`]). Before a session ends, and before a packet on the slow path
//! changes it, both of its flows are revoked: the driver must not forward packets by a state that is about to
//! change. A forged packet that changes nothing revokes nothing.

mod collect;
pub(crate) mod flows;
mod source;

use mmb_flow::FlowRef;
use mmb_packet::Meta;

use crate::Environment;

/// Totals of an offloaded flow since it was offloaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffloadCounters {
    /// Forwarded packets.
    pub packets: u64,
    /// Bytes of their frames.
    pub bytes: u64,
    /// Milliseconds since the last packet.
    pub age: u32,
    /// TCP: the highest acknowledgement number.
    pub ack: Option<u32>,
    /// TCP: the sequence number behind the first FIN, if one was forwarded.
    pub fin: Option<u32>,
}

/// The fast path as sessions see it: it forwards the packets of offloaded flows. A slot names an offloaded
/// flow.
pub trait OffloadDriver: Send {
    /// Stops forwarding the packets of a slot.
    fn revoke(&self, slot: u32);
    /// Returns what the driver has counted in a slot.
    fn counters(&self, slot: u32) -> OffloadCounters;
}

/// A flow that may be offloaded. It stays valid after the session has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadCandidate {
    pub(crate) flow: FlowRef,
    pub(crate) uid: u32,
}

impl OffloadCandidate {
    /// Returns the other direction of the session.
    pub fn other(self) -> OffloadCandidate {
        OffloadCandidate { flow: self.flow.opposite(), ..self }
    }

    /// Returns the number of the flow, which is unique among the flows of open sessions.
    pub fn number(self) -> u32 {
        self.flow.0
    }
}

/// Whether a flow can be offloaded now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffloadState {
    /// The session has ended.
    Ended,
    /// The rules in force, or the kind of the session, exclude offload.
    Ineligible,
    /// Packets of the flow still change the session's state.
    Unsettled,
    /// Both flows can be offloaded, although the originator has not yet acknowledged the answer.
    AwaitingAck {
        /// Flow of the originator: the acknowledgement number of its first packet. The driver forwards no
        /// other packet before it.
        expected_ack: Option<u32>,
    },
    /// The flow can be offloaded.
    Eligible {
        /// The other flow is settled, too.
        reply_settled: bool,
    },
}

/// What a session and the functions of its chain add to the numbers of a flow's TCP segments. Wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddedNumbers {
    /// Added to sequence numbers.
    pub sequence: u32,
    /// Added to acknowledgment numbers and SACK edges.
    pub acknowledgment: u32,
    /// Added to timestamps (TSval, RFC 7323).
    pub timestamp: u32,
    /// Added to echoed timestamps (TSecr).
    pub echo: u32,
    /// Left shift of windows in bits, from -14 to 14. A window that becomes too large is the largest one.
    pub window_shift: i8,
}

/// What the fast path needs of sessions.
pub trait OffloadSource {
    /// Sets the driver. Flows that an earlier driver had are forgotten.
    fn set_offload_driver(&mut self, driver: Box<dyn OffloadDriver>);

    /// Returns how many sessions have ended. While the number stays the same, every packet belongs to the
    /// session of before.
    fn removals(&self) -> u32;

    /// Returns the flow of a packet. `head` and `meta` are those of the packet as it came in.
    fn offload_candidate(&self, head: &[u8], meta: &Meta) -> Option<OffloadCandidate>;

    /// Whether the session alone turns a packet of the flow into this one: rules edit nothing.
    fn is_translated_to(&self, candidate: OffloadCandidate, head: &[u8], meta: &Meta) -> bool;

    /// Returns whether the flow can be offloaded if its packets come in by `in_port`.
    fn offload_state(&self, candidate: OffloadCandidate, in_port: u16) -> OffloadState;

    /// Returns what the session and its chain add to the numbers of the flow's segments, while it can be
    /// offloaded.
    fn added_numbers(&self, candidate: OffloadCandidate) -> AddedNumbers;

    /// Whether the driver may forward FINs of the flow, and report them in its counters.
    fn may_pass_fins(&self, candidate: OffloadCandidate) -> bool;

    /// Records that the driver forwards the flow under this slot. If the flow has another slot, that one is
    /// revoked.
    fn offload(&mut self, now: u32, candidate: OffloadCandidate, slot: u32, env: &impl Environment);

    /// Collects the counters of the session if the flow is offloaded under this slot. If both sides have sent
    /// their FINs, both flows are revoked. `ended`: the driver has given the flow up.
    fn collect_offloaded(
        &mut self,
        now: u32,
        candidate: OffloadCandidate,
        slot: u32,
        ended: bool,
        env: &impl Environment,
    );

    /// Removes and returns a slot that was revoked since the last call. The driver can reuse it.
    fn next_revoked(&mut self) -> Option<u32>;
}
