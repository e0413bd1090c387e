//! NAT commands: pools of addresses, and forwards.

use std::net::Ipv4Addr;

use super::Word;

/// `nat pool add NAME A.B.C.D[-A.B.C.E] [ports LO-HI] [block N] [limit N] [filtering HOW]`: addresses and
/// ports that the target `nat NAME` assigns to hosts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NatPool {
    /// Its name.
    pub name: Word,
    /// First and last address: at most [`NatPool::MAX_ADDRESSES`], all unicast.
    pub addresses: [Ipv4Addr; 2],
    /// First and last port (ICMP: identifier), from 1 on. Default: [`NatPool::PORTS`].
    pub ports: [u16; 2],
    /// Number of consecutive ports in a block. None: ports are allocated one by one.
    pub block: Option<u16>,
    /// Maximum number of sessions that a host may have opened, at least 1. None: no limit.
    pub limit: Option<u32>,
    /// Which remote endpoints may send to a mapping.
    pub filtering: Filtering,
}

impl NatPool {
    /// Default ports of a pool. Ports below 1024 are for hosts that use such ports (RFC 4787 REQ-3).
    pub const PORTS: [u16; 2] = [1, 65535];
    /// Maximum number of addresses of a pool.
    pub const MAX_ADDRESSES: u32 = 4_096;
}

/// Which remote endpoints may send to a host behind NAT (RFC 4787 section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Filtering {
    /// Any endpoint, once the mapping exists.
    EndpointIndependent,
    /// Addresses to which the host's port has sent (RFC 4787 REQ-8). The default.
    #[default]
    AddressDependent,
    /// Addresses and ports to which the host's port has sent.
    AddressAndPortDependent,
}

impl Filtering {
    /// The keyword after `filtering`.
    pub fn word(self) -> &'static str {
        crate::keyword::filtering_word(self)
    }
}

/// A transport protocol of forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NatProto {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl NatProto {
    /// The name of the protocol.
    pub fn word(self) -> &'static str {
        crate::keyword::nat_proto_word(self)
    }

    /// The IP protocol number.
    pub fn number(self) -> u8 {
        match self {
            NatProto::Tcp => 6,
            NatProto::Udp => 17,
        }
    }
}

/// An IPv4 address and a nonzero port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint4 {
    /// The address.
    pub address: Ipv4Addr,
    /// The port.
    pub port: u16,
}

/// `nat forward add PROTO ADDRESS PORT to ADDRESS PORT`: packets to the first endpoint go to the second, from
/// any source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NatForward {
    /// The transport protocol.
    pub proto: NatProto,
    /// The external endpoint.
    pub outside: Endpoint4,
    /// The internal endpoint.
    pub inside: Endpoint4,
}
