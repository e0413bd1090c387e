//! What the mirror needs of an engine, so that it can be tested without one.

use std::os::fd::BorrowedFd;

use mmb_dataplane::{Engine, PortId, Steering, Want};
use mmb_route::Routes;

/// A port's state as its twin shows it to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortState {
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Largest IP packet, in bytes.
    pub mtu: u16,
    /// Whether there is a carrier.
    pub up: bool,
}

/// What forwards by the mirrored routes.
pub trait ForwardingPlane: Send + Sync + 'static {
    /// Has packets forwarded by these routes from now on; returns at once.
    fn publish_routes(&self, routes: Routes);
    /// Says which frames of a port are the kernel's.
    ///
    /// # Errors
    /// One sentence.
    fn steer(&self, port: PortId, steering: Option<&Steering>) -> Result<(), String>;
    /// Becomes readable when neighbours are wanted.
    fn wants_fd(&self) -> BorrowedFd<'_>;
    /// The neighbours that are wanted.
    fn take_wants(&self) -> Vec<Want>;
    /// A port's state; none if it is not open.
    fn port_state(&self, port: PortId) -> Option<PortState>;
}

impl ForwardingPlane for Engine {
    fn publish_routes(&self, routes: Routes) {
        Engine::publish_routes(self, routes);
    }

    fn steer(&self, port: PortId, steering: Option<&Steering>) -> Result<(), String> {
        Engine::steer(self, port, steering).map_err(|e| e.to_string())
    }

    fn wants_fd(&self) -> BorrowedFd<'_> {
        self.wants().fd()
    }

    fn take_wants(&self) -> Vec<Want> {
        self.wants().take()
    }

    fn port_state(&self, port: PortId) -> Option<PortState> {
        let info = self.port_info(port)?;
        Some(PortState { mac: self.port_mac(port)?, mtu: info.mtu, up: info.link_up })
    }
}
