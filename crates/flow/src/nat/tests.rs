//! What NAT guarantees, by RFC.

mod changes;
mod forecasts;
mod model;
mod requirements;
mod restore;
mod workers;

use std::net::Ipv4Addr;
use std::sync::Arc;

use mmb_packet::Kind;

use super::*;
use crate::Key;

/// Maximum number of sessions of the worker in tests.
pub(super) const ROOM: usize = 70_000;

/// The destination port in keys of ICMP echo requests: the type.
pub(super) const ECHO: u16 = 8;

/// The key of a packet. `proto`: IP protocol number.
pub(super) fn key(proto: u8, from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) -> Key {
    let wide = |address: Ipv4Addr| {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&address.octets());
        bytes
    };
    Key {
        source: wide(from.0),
        destination: wide(to.0),
        source_port: from.1.to_be_bytes(),
        destination_port: to.1.to_be_bytes(),
        kind: Kind::IP4,
        proto,
        asks: match (proto, to.1, from.1) {
            (ICMP, 8 | 13 | 15 | 17, _) => Key::BY_SOURCE,
            (ICMP, _, 8 | 13 | 15 | 17) => Key::BY_DESTINATION,
            _ => [0; 2],
        },
    }
}

/// An internal address by its last two bytes.
pub(super) fn host(n: u16) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0000 + u32::from(n))
}

pub(super) fn remote(n: u16) -> Ipv4Addr {
    Ipv4Addr::from(0xc612_0000 + u32::from(n))
}

pub(super) fn outer(n: u16) -> Ipv4Addr {
    Ipv4Addr::from(0xcb00_7100 + u32::from(n))
}

/// A pool of `n` addresses from `outer(1)` on.
pub(super) fn pool(n: u16) -> PoolConfig {
    PoolConfig::new("p", outer(1), outer(n)).unwrap()
}

pub(super) fn config(pools: &[PoolConfig], forwards: &[ForwardConfig]) -> Arc<NatConfig> {
    Arc::new(NatConfig::new(pools.to_vec(), forwards.to_vec()).unwrap())
}

/// The NAT of a single worker with one pool.
pub(super) fn nat(pool: PoolConfig) -> Nat {
    Nat::new(config(&[pool], &[]), ROOM, 1).unwrap()
}

pub(super) const P: PoolId = PoolId(0);

pub(super) fn inside() -> HostLocation {
    HostLocation { mac: [2, 0, 0, 0, 0, 1], in_port: 0 }
}

/// The external endpoint of a mapping.
pub(super) fn outside(mapped: &OutboundMapping) -> (Ipv4Addr, u16) {
    (mapped.address.into(), u16::from_be_bytes(mapped.port))
}

/// Opens a session from `from` to `to` and returns its mapping.
pub(super) fn open(
    nat: &mut Nat,
    proto: u8,
    from: (Ipv4Addr, u16),
    to: (Ipv4Addr, u16),
) -> Result<OutboundMapping, NatError> {
    nat.map(&key(proto, from, to), P, inside(), 0)
}

/// Numbers of protocols.
pub(super) const UDP: u8 = 17;
pub(super) const TCP: u8 = 6;
pub(super) const ICMP: u8 = 1;
