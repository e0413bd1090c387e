//! The fast path of one published configuration.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mmb_dpdk::{FastGranularity, FastHook, FastKey, FastPort};
use mmb_policy::PortDependence;

use crate::kernel::KernelTable;

/// A port on the fast path.
#[derive(Clone)]
pub struct FastPathPort {
    /// Its number in the kernel; no other port ever has it.
    pub number: FastPort,
    /// The program that forwards the packets it receives.
    pub hook: FastHook,
    /// Whether its interface takes frames redirected at XDP, as of the last check.
    pub can_redirect: Arc<AtomicBool>,
}

/// The fast path of one configuration.
#[derive(Clone)]
pub struct FastPathConfig {
    /// The kernel's table.
    pub kernel: Arc<dyn KernelTable>,
    /// Whether flows are learned: the fast path is on, and the policy allows it.
    pub is_learning: bool,
    /// Whether packets open sessions.
    pub needs_sessions: bool,
    /// Whether there are neither rules nor reverse path filters: ingress port and destination decide a
    /// packet's treatment if each route has one next hop.
    pub is_plain: bool,
    /// The address pairs whose ports do not matter, if no packet needs a session: both addresses decide a
    /// packet's treatment if each route has one next hop.
    pub pairs: Option<PortDependence>,
    /// Ports by id.
    pub ports: Box<[Option<FastPathPort>]>,
}

impl FastPathConfig {
    /// Whether both configurations use the same kernel table, so that entries of one are valid in the other.
    pub(crate) fn has_same_kernel(&self, other: &FastPathConfig) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.kernel), Arc::as_ptr(&other.kernel))
    }

    /// A port, as an ingress of flows.
    pub(crate) fn ingress(&self, port: u16) -> Option<&FastPathPort> {
        self.ports.get(usize::from(port))?.as_ref()
    }

    /// The number of a port as an egress of flows from `ingress`; None: frames cannot be redirected to it.
    pub(crate) fn egress(&self, ingress: u16, port: u16) -> Option<FastPort> {
        let from_tc = self.ingress(ingress)?.hook == FastHook::Tc;
        let port = self.ingress(port)?;
        (from_tc || port.can_redirect.load(Ordering::Acquire)).then_some(port.number)
    }

    /// The granularity of entries. `is_multipath`: some route has several next hops.
    pub fn granularity(&self, is_multipath: bool) -> FastGranularity {
        match &self.pairs {
            _ if is_multipath => FastGranularity::Flow,
            _ if self.is_plain => FastGranularity::Destination,
            Some(_) => FastGranularity::Pair,
            None => FastGranularity::Flow,
        }
    }

    /// Whether rules treat all flows between a flow's addresses alike.
    pub(crate) fn is_pair(&self, port: u16, key: &FastKey) -> bool {
        let alike =
            |pairs: &PortDependence| pairs.is_port_independent(port, key.proto, key.source, key.destination);
        self.pairs.as_ref().is_some_and(alike)
    }
}
