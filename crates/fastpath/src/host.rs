//! What the fast path needs of the engine.

use mmb_dpdk::FastPort;
use mmb_route::Routes;
use mmb_session::Environment;

use crate::refusal::FastCounters;

/// The direction of forwarded packets at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortSide {
    /// The port has received them.
    Ingress,
    /// The port has sent them.
    Egress,
}

/// A worker's configuration, and the counters that the fast path credits.
pub trait FastPathHost: Environment {
    /// Whether rules apply to packets from a port.
    fn has_rules(&self, in_port: u16) -> bool;

    /// Bytes of the longest frame that a port sends if its network header stands behind `link` bytes.
    fn max_frame(&self, port: u16, link: u16) -> usize;

    /// Adds packets that the kernel has forwarded to a port's counters, unless the port's number is now
    /// another port's.
    fn count_forwarded(&self, port: u16, number: FastPort, side: PortSide, packets: u64, bytes: u64);
}

/// What [`crate::FlowLearner::learn_from_tx`] needs about the walk in which a packet is sent.
#[derive(Clone, Copy)]
pub struct TxContext<'a, H> {
    /// The generation of the worker's configuration, read before the ports' state is.
    pub generation: u64,
    /// The worker's routes.
    pub routes: &'a Routes,
    /// The worker's configuration.
    pub host: &'a H,
    /// The worker's counters.
    pub counters: &'a FastCounters,
}
