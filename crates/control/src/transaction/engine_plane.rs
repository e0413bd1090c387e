//! The engine as the mirror of the kernel's routes sees it.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use mmb_dataplane::{Engine, PortError, PortId, Steering};
use mmb_route::Routes;
use mmb_router::{ForwardingPlane, LocalTraffic, NeighborRequest, PortNumber, PortState};

use super::addresses::PortAddresses;

/// Connects [`mmb_router::Router`] to the engine.
pub(super) struct EnginePlane {
    pub engine: Arc<Engine>,
    /// Gets the addresses of the ports.
    pub addresses: Arc<PortAddresses>,
}

impl ForwardingPlane for EnginePlane {
    type Error = PortError;

    fn publish_routes(&self, routes: Routes) {
        self.engine.publish_routes(routes);
    }

    fn set_local_traffic(&self, port: PortNumber, local: Option<&LocalTraffic>) -> Result<(), PortError> {
        self.addresses.set(PortId(port), local.and_then(|local| local.own));
        let steering = local.map(|local| Steering { mac: local.mac, local: local.addresses.clone() });
        let shared = local.map_or(&[][..], |local| &local.shared);
        self.engine.steer(PortId(port), steering.as_ref(), shared)
    }

    fn neighbor_requests_fd(&self) -> BorrowedFd<'_> {
        self.engine.neighbor_requests().fd()
    }

    fn take_neighbor_requests(&self) -> Vec<NeighborRequest> {
        let requests = self.engine.neighbor_requests().take().into_iter();
        requests
            .map(|request| NeighborRequest { interface: request.interface, address: request.address })
            .collect()
    }

    fn port_state(&self, port: PortNumber) -> Option<PortState> {
        let port = PortId(port);
        let info = self.engine.port_info(port)?;
        Some(PortState { mac: self.engine.port_mac(port)?, mtu: info.mtu, up: info.link_up })
    }
}
