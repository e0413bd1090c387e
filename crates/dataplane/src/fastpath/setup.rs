//! What a configuration is to the fast path: whether it is one for it, and with which ports.

use std::sync::Arc;

use mmb_flow::{NatConfig, SessionSettings};
use mmb_policy::{Policy, PortDependence, RuleScope};

use super::{FastEnd, FastSetup, Kernel};
use crate::engine::config::{Forwarding, MAX_PORTS};
use crate::features::port::device::OpenPort;

/// Why no flow can be given to the kernel under these rules: a sentence. None: flows can.
pub fn fast_path_obstacle(policy: &Policy, nat: &NatConfig, settings: &SessionSettings) -> Option<String> {
    if let Some((index, words)) = policy.offload_obstacle() {
        return Some(format!("rule {index} has to see each packet: `{words}`"));
    }
    if !policy.is_stateful() && nat.is_empty() {
        return None;
    }
    if settings.tcp_window_check {
        return Some("tcp-window-check has to see each segment".to_owned());
    }
    policy.per_packet()?;
    // Routes change while sessions live.
    let asks = policy.rules().find(|view| policy.rule_info(view.slot).scope == RuleScope::Packet)?;
    Some(format!("rule {} asks where packets of sessions go: `out`", asks.index))
}

/// The fast path of these ports, by id, if one of them has any; `plain`: no rules apply to what comes in by them.
pub(crate) fn setup(
    ports: &[Option<Arc<OpenPort>>; MAX_PORTS],
    (learns, plain): (bool, bool),
    pairs: Option<PortDependence>,
) -> Option<Arc<FastSetup>> {
    let devices = || ports.iter().flatten().map(|port| port.device());
    let kernel: Arc<dyn Kernel> = devices().find_map(|device| device.fast_path())?.clone();
    let ends = ports.each_ref().map(|port| {
        let port = port.as_ref()?;
        port.device().fast_port().map(|number| FastEnd { number, redirects: port.redirects().clone() })
    });
    Some(Arc::new(FastSetup { kernel, learns, plain, pairs, ends }))
}

/// Between which addresses ports do not count, if there are any such. `flows`: packets need sessions.
pub(crate) fn pairs(policy: &Policy, flows: bool) -> Option<PortDependence> {
    policy.port_dependence().filter(|pairs| !flows && pairs.has_port_independent()).cloned()
}

/// Whether flows are to be learnt.
pub(crate) fn learns(forwarding: &Forwarding) -> bool {
    forwarding.fast_path
        && fast_path_obstacle(&forwarding.policy, &forwarding.nat, &forwarding.settings).is_none()
}
