//! What is said about network address translation outside of rules: pools of addresses, and forwards.

use std::net::Ipv4Addr;

use super::Word;

/// `nat pool add NAME A.B.C.D[-A.B.C.E] [ports LO-HI] [block N] [limit N] [filtering HOW]`: addresses and
/// ports that the target `nat NAME` gives to hosts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NatPool {
    /// Its name.
    pub name: Word,
    /// The first and the last address. At most [`NatPool::MAX_ADDRESSES`] of them, all unicast.
    pub addresses: [Ipv4Addr; 2],
    /// The first and the last port (ICMP: identifier); from 1 on. [`NatPool::PORTS`] if not said.
    pub ports: [u16; 2],
    /// How many ports in a row a host gets at a time; no more than there are. None: ports are given out one
    /// by one.
    pub block: Option<u16>,
    /// How many sessions that it has opened itself a host may have at a time, at least 1. None: as many as
    /// there are ports.
    pub limit: Option<u32>,
    /// Who may send to a mapping from outside.
    pub filtering: Filtering,
}

impl NatPool {
    /// The ports of a pool that says nothing about them: ports below 1024 are for hosts that use such ports
    /// (RFC 4787 REQ-3).
    pub const PORTS: [u16; 2] = [1, 65535];
    /// Most addresses of a pool.
    pub const MAX_ADDRESSES: u32 = 4_096;
}

/// Who outside may send to a host behind NAT (RFC 4787 section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Filtering {
    /// Anybody, as soon as the mapping is there.
    EndpointIndependent,
    /// Addresses that the host's port has sent to (RFC 4787 REQ-8). What stands when nothing is said.
    #[default]
    AddressDependent,
    /// Addresses and ports that the host's port has sent to.
    AddressAndPortDependent,
}

impl Filtering {
    /// The word behind `filtering`.
    pub fn word(self) -> &'static str {
        crate::keyword::filtering_word(self)
    }
}

/// A transport protocol that has forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NatProto {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl NatProto {
    /// Its name.
    pub fn word(self) -> &'static str {
        crate::keyword::nat_proto_word(self)
    }

    /// Its number.
    pub fn number(self) -> u8 {
        match self {
            NatProto::Tcp => 6,
            NatProto::Udp => 17,
        }
    }
}

/// An IPv4 address and a port, which is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint4 {
    /// The address.
    pub address: Ipv4Addr,
    /// The port.
    pub port: u16,
}

/// `nat forward add PROTO ADDRESS PORT to ADDRESS PORT`: what is sent to the first goes to the second, from
/// whomever it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NatForward {
    /// The transport protocol.
    pub proto: NatProto,
    /// What it is known as outside.
    pub outside: Endpoint4,
    /// The host behind NAT and its port.
    pub inside: Endpoint4,
}
