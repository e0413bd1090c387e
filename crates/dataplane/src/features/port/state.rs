//! What a worker keeps about ports: the order of polling, the packets on their way out, and packet memory.

use std::sync::Arc;

use mmb_dpdk::{Burst, Mempool};

use crate::engine::pool_growth::PoolGrowths;

/// A worker's side of receiving and transmitting.
pub(crate) struct PortState {
    /// The port that the next walk polls first.
    pub first: usize,
    /// Packets received since the poll loop looked last.
    pub received: usize,
    /// The walk before this one found nothing, and the worker may sleep.
    pub was_idle: bool,
    /// Packets on their way to a port or to another worker; a node takes it while it fills it.
    pub burst: Option<Burst>,
    /// Memory for packets that nodes create; none are created without it.
    pub pool: Option<Mempool>,
    /// What adds buffers to the pools.
    pub growths: Arc<PoolGrowths>,
}

impl PortState {
    /// Whether this walk has a single packet and the worker nothing else to do.
    pub fn has_single_packet(&self) -> bool {
        self.received == 1 && self.was_idle
    }
}

impl Default for PortState {
    fn default() -> Self {
        PortState {
            first: 0,
            received: 0,
            was_idle: false,
            burst: Some(Burst::new()),
            pool: None,
            growths: Arc::default(),
        }
    }
}
