//! The engine as the mirror of the kernel's routes sees it.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use mmb_dataplane::{Engine, PortError, PortId, Steering};
use mmb_route::Routes;
use mmb_router::{ForwardingPlane, LocalTraffic, NeighborRequest, PortNumber, PortState};

/// Connects [`mmb_router::Router`] to the engine.
pub(super) struct EnginePlane(pub Arc<Engine>);

impl ForwardingPlane for EnginePlane {
    type Error = PortError;

    fn publish_routes(&self, routes: Routes) {
        self.0.publish_routes(routes);
    }

    fn set_local_traffic(&self, port: PortNumber, local: Option<&LocalTraffic>) -> Result<(), PortError> {
        let steering = local.map(|local| Steering { mac: local.mac, local: local.addresses.clone() });
        self.0.steer(PortId(port), steering.as_ref())
    }

    fn neighbor_requests_fd(&self) -> BorrowedFd<'_> {
        self.0.neighbor_requests().fd()
    }

    fn take_neighbor_requests(&self) -> Vec<NeighborRequest> {
        let requests = self.0.neighbor_requests().take().into_iter();
        requests
            .map(|request| NeighborRequest { interface: request.interface, address: request.address })
            .collect()
    }

    fn port_state(&self, port: PortNumber) -> Option<PortState> {
        let port = PortId(port);
        let info = self.0.port_info(port)?;
        Some(PortState { mac: self.0.port_mac(port)?, mtu: info.mtu, up: info.link_up })
    }
}
