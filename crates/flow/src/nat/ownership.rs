//! Which packets are NAT's business, and which worker's.
//!
//! Theory of operation. A host inside belongs to one worker, which has all of its mappings; external ports are dealt out
//! to workers in chunks, and a host's ports are taken from its worker's, so what comes back is brought to the right worker
//! by its port alone. Hosts are spread by the fractional part of their address times the golden ratio: it is the same on
//! all workers, and hosts with consecutive addresses come out even to within a few, as a hash would not bring about.

use super::config::{Endpoint, NatConfig, PoolConfig, PoolId, PortProto};
use crate::Key;

/// 2^32 divided by the golden ratio, and by its square: both spread consecutive numbers evenly, differently.
const WORKERS: u32 = 0x9e37_79b9;
const ADDRESSES: u32 = 0x61c8_8647;

fn scaled(number: u32, step: u32, size: u32) -> u32 {
    ((u64::from(number.wrapping_mul(step)) * u64::from(size)) >> 32) as u32
}

/// An end of an IPv4 key, in host byte order.
fn end(address: &[u8; 16], port: [u8; 2]) -> Endpoint {
    let [a, b, c, d, ..] = *address;
    Endpoint { address: u32::from_be_bytes([a, b, c, d]), port: u16::from_be_bytes(port) }
}

/// The end that an IPv4 packet comes from.
pub(crate) fn source(key: &Key) -> Endpoint {
    end(&key.source, key.source_port)
}

/// The end that an IPv4 packet goes to.
pub(crate) fn destination(key: &Key) -> Endpoint {
    end(&key.destination, key.destination_port)
}

impl PoolConfig {
    /// The address that a host is given unless it is used up: the same each time, and on each worker.
    pub(crate) fn first_choice(&self, host: u32) -> u32 {
        self.nth(self.number_for(host))
    }

    /// The number of that address.
    #[inline]
    pub(crate) fn number_for(&self, host: u32) -> u32 {
        scaled(host, ADDRESSES, self.len())
    }
}

impl NatConfig {
    /// Whether a packet of no session is NAT's business because of where it goes: to an address of a pool, or to what is
    /// forwarded.
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

    /// Whether a packet comes from the inside of a forward. If there is no session for it with this worker, there may be
    /// one that was opened from outside: with the worker that is the [home](NatConfig::host_worker) of the address.
    pub fn is_forwarded(&self, key: &Key) -> bool {
        let from = source(key);
        key.is_ip4()
            && PortProto::of(key.proto).is_some_and(|proto| !self.forwards_to(proto, from).is_empty())
    }

    /// The worker that a host inside belongs to.
    pub fn host_worker(address: [u8; 4], workers: usize) -> usize {
        host_worker(u32::from_be_bytes(address), workers)
    }

    /// The worker that has the session of a packet that NAT [is_nat_destination](NatConfig::is_nat_destination).
    pub fn owner_worker(&self, key: &Key, workers: usize) -> usize {
        if workers <= 1 {
            return 0;
        }
        let to = destination(key);
        let proto = PortProto::of(key.proto);
        if let Some(forward) =
            proto.and_then(|proto| self.forward_at(proto, to)).and_then(|n| self.forwards().get(n))
        {
            return host_worker(forward.internal().address, workers);
        }
        match (proto, self.pool_at(to).and_then(|id| self.pools().get(usize::from(id.0)))) {
            (Some(_), Some(pool)) => pool.owner(to.port, workers),
            _ => host_worker(to.address, workers),
        }
    }

    /// The worker that opens the session of a packet from the inside that a pool is to translate.
    ///
    /// It goes by the host's address alone; but for protocols without ports, where what comes back has nothing but the
    /// external address, by that.
    pub fn opening_worker(&self, pool: PoolId, key: &Key, workers: usize) -> usize {
        let host = source(key).address;
        match (PortProto::of(key.proto), self.pools().get(usize::from(pool.0))) {
            (None, Some(pool)) => host_worker(pool.first_choice(host), workers),
            _ => host_worker(host, workers),
        }
    }
}

/// The worker that an address belongs to.
pub(crate) fn host_worker(address: u32, workers: usize) -> usize {
    scaled(address, WORKERS, workers.max(1) as u32) as usize
}
