//! Values of the NAT configuration.

use std::net::Ipv4Addr;

/// Maximum number of addresses of a pool.
pub const MAX_POOL_ADDRESSES: u32 = 4096;
/// Maximum number of pools.
pub const MAX_POOLS: usize = 1024;
/// Maximum number of forwards.
pub const MAX_FORWARDS: usize = 65_536;

/// Number of a pool in its [`super::NatConfig`]: its index in the order of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId(pub u16);

/// Which remote endpoints may send to a mapping, besides those of existing sessions (RFC 4787 section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Filtering {
    /// Any endpoint.
    EndpointIndependent,
    /// Addresses with which the internal endpoint has a session (RFC 4787 REQ-8: more security).
    #[default]
    AddressDependent,
    /// No other endpoint.
    AddressAndPortDependent,
}

/// A protocol with ports, or with identifiers that serve as ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PortProto {
    /// UDP.
    Udp = 0,
    /// TCP.
    Tcp = 1,
    /// ICMP queries. The identifier is the port.
    Icmp = 2,
}

impl PortProto {
    /// All protocols: `ALL[i] as usize == i`.
    pub const ALL: [PortProto; 3] = [PortProto::Udp, PortProto::Tcp, PortProto::Icmp];

    /// The protocol with this IP protocol number.
    pub fn of(number: u8) -> Option<PortProto> {
        match number {
            17 => Some(PortProto::Udp),
            6 => Some(PortProto::Tcp),
            1 => Some(PortProto::Icmp),
            _ => None,
        }
    }

    /// The IP protocol number.
    pub fn number(self) -> u8 {
        match self {
            PortProto::Udp => 17,
            PortProto::Tcp => 6,
            PortProto::Icmp => 1,
        }
    }

    /// The name of the protocol.
    pub fn name(self) -> &'static str {
        match self {
            PortProto::Udp => "udp",
            PortProto::Tcp => "tcp",
            PortProto::Icmp => "icmp",
        }
    }
}

/// An external or internal endpoint: address and port in host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    /// The address.
    pub address: u32,
    /// The port, or the identifier of ICMP queries.
    pub port: u16,
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", Ipv4Addr::from(self.address), self.port)
    }
}
