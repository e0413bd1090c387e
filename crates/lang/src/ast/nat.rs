//! NAT commands: pools of addresses, and forwards.

use std::net::Ipv4Addr;

use super::Word;

/// `nat pool add NAME ADDRESSES [ports LO-HI] [block N] [limit N] [filtering HOW]`: addresses and ports that
/// the target `nat NAME` assigns to hosts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NatPool {
    /// Its name.
    pub name: Word,
    /// Its addresses: at most [`NatPool::MAX_ADDRESSES`], all unicast.
    pub addresses: PoolAddresses,
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

/// The addresses of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PoolAddresses {
    /// `A.B.C.D[-A.B.C.E]`: first and last address.
    Range([Ipv4Addr; 2]),
    /// `A.B.C.D/LENGTH`: all addresses of a subnet.
    Subnet {
        /// The first address.
        first: Ipv4Addr,
        /// The prefix length.
        length: u8,
    },
    /// `interface NAME`: the address that this routed interface has at the time.
    Interface(Word),
}

impl PoolAddresses {
    /// First and last address; none if they are those of an interface.
    pub fn range(&self) -> Option<[Ipv4Addr; 2]> {
        match self {
            PoolAddresses::Range(range) => Some(*range),
            PoolAddresses::Subnet { first, length } => {
                let hosts = u32::MAX.checked_shr(u32::from(*length)).unwrap_or(0);
                Some([*first, Ipv4Addr::from_bits(first.to_bits() | hosts)])
            }
            PoolAddresses::Interface(_) => None,
        }
    }

    /// The interface that the pool follows.
    pub fn interface(&self) -> Option<&Word> {
        match self {
            PoolAddresses::Interface(name) => Some(name),
            _ => None,
        }
    }
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
