//! Errors of the NAT configuration.

use std::net::Ipv4Addr;

use super::types::{Endpoint, MAX_FORWARDS, MAX_POOL_ADDRESSES, MAX_POOLS};

/// Why a pool, a forward or a set of them is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NatConfigError {
    /// The name of a pool is empty.
    #[error("a pool needs a name")]
    NoName,
    /// The last address is below the first.
    #[error("the last address {last} of the pool is below the first address {first}")]
    AddressOrder {
        /// First address.
        first: Ipv4Addr,
        /// Last address.
        last: Ipv4Addr,
    },
    /// A pool has more than [`MAX_POOL_ADDRESSES`].
    #[error("{0} addresses exceed the limit of {MAX_POOL_ADDRESSES} for a pool")]
    TooManyAddresses(u64),
    /// Multicast, broadcast, loopback or in 0.0.0.0/8.
    #[error("{0} is not the address of a host")]
    NotAHost(Ipv4Addr),
    /// The ports of a pool begin with 0.
    #[error("port 0 is not a valid source port")]
    PortZero,
    /// The last port is below the first.
    #[error("the last port {high} of the pool is below the first port {low}")]
    PortOrder {
        /// First port.
        low: u16,
        /// Last port.
        high: u16,
    },
    /// The size of a block is 0.
    #[error("a block has at least one port")]
    EmptyBlock,
    /// A block is larger than the range of ports.
    #[error("a block of {size} ports does not fit into the ports {low}-{high}")]
    BlockTooLarge {
        /// Ports in a block.
        size: u16,
        /// First port of the pool.
        low: u16,
        /// Last port of the pool.
        high: u16,
    },
    /// The limit of sessions is 0.
    #[error("a limit of 0 sessions permits no traffic; omit `limit` for no limit")]
    ZeroLimit,
    /// A forward of ICMP.
    #[error("only TCP and UDP ports can be forwarded")]
    ForwardProto,
    /// A forward from or to port 0.
    #[error("port 0 of {0} cannot be forwarded")]
    ForwardPortZero(Ipv4Addr),
    /// External and internal address are equal.
    #[error("the forward maps {0} to the same address")]
    ForwardToItself(Ipv4Addr),
    /// More than [`MAX_POOLS`].
    #[error("{0} pools exceed the limit of {MAX_POOLS}")]
    TooManyPools(usize),
    /// More than [`MAX_FORWARDS`].
    #[error("{0} forwards exceed the limit of {MAX_FORWARDS}")]
    TooManyForwards(usize),
    /// Two pools have the same name.
    #[error("there are two pools with the name {0}")]
    DuplicatePool(String),
    /// Two pools have an address and a port in common.
    #[error("the pools {0} and {1} share addresses and ports")]
    Overlap(String, String),
    /// The internal address of a forward is in a pool.
    #[error("the internal address {address} of a forward is an address of the pool {pool}")]
    ForwardToPool {
        /// Internal address of the forward.
        address: Ipv4Addr,
        /// Name of the pool.
        pool: String,
    },
    /// Two forwards have the same protocol and external endpoint.
    #[error("there are two forwards of {proto} {external}")]
    DuplicateForward {
        /// Name of the protocol.
        proto: &'static str,
        /// External endpoint.
        external: Endpoint,
    },
}

/// Checks that an address can be the address of a host.
pub(super) fn check_host_address(address: Ipv4Addr) -> Result<(), NatConfigError> {
    if address.octets()[0] == 0 || address.is_multicast() || address.is_broadcast() || address.is_loopback() {
        return Err(NatConfigError::NotAHost(address));
    }
    Ok(())
}
