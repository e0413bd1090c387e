//! How mappings begin and end.

use super::events::{NatEvent, NatEventKind, PortBlock};
use super::hosts::{self, Host};
use super::index::Random;
use super::mappings::{Mapping, Nature};
use super::pool::Pool;
use super::{Endpoint, HostLocation, MappingId, Nat, NatError, PortProto, place};
use crate::Key;

/// How many ports are tried that turn out to be those of a pool that was there before.
const TRIES: usize = 16;

/// A packet that asks for a mapping: where it comes from, whom it is for, when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asking {
    /// Place of the pool.
    pub(super) pool: u16,
    pub(super) source: Endpoint,
    pub(super) remote: u32,
    pub(super) inside: HostLocation,
    pub(super) now: u32,
}

impl Nat {
    fn pool(&mut self, place: u16) -> Option<&mut Pool> {
        self.pools.get_mut(usize::from(place)).and_then(Option::as_mut)
    }

    /// One more session for a mapping that there is.
    pub(super) fn again(&mut self, id: u32, asking: Asking) -> Result<Endpoint, NatError> {
        let mapping = *self.mappings.get(id).ok_or(NatError::Exhausted)?;
        match mapping.nature() {
            Nature::Of(number) => {
                let host = self.hosts.get_mut(number).ok_or(NatError::Exhausted)?;
                let pool = self.pools.get_mut(usize::from(asking.pool)).and_then(Option::as_mut);
                admit(pool.ok_or(NatError::Exhausted)?, host, asking.inside)?;
            }
            Nature::Forward(_) => self.learn(MappingId(id), asking.inside),
            Nature::Portless => {}
        }
        self.mappings.hold(id, asking.remote);
        Ok(mapping.outside())
    }

    /// The forward whose inside sends, if it has an address of the pool.
    pub(super) fn forward_from(&self, place: u16, proto: PortProto, source: Endpoint) -> Option<u32> {
        let forwards = self.config.forwards_to(proto, source);
        if forwards.is_empty() {
            return None;
        }
        let pool = self.pools.get(usize::from(place))?.as_ref()?;
        forwards.iter().find_map(|&n| {
            let forward = self.forwards.get(n)?;
            forward.id.filter(|_| pool.config.contains(forward.config.external().address))
        })
    }

    /// A mapping for an inside that has none; `inside` is the hash by which it was looked for.
    pub(super) fn afresh(
        &mut self,
        proto: PortProto,
        asking: Asking,
        inside: u32,
    ) -> Result<(u32, Endpoint), NatError> {
        let hash = hosts::hash(&self.hasher, asking.pool, asking.source.address);
        let (host, fresh) = match self.hosts.find(hash, asking.pool, asking.source.address) {
            Some(host) => (Some(host), false),
            None => (self.host(proto, asking, hash), true),
        };
        let made = match host {
            Some(host) => self.take_port(host, proto, asking).map(|outside| (host, outside)),
            None => Err(NatError::Exhausted),
        };
        let made = made.and_then(|(host, outside)| {
            let nature = Nature::Of(host);
            let mapping = Mapping::new(proto.number(), asking.source, outside, asking.pool, nature);
            let id = self.mappings.add(mapping.held_for(asking.remote), inside).ok_or(NatError::Exhausted)?;
            Ok((id, outside))
        });
        if made.is_err() {
            self.refuse(host.filter(|_| fresh), proto, asking, made);
        }
        made
    }

    /// A host that is not there yet, with an address of the pool; none: no address has anything left.
    fn host(&mut self, proto: PortProto, asking: Asking, hash: u32) -> Option<u32> {
        let Asking { pool: place, source, inside, .. } = asking;
        let pool = self.pools.get_mut(usize::from(place)).and_then(Option::as_mut)?;
        let external = pool.address_for(source.address, proto, source.port)?;
        let host = Host {
            address: source.address,
            external,
            blocks: 0,
            mappings: 0,
            sessions: 0,
            inside,
            pool: place,
            spare: 0,
        };
        let number = self.hosts.add(hash, host)?;
        pool.tally.hosts += 1;
        Some(number)
    }

