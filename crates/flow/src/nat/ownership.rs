//! Ownership: which packets NAT handles, and which worker.
//!
//! # Theory of operation
//!
//! An internal host belongs to one worker, which has all of its mappings. That worker claims the external
//! ports that it gives to its hosts ([`super::owners`]). So the port alone determines the worker of a packet
//! from outside. Hosts are distributed by the fractional part of their address times the golden ratio.
//! The result is equal on all workers. Consecutive addresses are distributed evenly to within a few hosts,
//! which a hash would not achieve.

use super::config::{Endpoint, NatConfig, PoolConfig, PoolId, PortProto};
use super::state::Nat;
use crate::Key;

/// 2^32 divided by the golden ratio, and by its square. Both distribute consecutive numbers evenly, in
/// different ways.
const WORKERS: u32 = 0x9e37_79b9;
const ADDRESSES: u32 = 0x61c8_8647;

fn scaled(number: u32, step: u32, size: u32) -> u32 {
    ((u64::from(number.wrapping_mul(step)) * u64::from(size)) >> 32) as u32
}

/// An endpoint of an IPv4 key, in host byte order.
fn end(address: &[u8; 16], port: [u8; 2]) -> Endpoint {
    let [a, b, c, d, ..] = *address;
    Endpoint { address: u32::from_be_bytes([a, b, c, d]), port: u16::from_be_bytes(port) }
}

/// The source endpoint of an IPv4 packet.
pub(crate) fn source(key: &Key) -> Endpoint {
    end(&key.source, key.source_port)
}

/// The destination endpoint of an IPv4 packet.
pub(crate) fn destination(key: &Key) -> Endpoint {
    end(&key.destination, key.destination_port)
}

impl PoolConfig {
    /// The address that a host gets if it has ports left. Equal each time and on each worker.
    pub(crate) fn first_choice(&self, host: u32) -> u32 {
        self.nth(self.number_for(host))
    }

    /// The index of the first choice for a host.
    #[inline]
    pub(crate) fn number_for(&self, host: u32) -> u32 {
        scaled(host, ADDRESSES, self.len())
    }
}

impl NatConfig {
    /// Whether NAT handles a packet without a session because of its destination: an address of a pool, or
    /// the external endpoint of a forward.
    pub fn is_nat_destination(&self, key: &Key) -> bool {
        if self.is_empty() || !key.is_ip4() {
            return false;
        }
        let to = destination(key);
        if !self.is_in_reach(to.address) {
            return false;
        }
        self.pool_at(to).is_some()
            || PortProto::of(key.proto).is_some_and(|proto| self.forward_at(proto, to).is_some())
    }

    /// Whether a packet comes from the internal endpoint of a forward. If this worker has no session for it,
    /// the [worker of the host](NatConfig::host_worker) may have one that was opened from outside.
    pub fn is_forwarded(&self, key: &Key) -> bool {
        let from = source(key);
        key.is_ip4()
            && PortProto::of(key.proto).is_some_and(|proto| !self.forwards_to(proto, from).is_empty())
    }

    /// The worker that owns an internal host.
    pub fn host_worker(address: [u8; 4], workers: usize) -> usize {
        host_worker(u32::from_be_bytes(address), workers)
    }

    /// The worker that opens the session of a packet from inside that a pool translates.
    ///
    /// It depends on the address of the host only. For protocols without ports it depends on the external
    /// address, since replies have nothing else.
    pub fn opening_worker(&self, pool: PoolId, key: &Key, workers: usize) -> usize {
        let host = source(key).address;
        match (PortProto::of(key.proto), self.pools().get(usize::from(pool.0))) {
            (None, Some(pool)) => host_worker(pool.first_choice(host), workers),
            _ => host_worker(host, workers),
        }
    }
}

impl NatConfig {
    /// The worker that owns the sessions of a mapping, by the address of the internal host and the external
    /// address, as in [`Key`].
    pub fn mapping_worker(proto: u8, host: [u8; 16], external: [u8; 16], workers: usize) -> usize {
        let address = if PortProto::of(proto).is_some() { host } else { external };
        host_worker(end(&address, [0; 2]).address, workers)
    }
}

impl Nat {
    /// The worker that owns the session of a packet to a [NAT destination](NatConfig::is_nat_destination).
    /// None: no worker has given out the port.
    pub fn owner_worker(&self, key: &Key) -> Option<usize> {
        if self.workers <= 1 {
            return Some(0);
        }
        let to = destination(key);
        let Some(proto) = PortProto::of(key.proto) else {
            return Some(host_worker(to.address, self.workers));
        };
        if let Some(forward) = self.config.forward_at(proto, to).and_then(|n| self.config.forwards().get(n)) {
            return Some(host_worker(forward.internal().address, self.workers));
        }
        let slot = self.slot(self.config.pool_at(to)?)?;
        self.pool_at(slot)?.owner(to, proto)
    }
}

/// The worker that owns an internal address.
pub(crate) fn host_worker(address: u32, workers: usize) -> usize {
    scaled(address, WORKERS, workers.max(1) as u32) as usize
}
