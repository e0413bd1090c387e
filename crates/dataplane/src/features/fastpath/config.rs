//! The fast path of a forwarding configuration.

use std::sync::Arc;

use mmb_fastpath::{FastPathConfig, FastPathPort, KernelTable, address_pairs, fast_path_obstacle};
use mmb_policy::Policy;

use crate::engine::config::{Forwarding, MAX_PORTS};
use crate::features::port::device::OpenPort;

/// Whether flows are learned: the fast path is on, and the policy allows it.
pub(crate) fn is_learning(forwarding: &Forwarding) -> bool {
    forwarding.fast_path
        && fast_path_obstacle(&forwarding.policy, &forwarding.nat, &forwarding.settings).is_none()
}

/// The fast path of these ports, by id, if one of them has any. `is_plain`: no rules apply to packets from
/// them.
pub(crate) fn new(
    ports: &[Option<Arc<OpenPort>>; MAX_PORTS],
    policy: &Policy,
    (is_learning, needs_sessions, is_plain): (bool, bool, bool),
) -> Option<Arc<FastPathConfig>> {
    let devices = || ports.iter().flatten().map(|port| port.device());
    let kernel: Arc<dyn KernelTable> = devices().find_map(|device| device.fast_path())?.clone();
    let fast_port = |port: &Option<Arc<OpenPort>>| {
        let port = port.as_ref()?;
        let number = port.device().fast_port()?;
        Some(FastPathPort { number, can_redirect: port.can_redirect().clone() })
    };
    let ports = ports.iter().map(fast_port).collect();
    let pairs = address_pairs(policy, needs_sessions);
    Some(Arc::new(FastPathConfig { kernel, is_learning, needs_sessions, is_plain, pairs, ports }))
}
