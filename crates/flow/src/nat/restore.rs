//! Mappings of sessions that an earlier process has saved.
//!
//! # Theory of operation
//!
//! The sessions of an earlier process come one by one, and each brings the endpoints of its mapping. The
//! first one creates the mapping with the host's external address and exactly the port that the mapping had.
//! The others find it. A mapping that the configuration no longer covers is not created, and neither is one
//! that contradicts a mapping, host or forward that exists.

use super::config::{Endpoint, PoolId, PortProto};
use super::events::{NatEventKind, PortBlock};
use super::hosts;
use super::mappings::{Mapping, MappingKind};
use super::outbound::event;
use super::ownership::{destination, source};
use super::state::Nat;
use super::types::{HostLocation, MappingId};
use crate::Key;

/// The mapping of a session that an earlier process has saved.
#[derive(Clone, Copy, Debug)]
pub struct SavedMapping<'a> {
    /// The key that [`Nat::map`] or [`Nat::map_inbound`] got, and that [`Nat::release`] is to get.
    pub key: &'a Key,
    /// The key of the session's forward packets after translation.
    pub to: &'a Key,
    /// Whether the session was opened from outside.
    pub is_inbound: bool,
    /// The pool; none for a forward.
    pub pool: Option<PoolId>,
    /// Location of the internal host, if it is known.
    pub location: Option<HostLocation>,
}

impl SavedMapping<'_> {
    /// The internal endpoint, the external one, and the remote address.
    fn endpoints(&self) -> (Endpoint, Endpoint, u32) {
        match self.is_inbound {
            true => (destination(self.to), destination(self.key), source(self.key).address),
            false => (source(self.key), source(self.to), destination(self.key).address),
        }
    }
}

impl Nat {
    /// The pool of a mapping that serves new sessions. None: the mapping belongs to a forward, or has ended.
    pub fn pool_of(&self, id: MappingId) -> Option<PoolId> {
        let mapping = self.mappings.get(id.0).filter(|_| self.is_live(id) && !self.is_forward(id))?;
        let own = self.slot_of_mapping(mapping)?;
        let number = self.slots.iter().position(|&slot| slot == own)?;
        u16::try_from(number).ok().map(PoolId)
    }

    /// Gives a session of an earlier process its mapping again. This worker must own the internal host. The
    /// session then holds the mapping, and returns it with [`Nat::release`] and the same key. `now` is the
    /// worker's clock in milliseconds.
    ///
    /// None: the configuration does not give the host this mapping, or another host has it.
    pub fn restore(&mut self, saved: &SavedMapping<'_>, now: u32) -> Option<MappingId> {
        let (inside, outside, remote) = saved.endpoints();
        if !saved.key.is_ip4() {
            return None;
        }
        let (proto, location) = (saved.key.proto, saved.location.unwrap_or_default());
        let id = match saved.pool {
            None => self.forward_with(PortProto::of(proto)?, inside, outside)?,
            Some(pool) => {
                let slot = self.slot(pool)?;
                let hash = self.mappings.inside_hash(slot, proto, inside);
                match (self.at_inside(hash, slot, proto, inside), PortProto::of(proto)) {
                    (Some(id), _) => id,
                    (None, Some(proto)) => {
                        self.restore_mapping((slot, proto), (inside, outside), (hash, location), now)?
                    }
                    (None, None) => self.restore_portless(proto, slot, (inside, outside), hash)?,
                }
            }
        };
        let mapping = *self.mappings.get(id)?;
        self.endpoints_of(&mapping).filter(|ends| ends.1 == outside)?;
        if !saved.is_inbound {
            self.count_session(&mapping, location);
        }
        self.mappings.hold(id, remote);
        Some(MappingId(id))
    }

    /// The mapping of an internal endpoint in a pool. `hash` is the endpoint's hash.
    fn at_inside(&self, hash: u32, slot: u16, proto: u8, inside: Endpoint) -> Option<u32> {
        let kind = match PortProto::of(proto) {
            Some(_) => MappingKind::Host(self.hosts.find(
                hosts::hash(&self.hasher, slot, inside.address),
                slot,
                inside.address,
            )?),
            None => MappingKind::Portless { address: inside.address, pool: slot },
        };
        self.mappings.at_inside(hash, &Mapping::new(proto, kind, inside.port, 0))
    }

    /// The mapping of the forward between two endpoints.
    fn forward_with(&self, proto: PortProto, inside: Endpoint, outside: Endpoint) -> Option<u32> {
        let id = self.forwards.get(self.config.forward_at(proto, outside)?)?.id?;
        let (internal, _) = self.endpoints_of(self.mappings.get(id)?)?;
        (internal == inside).then_some(id)
    }

    /// Counts a session that the host of a mapping has opened. Its limit does not end sessions that are open.
    fn count_session(&mut self, mapping: &Mapping, location: HostLocation) {
        let MappingKind::Host(number) = mapping.kind() else { return };
        let Some(host) = self.hosts.get_mut(number) else { return };
        if let Some(pool) = self.pools.get_mut(usize::from(host.pool)).and_then(Option::as_mut) {
            host.sessions += 1;
            host.location = location;
            pool.counters.sessions += 1;
        }
    }

    /// Creates the mapping of a protocol without ports, if the pool still gives the host this address.
    fn restore_portless(
        &mut self,
        proto: u8,
        slot: u16,
        (inside, outside): (Endpoint, Endpoint),
        inside_hash: u32,
    ) -> Option<u32> {
        let pool = self.pools.get_mut(usize::from(slot)).and_then(Option::as_mut)?;
        if pool.config.first_choice(inside.address) != outside.address {
            return None;
        }
        pool.mappings += 1;
        let kind = MappingKind::Portless { address: inside.address, pool: slot };
        self.mappings.add(Mapping::new(proto, kind, 0, 0), inside_hash, 0)
    }

    /// Creates the mapping between two endpoints, without a session. `inside`: the hash of the internal one.
    fn restore_mapping(
        &mut self,
        (slot, proto): (u16, PortProto),
        (inside, outside): (Endpoint, Endpoint),
        (inside_hash, location): (u32, HostLocation),
        now: u32,
    ) -> Option<u32> {
        if self.at_outside(proto.number(), outside).is_some() {
            return None;
        }
        let external = self.pool_at(slot)?.config.index_of(outside.address)?;
        let hash = hosts::hash(&self.hasher, slot, inside.address);
        let (number, is_new) = match self.hosts.find(hash, slot, inside.address) {
            Some(number) => (number, false),
            None => (self.insert_host(hash, (slot, inside.address), external, location)?, true),
        };
        let host = self.hosts.with_ports_mut(number).filter(|(_, holder)| holder.external == external);
        let pool = self.pools.get_mut(usize::from(slot)).and_then(Option::as_mut);
        let taken = host.zip(pool).and_then(|((host, mut holder), pool)| {
            let mappings = host.mappings.checked_add(1)?;
            let picked = pool.take(&mut holder, proto, outside.port)?;
            host.mappings = mappings;
            pool.mappings += 1;
            if let Some(ports) = picked.block {
                let block = PortBlock { address: outside.address.into(), ports };
                self.events.push(event(now, pool, host.address, NatEventKind::BlockAllocated(block)));
            }
            Some(())
        });
        if taken.is_none() {
            if is_new {
                self.remove_host(slot, number);
            }
            return None;
        }
        let mapping = Mapping::new(proto.number(), MappingKind::Host(number), inside.port, outside.port);
        self.mappings.add(mapping, inside_hash, self.mappings.outside_hash(proto.number(), outside))
    }
}
