//! The wire of a bench.

use mmb_dataplane::{Forwarding, PortConfig, PortId};

/// `forwarding` with a wire, and its ends: where packets arrive, and where they leave.
pub(super) fn with_wire(forwarding: &Forwarding) -> (Forwarding, PortId, PortId) {
    let mut forwarding = forwarding.clone();
    if let Some((near, far)) = first_wire(&forwarding.ports) {
        return (forwarding, near, far);
    }
    let (a, b) = (PortId(0), PortId(1));
    forwarding.ports.retain(|p| p.id != a && p.id != b);
    forwarding.ports.push(PortConfig::wire(a, b));
    forwarding.ports.push(PortConfig::wire(b, a));
    (forwarding, a, b)
}

/// The first wire: two ports that are each other's peers. A routed port and its twin are not a wire.
pub(super) fn first_wire(ports: &[PortConfig]) -> Option<(PortId, PortId)> {
    let is_peer = |from: PortId, to: PortId| ports.iter().any(|p| p.id == from && p.peer == Some(to));
    ports.iter().filter_map(|p| Some((p.id, p.peer?))).find(|&(near, far)| is_peer(far, near))
}
