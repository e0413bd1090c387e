//! NAT lines of the language as configuration of `mmb-flow`.

use std::net::Ipv4Addr;

use mmb_flow::{Filtering, ForwardConfig, NatConfigError, PoolConfig, PortProto};
use mmb_lang::{Endpoint4, NatForward, NatPool, NatProto};

/// Returns the configuration of a pool with these addresses, first and last.
///
/// # Errors
/// As [`PoolConfig`]'s functions.
pub fn pool_config(pool: &NatPool, [first, last]: [Ipv4Addr; 2]) -> Result<PoolConfig, NatConfigError> {
    let [low, high] = pool.ports;
    let mut config = PoolConfig::new(&pool.name, first, last)?.with_ports(low, high)?;
    if let Some(size) = pool.block {
        config = config.with_block(size)?;
    }
    if let Some(limit) = pool.limit {
        config = config.with_limit(limit)?;
    }
    Ok(config.with_filtering(match pool.filtering {
        mmb_lang::Filtering::EndpointIndependent => Filtering::EndpointIndependent,
        mmb_lang::Filtering::AddressDependent => Filtering::AddressDependent,
        mmb_lang::Filtering::AddressAndPortDependent => Filtering::AddressAndPortDependent,
    }))
}

/// Returns the configuration of a port forward.
///
/// # Errors
/// As [`ForwardConfig::new`].
pub fn forward_config(forward: &NatForward) -> Result<ForwardConfig, NatConfigError> {
    let proto = match forward.proto {
        NatProto::Tcp => PortProto::Tcp,
        NatProto::Udp => PortProto::Udp,
    };
    let endpoint = |endpoint: Endpoint4| (endpoint.address, endpoint.port);
    ForwardConfig::new(proto, endpoint(forward.outside), endpoint(forward.inside))
}
