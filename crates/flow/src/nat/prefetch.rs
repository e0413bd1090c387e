//! Looking ahead: what the packets of a vector will want of NAT if they all open sessions.
//!
//! Theory of operation. A mapping is made in four places far from each other: the tables of insides, of outsides and of hosts,
//! and its address's ports. All of them follow from the packet's key, and the port that it will get nearly always does, for
//! what is chosen by chance follows from a secret ([`Nat::preference`]). So the memory of a vector's mappings is asked for while
//! the rules for its packets are looked up. Nothing is changed, and a guess that was wrong costs no more than the time to wait.

use super::config::{Endpoint, PoolId, PortProto};
use super::hosts;
use super::index::prefetch_in;
use super::pool::Pool;
use super::state::Nat;
use crate::Key;
use crate::key::{PackedKey, asks};

/// A pool that is likely to translate what comes.
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
    /// What asks for the memory that [`Nat::map`] will look at, for packets that this pool is likely to translate; none, if
    /// there is no such pool.
    pub fn prefetcher(&self, pool: PoolId) -> Option<NatPrefetcher<'_>> {
        let slot = self.slot(pool)?;
        let pool = self.pool_at(slot)?;
        let (insides, outsides) = self.mappings.slots();
        Some(NatPrefetcher { nat: self, slot, pool, insides, outsides, hosts: self.hosts.slots() })
    }
}

impl NatPrefetcher<'_> {
    /// Asks for the memory of a packet with this key.
    pub fn prefetch(&self, key: &Key) {
        self.predict_source(&key.pack());
    }

    /// The same, and answers what the source will most likely become.
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
