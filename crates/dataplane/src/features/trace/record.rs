//! What a trace says about a packet.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use mmb_flow::Direction;
use mmb_packet::{DropReason, Meta};
use mmb_policy::Policy;
use mmb_session::{FunctionVisit, SessionView};

use crate::engine::config::PortId;

/// A request to trace packets.
pub struct TraceRequest {
    /// The packets: those that some rule of this policy matches as they come in. None: all.
    pub filter: Option<Policy>,
    /// How much of each packet is noted.
    pub detail: TraceDetail,
    /// Counts packets that the filter matched and that were not traced, as there were too many at once.
    pub missed: Arc<AtomicU64>,
    /// Gets each trace when its packet has left the graph. Returns whether there may be more.
    pub sink: Box<dyn FnMut(PacketTrace) -> bool + Send>,
}

/// What a trace notes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceDetail {
    /// The contiguous beginning of the packet in front of each node.
    Path,
    /// The whole packet as it comes in, and in front of the last node.
    Ends,
}

impl TraceDetail {
    /// Most packets of a vector whose traces begin.
    pub(super) fn most_of_vector(self) -> usize {
        match self {
            TraceDetail::Path => 8,
            TraceDetail::Ends => 64,
        }
    }
}

/// The path of a packet through the graph.
#[derive(Clone, Debug)]
pub struct PacketTrace {
    /// Number of the packet among those that the worker has traced, from 1.
    pub number: u64,
    /// The worker that processed it.
    pub worker: usize,
    /// When it came in, in nanoseconds since 1970.
    pub time_ns: u64,
    /// The port by which it came in.
    pub in_port: PortId,
    /// The nodes that it passed.
    pub steps: Vec<TraceStep>,
    /// The rules that were asked about it last.
    pub rules: Option<AppliedRules>,
    /// Its session.
    pub session: Option<TracedSession>,
    /// What became of it.
    pub end: TraceEnd,
}

/// A packet in front of a node.
#[derive(Clone, Debug)]
pub struct TraceStep {
    /// The node.
    pub node: &'static str,
    /// The contiguous beginning of the frame.
    pub head: Vec<u8>,
    /// Bytes of the frame.
    pub len: usize,
    /// The metadata.
    pub meta: Meta,
    /// The functions of its chain that the packet passed in the node before, in order.
    pub functions: Vec<FunctionVisit>,
    /// In front of a node that forwards routed packets: the neighbour. None: the destination itself, or no
    /// such node.
    pub gateway: Option<IpAddr>,
}

/// The rules that apply to a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppliedRules {
    /// Indexes of all rules that match, ascending.
    pub matched: Vec<u32>,
    /// Output port that rules read.
    pub out_port: u16,
    /// Position in [`PacketTrace::steps`] of the node that asked the rules.
    pub step: usize,
    /// The rule that decides whether the packet goes on. None: no rule decides.
    pub decider: Option<u32>,
}

/// The session of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedSession {
    /// The session, after it has counted the packet.
    pub view: SessionView,
    /// Whether the packet has opened it.
    pub is_new: bool,
    /// The packet's direction.
    pub direction: Direction,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceEnd {
    /// It was given to a port for transmission.
    Sent(PortId),
    /// It was dropped.
    Dropped(DropReason),
    /// Another worker owns its flow and got it.
    HandedOver,
    /// A function has sent its bytes in other frames, or nothing is left of them.
    Consumed,
    /// A node keeps it: it waits for a function, for a first fragment, or for an address of a neighbour.
    Kept,
}
