//! Configuration of a static forward.

use std::net::Ipv4Addr;

use super::error::{NatConfigError, check_host_address};
use super::types::{Endpoint, PortProto};

/// A static forward: an external address and port that always map to the same internal endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ForwardConfig {
    pub(super) proto: PortProto,
    pub(super) external: Endpoint,
    pub(super) internal: Endpoint,
}

impl ForwardConfig {
    /// Creates the forward of a TCP or UDP port.
    ///
    /// # Errors
    /// ICMP; port 0; an address that is not a host's; equal addresses.
    pub fn new(
        proto: PortProto,
        external: (Ipv4Addr, u16),
        internal: (Ipv4Addr, u16),
    ) -> Result<ForwardConfig, NatConfigError> {
        if proto == PortProto::Icmp {
            return Err(NatConfigError::ForwardProto);
        }
        for (address, port) in [external, internal] {
            check_host_address(address)?;
            if port == 0 {
                return Err(NatConfigError::ForwardPortZero(address));
            }
        }
        if external.0 == internal.0 {
            return Err(NatConfigError::ForwardToItself(external.0));
        }
        let end = |(address, port): (Ipv4Addr, u16)| Endpoint { address: address.into(), port };
        Ok(ForwardConfig { proto, external: end(external), internal: end(internal) })
    }

    /// The protocol.
    pub fn proto(&self) -> PortProto {
        self.proto
    }

    /// Destination of packets from outside.
    pub fn external(&self) -> Endpoint {
        self.external
    }

    /// The internal endpoint that gets them.
    pub fn internal(&self) -> Endpoint {
        self.internal
    }
}
