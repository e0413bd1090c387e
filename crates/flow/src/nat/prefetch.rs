//! What a vector of packets that may all open sessions needs: computed once, and prefetched.
//!
//! # Theory of operation
//!
//! The creation of a mapping reads four distant places: the index of internal endpoints, the index of
//! external endpoints, the index of hosts, and the port bitmap of the address. The key of the packet
//! determines all of them. It nearly always determines the port as well, because the random part is a keyed
//! hash ([`Nat::preference`]). So the memory for the mappings of a vector is prefetched while the rules for
//! its packets are looked up. The hashes are kept in a [`MappingForecast`], which [`Nat::map_foreseen`]
//! takes. Nothing is changed. A wrong prediction costs only a cache miss and a hash.

use super::config::{Endpoint, PoolId, PortProto};
use super::hosts;
use super::index::Buckets;
use super::pool::Pool;
use super::state::Nat;
use crate::Key;
use crate::key::{PackedKey, asks};

/// The hashes with which a mapping is looked up and created.
#[derive(Clone, Copy, Debug)]
pub struct MappingForecast {
    /// Hash of the internal endpoint, and of its host.
    pub(super) inside: u32,
    pub(super) host: u32,
    /// The probable external endpoint, and its hash; all zero if it is not known.
    pub(super) outside_hash: u32,
    pub(super) outside: Endpoint,
    /// Slot of the pool.
    pub(super) slot: u16,
}

impl MappingForecast {
    /// The source address and port of the packet after translation, in network byte order.
    #[inline]
    pub fn source(&self) -> Option<([u8; 4], [u8; 2])> {
        let Endpoint { address, port } = self.outside;
        (address != 0).then_some((address.to_be_bytes(), port.to_be_bytes()))
    }
}

/// The pool that probably translates the next packets.
#[derive(Clone, Copy, Debug)]
pub struct NatPrefetcher<'a> {
    nat: &'a Nat,
    slot: u16,
    pool: &'a Pool,
    insides: Buckets<'a>,
    outsides: Buckets<'a>,
    hosts: Buckets<'a>,
}

impl Nat {
    /// Returns a prefetcher of what [`Nat::map`] reads, for packets that this pool probably translates. None
    /// if there is no such pool.
    pub fn prefetcher(&self, pool: PoolId) -> Option<NatPrefetcher<'_>> {
        let slot = self.slot(pool)?;
        let pool = self.pool_at(slot)?;
        let [insides, outsides] = self.mappings.buckets();
        Some(NatPrefetcher { nat: self, slot, pool, insides, outsides, hosts: self.hosts.buckets() })
    }

    /// Prefetches what [`Nat::map_foreseen`] reads for a packet with this forecast: it is the next one.
    #[inline]
    pub fn prefetch_foreseen(&self, forecast: &MappingForecast) {
        self.mappings.prefetch(forecast.inside, forecast.outside_hash);
        self.hosts.prefetch(forecast.host);
    }

    /// Computes the hashes of an internal endpoint, and no external one.
    #[inline]
    pub(super) fn hash_source(&self, slot: u16, proto: u8, source: Endpoint) -> MappingForecast {
        MappingForecast {
            inside: self.mappings.inside_hash(slot, proto, source),
            host: hosts::hash(&self.hasher, slot, source.address),
            outside_hash: 0,
            outside: Endpoint { address: 0, port: 0 },
            slot,
        }
    }
}

impl NatPrefetcher<'_> {
    /// Prefetches for a packet with this key.
    pub fn prefetch(&self, key: &Key) {
        self.foresee(&key.pack());
    }

    /// Prefetches for a packet with this key. None: NAT does not translate it.
    #[inline]
    pub fn foresee(&self, key: &PackedKey) -> Option<MappingForecast> {
        if key.is_ip6() {
            return None;
        }
        let [address, _]: [[u8; 4]; 2] = bytemuck::cast(key.head[0]);
        let [[a, b, ..], [tag, number, ..]]: [[u8; 4]; 2] = bytemuck::cast(key.head[1]);
        let source = Endpoint { address: u32::from_be_bytes(address), port: u16::from_be_bytes([a, b]) };
        let forecast = self.nat.hash_source(self.slot, number, source);
        self.insides.prefetch(forecast.inside);
        self.hosts.prefetch(forecast.host);
        let proto =
            PortProto::of(number).filter(|proto| *proto != PortProto::Icmp || asks(tag) == Key::BY_SOURCE);
        let predict = |proto| self.pool.predict(source.address, self.nat.preference(proto, source));
        let Some(outside) = proto.and_then(predict) else { return Some(forecast) };
        let outside_hash = self.nat.mappings.outside_hash(number, outside);
        self.outsides.prefetch(outside_hash);
        Some(MappingForecast { outside_hash, outside, ..forecast })
    }
}