    fn forget(&mut self, place: u16, number: u32) {
        self.hosts.remove(&self.hasher, number);
        if let Some(pool) = self.pool(place) {
            pool.tally.hosts -= 1;
        }
    }

    /// A port for a host, which then has one session and one mapping more.
    fn take_port(&mut self, number: u32, proto: PortProto, asking: Asking) -> Result<Endpoint, NatError> {
        let Asking { pool: place, source, inside, now, .. } = asking;
        let mut wish = self.wish(proto, source);
        let pool = self.pools.get_mut(usize::from(place)).and_then(Option::as_mut);
        let (Some(pool), Some(host)) = (pool, self.hosts.get_mut(number)) else {
            return Err(NatError::Exhausted);
        };
        admit(pool, host, inside)?;
        let mappings = &self.mappings;
        let below = || {
            let even = Endpoint { port: source.port - 1, ..source };
            let hash = mappings.inside_hash(place, proto.number(), even);
            let id = mappings.at_inside(hash, place, proto.number(), even)?;
            mappings.get(id).map(|mapping| mapping.external_port)
        };
        let address = pool.config.nth(host.external);
        let mut random = Random::new(wish.random);
        let mut next = |pool: &mut Pool, host: &mut Host| {
            let picked = pool.pick(number, host, wish, below)?;
            wish.random = random.next();
            if let Some(ports) = picked.block {
                let block = PortBlock { address: address.into(), ports };
                self.events.push(event(now, pool, host, NatEventKind::BlockAllocated(block)));
            }
            Some(picked.port)
        };
        // Ports of pools that are no longer in the configuration may be in use although no sheet says so.
        let mut in_use = [0; TRIES];
        let mut tried = 0;
        let is_in_use = |port| mappings.at_outside(proto.number(), Endpoint { address, port }).is_some();
        let mut port = next(pool, host);
        while let Some(taken) = port.filter(|&port| self.leftovers && is_in_use(port)) {
            in_use[tried] = taken;
            tried += 1;
            port = if tried < TRIES { next(pool, host) } else { None };
        }
        for &port in in_use.iter().take(tried) {
            if let Some(ports) = pool.give(host, proto, port, false) {
                let block = PortBlock { address: address.into(), ports };
                self.events.push(event(now, pool, host, NatEventKind::BlockFreed(block)));
            }
        }
        let Some(port) = port else {
            host.sessions -= 1;
            pool.tally.sessions -= 1;
            return Err(NatError::Exhausted);
        };
        host.mappings += 1;
        pool.mappings += 1;
        Ok(Endpoint { address, port })
    }

    /// Forgets a host that came for nothing, and says that there was no port.
    fn refuse(
        &mut self,
        fresh: Option<u32>,
        proto: PortProto,
        asking: Asking,
        made: Result<(u32, Endpoint), NatError>,
    ) {
        if let Some(host) = fresh {
            self.forget(asking.pool, host);
        }
        let pool = self.pools.get_mut(usize::from(asking.pool)).and_then(Option::as_mut);
        let Some(pool) = pool.filter(|_| made == Err(NatError::Exhausted)) else { return };
        pool.tally.exhausted += 1;
        if pool.gate.open(asking.now) {
            let (pool, host) = (pool.config.shared_name(), asking.source.address.into());
            self.events.push(NatEvent { at: asking.now, pool, host, what: NatEventKind::Exhausted(proto) });
        }
    }

    /// A mapping of a protocol without ports: an address, the same that a host's ports would be on at first.
    pub(super) fn portless(
        &mut self,
        proto: u8,
        asking: Asking,
        hash: u32,
    ) -> Result<(u32, Endpoint), NatError> {
        let host = asking.source.address;
        let pool = self.pool(asking.pool).ok_or(NatError::Exhausted)?;
        let outside = Endpoint { address: pool.config.first_choice(host), port: 0 };
        pool.mappings += 1;
        let inside = Endpoint { address: host, port: 0 };
        let mapping = Mapping::new(proto, inside, outside, asking.pool, Nature::Portless);
        let id = self.mappings.add(mapping.held_for(asking.remote), hash).ok_or(NatError::Exhausted)?;
        Ok((id, outside))
    }

