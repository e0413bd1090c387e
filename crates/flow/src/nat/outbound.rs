//! Sessions that are opened from inside, and the release of mappings.

use super::config::{Endpoint, PoolId, PortProto};
use super::events::{NatEvent, NatEventKind, PortBlock};
use super::hosts::{self, Host, PortHolder};
use super::mappings::{Mapping, MappingEnds, MappingKind};
use super::ownership;
use super::pool::{Pool, PortPreference};
use super::prefetch::MappingForecast;
use super::state::Nat;
use super::types::{HostLocation, MappingId, NatError, OutboundMapping};
use crate::Key;

/// Number of attempts if ports turn out to be in use by a removed pool.
const TRIES: usize = 16;

/// A request for a mapping.
#[derive(Clone, Copy, Debug)]
struct MapRequest {
    /// Slot of the pool.
    slot: u16,
    source: Endpoint,
    remote: u32,
    location: HostLocation,
    now: u32,
    forecast: MappingForecast,
}

impl Nat {
    /// Translates the source of a packet that opens a session from inside. This worker must own the host.
    ///
    /// The session then holds the mapping, and returns it with [`Nat::release`] and the same key. `key` is
    /// the key of the packet as received. If the destination is translated too, the key has the translated
    /// destination: the filtering then admits that address. `location` is where the packet came from. `now`
    /// is the worker's clock in milliseconds.
    ///
    /// # Errors
    /// [`NatError`].
    pub fn map(
        &mut self,
        key: &Key,
        pool: PoolId,
        location: HostLocation,
        now: u32,
    ) -> Result<OutboundMapping, NatError> {
        self.map_foreseen(key, pool, (location, now), None)
    }

    /// As [`Nat::map`]. `forecast`: what was computed ahead for a packet with this source and protocol.
    ///
    /// # Errors
    /// [`NatError`].
    pub fn map_foreseen(
        &mut self,
        key: &Key,
        pool: PoolId,
        (location, now): (HostLocation, u32),
        forecast: Option<&MappingForecast>,
    ) -> Result<OutboundMapping, NatError> {
        let slot = self.slot(pool).ok_or(NatError::Unsupported)?;
        let (source, remote) = (ownership::source(key), ownership::destination(key));
        let proto = query_proto(key)?;
        let forecast = match forecast.filter(|forecast| forecast.slot == slot) {
            Some(forecast) => *forecast,
            None => self.hash_source(slot, key.proto, source),
        };
        let request = MapRequest { slot, source, remote: remote.address, location, now, forecast };
        let host = self.hosts.find(forecast.host, slot, source.address);
        let known = match (proto, host) {
            (Some(proto), Some(host)) => {
                let sought = Mapping::new(proto.number(), MappingKind::Host(host), source.port, 0);
                self.mappings.at_inside(forecast.inside, &sought)
            }
            (Some(_), None) => None,
            (None, _) => {
                let kind = MappingKind::Portless { address: source.address, pool: slot };
                self.mappings.at_inside(forecast.inside, &Mapping::new(key.proto, kind, 0, 0))
            }
        };
        let known = known.or_else(|| self.forward_from(slot, proto?, source));
        let (id, outside) = match (known, proto) {
            (Some(id), _) => (id, self.reuse_mapping(id, request)?),
            (None, Some(proto)) => self.create_mapping(proto, request, host)?,
            (None, None) => self.create_portless(key.proto, request)?,
        };
        Ok(OutboundMapping {
            id: MappingId(id),
            address: outside.address.to_be_bytes(),
            port: outside.port.to_be_bytes(),
        })
    }

    fn pool(&mut self, slot: u16) -> Option<&mut Pool> {
        self.pools.get_mut(usize::from(slot)).and_then(Option::as_mut)
    }

    /// Adds a session to an existing mapping.
    fn reuse_mapping(&mut self, id: u32, request: MapRequest) -> Result<Endpoint, NatError> {
        let mapping = *self.mappings.get(id).ok_or(NatError::Exhausted)?;
        match mapping.kind() {
            MappingKind::Host(number) => {
                let host = self.hosts.get_mut(number).ok_or(NatError::Exhausted)?;
                let pool = self.pools.get_mut(usize::from(request.slot)).and_then(Option::as_mut);
                admit(pool.ok_or(NatError::Exhausted)?, host, request.location)?;
            }
            MappingKind::Forward(_) => self.learn(MappingId(id), request.location),
            MappingKind::Portless { .. } => {}
        }
        self.mappings.hold(id, request.remote);
        self.endpoints_of(&mapping).map(|(_, outside)| outside).ok_or(NatError::Exhausted)
    }

