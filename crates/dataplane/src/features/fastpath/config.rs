//! The fast path of a forwarding configuration.

use std::sync::Arc;

use mmb_dpdk::FastHook;
use mmb_fastpath::{FastPathConfig, FastPathPort, KernelTable, address_pairs, fast_path_obstacle};
use mmb_lang::FastPathMode;
use mmb_policy::Policy;

use crate::engine::config::{Forwarding, MAX_PORTS};
use crate::features::port::device::OpenPort;

/// Whether flows are learned: the fast path is on, and the policy allows it.
pub(crate) fn is_learning(forwarding: &Forwarding) -> bool {
    forwarding.fast_path != FastPathMode::Off
        && fast_path_obstacle(&forwarding.policy, &forwarding.nat, &forwarding.settings).is_none()
}

/// Whether flows of ports with this program are learned.
pub fn learns(forwarding: &Forwarding, hook: FastHook) -> bool {
    is_learning(forwarding) && admits(forwarding.fast_path, hook)
}

/// Whether the setting admits ports with this program.
pub fn admits(mode: FastPathMode, hook: FastHook) -> bool {
    match mode {
        FastPathMode::Off => false,
        FastPathMode::Auto => true,
        FastPathMode::Xdp => hook == FastHook::Xdp,
        FastPathMode::Tc => hook == FastHook::Tc,
    }
}

/// The fast path of these ports, by id, if the setting admits one of them that has any. `is_plain`:
/// [`Snapshot::is_plain`](crate::engine::snapshot::Snapshot::is_plain).
pub(crate) fn new(
    ports: &[Option<Arc<OpenPort>>; MAX_PORTS],
    policy: &Policy,
    mode: FastPathMode,
    (is_learning, needs_sessions, is_plain): (bool, bool, bool),
) -> Option<Arc<FastPathConfig>> {
    let devices = || ports.iter().flatten().map(|port| port.device());
    // Entries of ports that the setting does not admit any more end in the same table.
    let kernel: Arc<dyn KernelTable> = devices().find_map(|device| device.fast_path())?.clone();
    let fast_port = |port: &Option<Arc<OpenPort>>| {
        let port = port.as_ref()?;
        let device = port.device();
        let hook = device.fast_hook().filter(|hook| device.is_fast() && admits(mode, *hook))?;
        Some(FastPathPort { number: device.fast_port()?, hook, can_redirect: port.can_redirect().clone() })
    };
    let ports = ports.iter().map(fast_port).collect();
    let pairs = address_pairs(policy, needs_sessions);
    Some(Arc::new(FastPathConfig { kernel, is_learning, needs_sessions, is_plain, pairs, ports }))
}