    /// Asks for the memory of a mapping that [`Nat::release`] will be asked about.
    pub fn prefetch_mapping(&self, id: MappingId) {
        self.mappings.prefetch_record(id.0);
    }

    /// Asks for the rest of what [`Nat::release`] of a mapping will look at if its last session ends; the mapping is near.
    pub fn prefetch_release(&self, id: MappingId) {
        let Some(mapping) = self.mappings.get(id.0) else { return };
        self.mappings.prefetch_removal(mapping);
        if let Nature::Of(host) = mapping.nature() {
            self.hosts.prefetch_removal(hosts::hash(&self.hasher, mapping.pool, mapping.internal));
            self.hosts.prefetch_record(host);
        }
        if let (Some(proto), Some(Some(pool))) =
            (PortProto::of(mapping.proto), self.pools.get(usize::from(mapping.pool)))
        {
            pool.prefetch_give(mapping.outside(), proto);
        }
    }

    /// Takes a mapping back from a session that has ended, or could not be opened after all. `key` is the one that
    /// [`Nat::map`] or [`Nat::map_inbound`] was asked with.
    pub fn release(&mut self, id: MappingId, key: &Key, now: u32) {
        let Some(&mapping) = self.mappings.get(id.0) else { return };
        let (from, to) = (place::source(key), place::destination(key));
        let outward = from == mapping.inside();
        let free = self.mappings.let_go(id.0, if outward { to.address } else { from.address });
        match mapping.nature() {
            Nature::Of(host) => self.leave_host(&mapping, host, outward, free, now),
            Nature::Portless if free => self.leave_pool(mapping.pool),
            Nature::Portless | Nature::Forward(_) => {}
        }
        if free {
            self.mappings.remove(id.0);
        }
    }

    /// A host has a session less, if it had opened it, and a mapping less, if that was the last.
    fn leave_host(&mut self, mapping: &Mapping, number: u32, outward: bool, free: bool, now: u32) {
        let pool = self.pools.get_mut(usize::from(mapping.pool)).and_then(Option::as_mut);
        let (Some(pool), Some(host)) = (pool, self.hosts.get_mut(number)) else { return };
        if outward {
            host.sessions = host.sessions.saturating_sub(1);
            pool.tally.sessions = pool.tally.sessions.saturating_sub(1);
        }
        if !free {
            return;
        }
        host.mappings -= 1;
        if let Some(proto) = PortProto::of(mapping.proto) {
            // What has ended while its pool goes on has lost its port to a forward.
            if let Some(ports) = pool.give(host, proto, mapping.external_port, mapping.has_ended()) {
                let block = PortBlock { address: mapping.external.into(), ports };
                self.events.push(event(now, pool, host, NatEventKind::BlockFreed(block)));
            }
        }
        if host.mappings == 0 {
            self.forget(mapping.pool, number);
        }
        self.leave_pool(mapping.pool);
    }

    /// One mapping less leads to a pool, which goes with the last one if it is not in the configuration.
    fn leave_pool(&mut self, place: u16) {
        let Some(slot) = self.pools.get_mut(usize::from(place)) else { return };
        let Some(pool) = slot else { return };
        pool.mappings -= 1;
        if pool.mappings == 0 && !pool.current {
            *slot = None;
            self.leftovers = self.pools.iter().flatten().any(|pool| !pool.current);
        }
    }
}

/// Counts one more session of a host, if its limit allows it.
fn admit(pool: &mut Pool, host: &mut Host, inside: HostLocation) -> Result<(), NatError> {
    if pool.config.limit().is_some_and(|limit| host.sessions >= limit) {
        pool.tally.limited += 1;
        return Err(NatError::Limit);
    }
    host.sessions += 1;
    host.inside = inside;
    pool.tally.sessions += 1;
    Ok(())
}

fn event(now: u32, pool: &Pool, host: &Host, what: NatEventKind) -> NatEvent {
    NatEvent { at: now, pool: pool.config.shared_name(), host: host.address.into(), what }
}