    /// The forward of an internal endpoint, if its external address is in the pool.
    fn forward_from(&self, slot: u16, proto: PortProto, source: Endpoint) -> Option<u32> {
        let forwards = self.config.forwards_to(proto, source);
        if forwards.is_empty() {
            return None;
        }
        let pool = self.pools.get(usize::from(slot))?.as_ref()?;
        forwards.iter().find_map(|&n| {
            let forward = self.forwards.get(n)?;
            forward.id.filter(|_| pool.config.contains(forward.config.external().address))
        })
    }

    /// Creates a mapping for an internal endpoint. `host`: the number of its host, if it has mappings.
    fn create_mapping(
        &mut self,
        proto: PortProto,
        request: MapRequest,
        known: Option<u32>,
    ) -> Result<(u32, Endpoint), NatError> {
        let host = known.or_else(|| self.add_host(proto, request));
        let made = match host {
            Some(host) => self.take_port(host, proto, request).map(|outside| (host, outside)),
            None => Err(NatError::Exhausted),
        };
        let made = made.and_then(|(host, outside)| {
            let (number, hashes) = (proto.number(), &request.forecast);
            let mapping = Mapping::new(number, MappingKind::Host(host), request.source.port, outside.port);
            let outside_hash = match hashes.outside == outside {
                true => hashes.outside_hash,
                false => self.mappings.outside_hash(number, outside),
            };
            let mapping = mapping.held_for(request.remote);
            let id = self.mappings.add(mapping, hashes.inside, outside_hash).ok_or(NatError::Exhausted)?;
            Ok((id, outside))
        });
        if made.is_err() {
            self.reject(host.filter(|_| known.is_none()), proto, request, made);
        }
        made
    }

    /// Adds a host and assigns it an address of the pool. None if no address has ports left.
    fn add_host(&mut self, proto: PortProto, request: MapRequest) -> Option<u32> {
        let MapRequest { slot, source, location, now, forecast, .. } = request;
        let pool = self.pools.get_mut(usize::from(slot)).and_then(Option::as_mut)?;
        let external = pool.address_for(source.address, proto, source.port, now)?;
        self.insert_host(forecast.host, (slot, source.address), external, location)
    }

    /// Adds a host of a pool with an address of the pool. `external`: the index of that address.
    pub(super) fn insert_host(
        &mut self,
        hash: u32,
        (slot, address): (u16, u32),
        external: u32,
        location: HostLocation,
    ) -> Option<u32> {
        let pool = self.pools.get_mut(usize::from(slot)).and_then(Option::as_mut)?;
        let external = u16::try_from(external).ok()?;
        let host = Host { address, external, pool: slot, mappings: 0, sessions: 0, location };
        let number = self.hosts.add(hash, host)?;
        pool.counters.hosts += 1;
        Some(number)
    }

    pub(super) fn remove_host(&mut self, slot: u16, number: u32) {
        self.hosts.remove(&self.hasher, number);
        if let Some(pool) = self.pool(slot) {
            pool.counters.hosts -= 1;
        }
    }

