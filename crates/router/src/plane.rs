//! The interface between the mirror and a forwarding engine.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::BorrowedFd;

use mmb_route::Routes;

/// A port's number in the engine, as in [`mmb_route::NextHop::port`].
pub type PortNumber = u16;

/// A port's state. A twin shows it to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortState {
    /// The Ethernet address.
    pub mac: [u8; 6],
    /// Largest IP packet, in bytes.
    pub mtu: u16,
    /// Whether there is a carrier.
    pub up: bool,
}

/// Traffic of a port that belongs to the kernel: frames that are not for `mac`, and packets to `addresses`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalTraffic {
    /// The interface's Ethernet address.
    pub mac: [u8; 6],
    /// The machine's addresses, in ascending order.
    pub addresses: Vec<IpAddr>,
    /// The machine's addresses that rules or NAT use, too, in ascending order. The kernel gets those packets
    /// to them that are for neither.
    pub shared: Vec<IpAddr>,
    /// The IPv4 address of the interface itself; of several, the lowest primary one with the widest scope.
    pub own: Option<Ipv4Addr>,
}

/// A neighbour whose Ethernet address the kernel is asked to find or to confirm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborRequest {
    /// The kernel's index of the interface.
    pub interface: u32,
    /// The neighbour's address.
    pub address: IpAddr,
}

/// How a routed port is connected to the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Device {
    /// The port shares the kernel's interface by XDP.
    Xdp,
    /// The kernel has a TAP with the port's name.
    Twin {
        /// The kernel's interface behind the port, if there is one. The kernel itself must not use it.
        real: Option<String>,
    },
}

/// A routed port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutedPort {
    /// The port.
    pub port: PortNumber,
    /// The operator's name for it.
    pub name: String,
    /// The kernel's interface that has its addresses: its own interface, or its twin.
    pub ifname: String,
    /// Its connection to the kernel.
    pub device: Device,
}

/// An engine that forwards by the mirrored routes.
pub trait ForwardingPlane: Send + Sync + 'static {
    /// Why the engine refuses something.
    type Error: Error + Send + Sync;

    /// Makes the engine forward by these routes; returns at once.
    fn publish_routes(&self, routes: Routes);
    /// Tells the engine which traffic of a port belongs to the kernel; None: the port is no longer routed.
    ///
    /// # Errors
    /// The engine's, for example if there is no such port.
    fn set_local_traffic(&self, port: PortNumber, local: Option<&LocalTraffic>) -> Result<(), Self::Error>;
    /// A descriptor that is readable while there are neighbour requests.
    fn neighbor_requests_fd(&self) -> BorrowedFd<'_>;
    /// Takes all neighbour requests.
    fn take_neighbor_requests(&self) -> Vec<NeighborRequest>;
    /// A port's state; None if it is not open.
    fn port_state(&self, port: PortNumber) -> Option<PortState>;
}
