//! Prefetch for a vector of packets that may all open sessions.
//!
//! # Theory of operation
//!
//! The creation of a mapping reads four distant places: the index of internal endpoints, the index of
//! external endpoints, the index of hosts, and the port bitmap of the address. The key of the packet
//! determines all of them. It nearly always determines the port as well, because the random part is a keyed
//! hash ([`Nat::preference`]). So the memory for the mappings of a vector is prefetched while the rules for
//! its packets are looked up. Nothing is changed. A wrong prediction costs only a cache miss.

use super::config::{Endpoint, PoolId, PortProto};
use super::hosts;
use super::index::prefetch_in;
use super::pool::Pool;
use super::state::Nat;
use crate::Key;
use crate::key::{PackedKey, asks};

/// The pool that probably translates the next packets.
#[derive(Clone, Copy, Debug)]
pub struct NatPrefetcher<'a> {
    nat: &'a Nat,
    slot: u16,
    pool: &'a Pool,
    insides: &'a [u64],
    outsides: &'a [u64],
    hosts: &'a [u64],
}

impl Nat {
    /// Returns a prefetcher of what [`Nat::map`] reads, for packets that this pool probably translates. None
    /// if there is no such pool.
    pub fn prefetcher(&self, pool: PoolId) -> Option<NatPrefetcher<'_>> {
        let slot = self.slot(pool)?;
        let pool = self.pool_at(slot)?;
        let (insides, outsides) = self.mappings.slots();
        Some(NatPrefetcher { nat: self, slot, pool, insides, outsides, hosts: self.hosts.slots() })
    }
}

impl NatPrefetcher<'_> {
    /// Prefetches for a packet with this key.
    pub fn prefetch(&self, key: &Key) {
        self.predict_source(&key.pack());
    }

    /// Prefetches for a packet with this key, and predicts its source address and port after translation, in
    /// network byte order.
    #[inline]
    pub fn predict_source(&self, key: &PackedKey) -> Option<([u8; 4], [u8; 2])> {
        if key.is_ip6() {
            return None;
        }
        let [address, _]: [[u8; 4]; 2] = bytemuck::cast(key.head[0]);
        let [[a, b, ..], [tag, number, ..]]: [[u8; 4]; 2] = bytemuck::cast(key.head[1]);
        let source = Endpoint { address: u32::from_be_bytes(address), port: u16::from_be_bytes([a, b]) };
        let mappings = &self.nat.mappings;
        prefetch_in(self.insides, mappings.inside_hash(self.slot, number, source));
        prefetch_in(self.hosts, hosts::hash(&self.nat.hasher, self.slot, source.address));
        let proto =
            PortProto::of(number).filter(|proto| *proto != PortProto::Icmp || asks(tag) == Key::BY_SOURCE)?;
        let outside = self.pool.predict(source.address, self.nat.preference(proto, source))?;
        prefetch_in(self.outsides, mappings.outside_hash(number, outside));
        Some((outside.address.to_be_bytes(), outside.port.to_be_bytes()))
    }
}