    /// Allocates a port for a host, and counts one more session and mapping.
    fn take_port(
        &mut self,
        number: u32,
        proto: PortProto,
        request: MapRequest,
    ) -> Result<Endpoint, NatError> {
        let MapRequest { slot, source, location, now, .. } = request;
        let mut preference = self.preference(proto, source);
        let pool = self.pools.get_mut(usize::from(slot)).and_then(Option::as_mut);
        let (Some(pool), Some((host, mut holder))) = (pool, self.hosts.with_ports_mut(number)) else {
            return Err(NatError::Exhausted);
        };
        // One host must not take all ports of an address (RFC 6888, REQ-4).
        let most = match pool.config.limit() {
            Some(_) => Host::MAX_MAPPINGS.into(),
            None => pool.config.default_ports(),
        };
        if u32::from(host.mappings) >= most {
            pool.counters.limited += 1;
            return Err(NatError::Limit);
        }
        admit(pool, host, location)?;
        let mappings = &self.mappings;
        let below = || {
            let even = Endpoint { port: source.port - 1, ..source };
            let hash = mappings.inside_hash(slot, proto.number(), even);
            let sought = Mapping::new(proto.number(), MappingKind::Host(number), even.port, 0);
            let id = mappings.at_inside(hash, &sought)?;
            mappings.get(id).map(Mapping::external_port)
        };
        let address = pool.config.nth(holder.external);
        let mut next = |pool: &mut Pool, holder: &mut PortHolder<'_>, preference: PortPreference| {
            let picked = pool.pick(holder, preference, below, now)?;
            if let Some(ports) = picked.block {
                let block = PortBlock { address: address.into(), ports };
                self.events.push(event(now, pool, source.address, NatEventKind::BlockAllocated(block)));
            }
            Some(picked.port)
        };
        // Ports of removed pools may be in use although no bitmap marks them as taken.
        let mut in_use = [0; TRIES];
        let mut tried = 0;
        // An equal hash will do, whichever host it is of.
        let is_in_use =
            |port| mappings.at_outside(proto.number(), Endpoint { address, port }, |_| true).is_some();
        let mut port = next(pool, &mut holder, preference);
        while let Some(taken) = port.filter(|&port| self.has_removed_pools && is_in_use(port)) {
            in_use[tried] = taken;
            tried += 1;
            preference = preference.next();
            port = if tried < TRIES { next(pool, &mut holder, preference) } else { None };
        }
        for &port in in_use.iter().take(tried) {
            if let Some(ports) = pool.free_port(&mut holder, proto, port, false) {
                let block = PortBlock { address: address.into(), ports };
                self.events.push(event(now, pool, source.address, NatEventKind::BlockFreed(block)));
            }
        }
        let Some(port) = port else {
            host.sessions -= 1;
            pool.counters.sessions -= 1;
            return Err(NatError::Exhausted);
        };
        host.mappings += 1;
        pool.mappings += 1;
        Ok(Endpoint { address, port })
    }

    /// Removes a host that was added in vain, and reports the exhaustion.
    fn reject(
        &mut self,
        fresh: Option<u32>,
        proto: PortProto,
        request: MapRequest,
        made: Result<(u32, Endpoint), NatError>,
    ) {
        if let Some(host) = fresh {
            self.remove_host(request.slot, host);
        }
        let pool = self.pools.get_mut(usize::from(request.slot)).and_then(Option::as_mut);
        let Some(pool) = pool.filter(|_| made == Err(NatError::Exhausted)) else { return };
        pool.counters.exhausted += 1;
        if pool.gate.open(request.now) {
            let (pool, host) = (pool.config.shared_name(), request.source.address.into());
            self.events.push(NatEvent { at: request.now, pool, host, what: NatEventKind::Exhausted(proto) });
        }
    }

    /// Creates a mapping of a protocol without ports. It has only an address: the first choice for the host.
    fn create_portless(&mut self, proto: u8, request: MapRequest) -> Result<(u32, Endpoint), NatError> {
        let address = request.source.address;
        let pool = self.pool(request.slot).ok_or(NatError::Exhausted)?;
        let outside = Endpoint { address: pool.config.first_choice(address), port: 0 };
        pool.mappings += 1;
        let kind = MappingKind::Portless { address, pool: request.slot };
        let mapping = Mapping::new(proto, kind, 0, 0).held_for(request.remote);
        let id = self.mappings.add(mapping, request.forecast.inside, 0).ok_or(NatError::Exhausted)?;
        Ok((id, outside))
    }

    /// Prefetches a mapping for [`Nat::release`].
    pub fn prefetch_mapping(&self, id: MappingId) {
        self.mappings.prefetch_record(id.0);
    }

    /// Prefetches the host of a mapping, which must be in a cache.
    pub fn prefetch_host(&self, id: MappingId) {
        if let Some(MappingKind::Host(host)) = self.mappings.get(id.0).map(Mapping::kind) {
            self.hosts.prefetch_record(host);
        }
    }

    /// Prefetches the rest of what [`Nat::release`] reads if the last session of the mapping ends. The
    /// mapping itself and its host must be in a cache.
    pub fn prefetch_release(&self, id: MappingId) {
        let Some((mapping, ends)) = self.mappings.get(id.0).and_then(|m| Some((m, self.ends_of(m)?))) else {
            return;
        };
        self.mappings.prefetch_removal(mapping.proto, &ends);
        let Some(proto) = PortProto::of(mapping.proto) else { return };
        self.hosts.prefetch(hosts::hash(&self.hasher, ends.pool, ends.inside.address));
        if let Some(pool) = self.pool_at(ends.pool) {
            pool.prefetch_free(ends.outside, proto);
        }
    }

    /// Takes a mapping back from a session that has ended or could not be opened. `key` is the one that was
    /// passed to [`Nat::map`] or [`Nat::map_inbound`].
    pub fn release(&mut self, id: MappingId, key: &Key, now: u32) {
        let Some(&mapping) = self.mappings.get(id.0) else { return };
        let (from, to) = (ownership::source(key), ownership::destination(key));
        // Forwards have none of this, and need none.
        let ends = self.ends_of(&mapping);
        let outward = ends.is_none_or(|ends| from == ends.inside);
        let free = self.mappings.unhold(id.0, if outward { to.address } else { from.address });
        match (mapping.kind(), &ends) {
            (MappingKind::Host(host), Some(ends)) => {
                self.release_host((&mapping, ends), host, outward, free, now);
            }
            (MappingKind::Portless { pool, .. }, _) if free => self.release_pool(pool),
            _ => {}
        }
        if free {
            self.mappings.remove(id.0, ends.as_ref());
        }
    }

    /// Updates a host: one session less if the host had opened it, and one mapping less if `free`.
    fn release_host(
        &mut self,
        (mapping, ends): (&Mapping, &MappingEnds),
        number: u32,
        outward: bool,
        free: bool,
        now: u32,
    ) {
        let pool = self.pools.get_mut(usize::from(ends.pool)).and_then(Option::as_mut);
        let (Some(pool), Some((host, mut holder))) = (pool, self.hosts.with_ports_mut(number)) else {
            return;
        };
        if outward {
            host.sessions = host.sessions.saturating_sub(1);
            pool.counters.sessions = pool.counters.sessions.saturating_sub(1);
        }
        if !free {
            return;
        }
        host.mappings -= 1;
        if let Some(proto) = PortProto::of(mapping.proto) {
            // An ended mapping of a pool that is still configured has lost its port to a forward.
            let port = mapping.external_port();
            if let Some(ports) = pool.free_port(&mut holder, proto, port, mapping.has_ended()) {
                let block = PortBlock { address: ends.outside.address.into(), ports };
                self.events.push(event(now, pool, host.address, NatEventKind::BlockFreed(block)));
            }
        }
        if host.mappings == 0 {
            self.remove_host(ends.pool, number);
        }
        self.release_pool(ends.pool);
    }

    /// Removes a mapping from a pool. A pool that is not configured is dropped with its last mapping.
    fn release_pool(&mut self, slot: u16) {
        let Some(slot) = self.pools.get_mut(usize::from(slot)) else { return };
        let Some(pool) = slot else { return };
        pool.mappings -= 1;
        if pool.mappings == 0 && !pool.current {
            *slot = None;
            self.has_removed_pools = self.pools.iter().flatten().any(|pool| !pool.current);
        }
    }
}

/// The protocol of a packet from inside; none if the protocol has no ports.
fn query_proto(key: &Key) -> Result<Option<PortProto>, NatError> {
    match PortProto::of(key.proto) {
        _ if !key.is_ip4() => Err(NatError::Unsupported),
        Some(PortProto::Icmp) if key.asks != Key::BY_SOURCE => Err(NatError::Unsupported),
        proto => Ok(proto),
    }
}

/// Counts one more session of a host, if its limit permits.
fn admit(pool: &mut Pool, host: &mut Host, location: HostLocation) -> Result<(), NatError> {
    if pool.config.limit().is_some_and(|limit| host.sessions >= limit) {
        pool.counters.limited += 1;
        return Err(NatError::Limit);
    }
    host.sessions += 1;
    host.location = location;
    pool.counters.sessions += 1;
    Ok(())
}

pub(super) fn event(now: u32, pool: &Pool, host: u32, what: NatEventKind) -> NatEvent {
    NatEvent { at: now, pool: pool.config.shared_name(), host: host.into(), what }
}
