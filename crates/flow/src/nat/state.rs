//! The NAT state of one worker.

use std::io;
use std::sync::Arc;

use super::config::{Endpoint, MAX_FORWARDS, NatConfig, PoolConfig, PoolId, PortProto};
use super::events::{Events, NatEvent, PoolUsage};
use super::hosts::{Host, Hosts};
use super::index::Hasher;
use super::mappings::{Mapping, MappingEnds, MappingKind, Mappings};
use super::owners::{PoolClaims, PortOwners};
use super::pool::{Pool, PortPreference};
use super::reconfigure::Forward;
use super::types::{HostLocation, MappingId};

/// The NAT state of one worker.
#[derive(Debug)]
pub struct Nat {
    pub(super) config: Arc<NatConfig>,
    pub(super) worker: usize,
    pub(super) workers: usize,
    /// The claims of all workers on ports.
    pub(super) owners: Arc<PortOwners>,
    pub(super) hasher: Hasher,
    /// Key of the pseudo-random choice of ports.
    pub(super) port_hasher: Hasher,
    /// Pool slots. A mapping names the slot of its pool. A pool that is removed from the configuration keeps
    /// its slot until its mappings have ended.
    pub(super) pools: Vec<Option<Pool>>,
    /// Slots by [`PoolId`].
    pub(super) slots: Vec<u16>,
    /// Whether some slot holds a pool that is not in the configuration. Ports may then be in use that no
    /// bitmap of a configured pool marks as taken.
    pub(super) has_removed_pools: bool,
    pub(super) mappings: Mappings,
    pub(super) hosts: Hosts,
    pub(super) forwards: Vec<Forward>,
    pub(super) events: Events,
}

impl Nat {
    /// Creates the NAT of a single worker, with room for the mappings of `sessions` sessions.
    ///
    /// # Errors
    /// The operating system's error if it cannot reserve the address space.
    pub fn new(config: Arc<NatConfig>, sessions: usize, seed: u64) -> io::Result<Nat> {
        Nat::of_worker(config, sessions, (0, 1), seed, Arc::default())
    }

    /// Creates the NAT of a worker, by its number and the number of workers. All workers must get the same
    /// `seed` and the same `owners`.
    ///
    /// # Errors
    /// As [`Nat::new`].
    pub fn of_worker(
        config: Arc<NatConfig>,
        sessions: usize,
        (worker, workers): (usize, usize),
        seed: u64,
        owners: Arc<PortOwners>,
    ) -> io::Result<Nat> {
        let hasher = Hasher::new(seed);
        let mut nat = Nat {
            config: Arc::default(),
            worker,
            workers,
            owners,
            hasher,
            port_hasher: Hasher::new(!seed ^ ((worker as u64) << 32)),
            pools: Vec::new(),
            slots: Vec::new(),
            has_removed_pools: false,
            // One more than the number of sessions: a mapping is created before its session is found to have
            // no room.
            mappings: Mappings::new(hasher, sessions + 1, MAX_FORWARDS)?,
            hosts: Hosts::new(sessions + 1)?,
            forwards: Vec::new(),
            events: Events::new(),
        };
        nat.adopt(config);
        Ok(nat)
    }

    /// The configuration.
    pub fn config(&self) -> &Arc<NatConfig> {
        &self.config
    }

    /// The pool in a slot.
    pub(super) fn pool_at(&self, slot: u16) -> Option<&Pool> {
        self.pools.get(usize::from(slot))?.as_ref()
    }

    /// What the choice of an external port for an internal endpoint depends on.
    ///
    /// The random part is a keyed hash of the endpoint. So the choice is known before the port is allocated,
    /// and its memory can be prefetched.
    pub(super) fn preference(&self, proto: PortProto, source: Endpoint) -> PortPreference {
        let end = u64::from(source.address) << 32 | u64::from(source.port) << 16 | proto as u64;
        PortPreference { proto, port: source.port, seed: end, hasher: self.port_hasher }
    }

    /// Whether the configuration still asks for a mapping that a session holds. If not, the session must end,
    /// and its packet opens a new session.
    pub fn is_live(&self, id: MappingId) -> bool {
        let Some(mapping) = self.mappings.get(id.0).filter(|mapping| !mapping.has_ended()) else {
            return false;
        };
        matches!(mapping.kind(), MappingKind::Forward(_))
            || self.pool_of_mapping(mapping).is_some_and(|pool| pool.current)
    }

    /// The pool of a mapping; none for forwards.
    pub(super) fn pool_of_mapping(&self, mapping: &Mapping) -> Option<&Pool> {
        self.pool_at(self.slot_of_mapping(mapping)?)
    }

    /// Slot of the pool of a mapping; none for forwards.
    pub(super) fn slot_of_mapping(&self, mapping: &Mapping) -> Option<u16> {
        match mapping.kind() {
            MappingKind::Host(number) => self.hosts.get(number).map(|host| host.pool),
            MappingKind::Portless { pool, .. } => Some(pool),
            MappingKind::Forward(_) => None,
        }
    }

    /// What a mapping is indexed by; none for forwards.
    pub(super) fn ends_of(&self, mapping: &Mapping) -> Option<MappingEnds> {
        let (slot, internal, external) = match mapping.kind() {
            MappingKind::Host(number) => {
                let host = self.hosts.get(number)?;
                (host.pool, host.address, self.external_of(host)?)
            }
            MappingKind::Portless { address, pool } => {
                (pool, address, self.pool_at(pool)?.config.first_choice(address))
            }
            MappingKind::Forward(_) => return None,
        };
        Some(MappingEnds {
            pool: slot,
            inside: Endpoint { address: internal, port: mapping.internal_port },
            outside: Endpoint { address: external, port: mapping.external_port() },
        })
    }

    /// The internal and the external endpoint of a mapping. None for forwards that have ended.
    pub(super) fn endpoints_of(&self, mapping: &Mapping) -> Option<(Endpoint, Endpoint)> {
        if let MappingKind::Forward(n) = mapping.kind() {
            let forward = self.forwards.get(n as usize).filter(|_| !mapping.has_ended())?;
            return Some((forward.config.internal(), forward.config.external()));
        }
        self.ends_of(mapping).map(|ends| (ends.inside, ends.outside))
    }

    /// The mapping of a host with an external endpoint.
    pub(super) fn at_outside(&self, proto: u8, outside: Endpoint) -> Option<u32> {
        self.mappings.at_outside(proto, outside, |host| {
            self.hosts.get(host).and_then(|host| self.external_of(host)) == Some(outside.address)
        })
    }

    /// The external address of a host.
    fn external_of(&self, host: &Host) -> Option<u32> {
        Some(self.pool_at(host.pool)?.config.nth(host.external.into()))
    }

    /// Whether a mapping belongs to a static forward.
    pub fn is_forward(&self, id: MappingId) -> bool {
        self.mappings.get(id.0).is_some_and(|mapping| matches!(mapping.kind(), MappingKind::Forward(_)))
    }

    /// Location of the internal host of a mapping, if it is known.
    pub fn host_location(&self, id: MappingId) -> Option<HostLocation> {
        match self.mappings.get(id.0)?.kind() {
            MappingKind::Host(host) => Some(self.hosts.get(host)?.location),
            MappingKind::Forward(n) => self.forwards.get(n as usize)?.location,
            MappingKind::Portless { .. } => None,
        }
    }

    /// Records the location of the internal host of a mapping, from a packet that the host sent.
    pub fn learn(&mut self, id: MappingId, location: HostLocation) {
        match self.mappings.get(id.0).map(Mapping::kind) {
            Some(MappingKind::Host(host)) => {
                if let Some(host) = self.hosts.get_mut(host) {
                    host.location = location;
                }
            }
            Some(MappingKind::Forward(n)) => {
                if let Some(forward) = self.forwards.get_mut(n as usize) {
                    forward.location = Some(location);
                }
            }
            Some(MappingKind::Portless { .. }) | None => {}
        }
    }

    /// Whether there are no mappings.
    pub fn is_empty(&self) -> bool {
        self.mappings.len() == 0
    }

    /// Number of mappings, including those of forwards.
    pub fn mappings(&self) -> usize {
        self.mappings.len()
    }

    /// Takes the next event from the queue.
    pub fn event(&mut self) -> Option<NatEvent> {
        self.events.pop()
    }

    /// Number of events that were lost because the queue was full.
    pub fn lost_events(&self) -> u64 {
        self.events.lost()
    }

    /// Usage of each pool by this worker, in the order of the configuration.
    pub fn usage(&self) -> Vec<PoolUsage> {
        self.slots.iter().filter_map(|&slot| self.pool_at(slot)).map(Pool::usage).collect()
    }

    /// Creates the ports of a pool.
    pub(super) fn new_pool(&self, config: &PoolConfig) -> Pool {
        let arrays = if config.block().is_some() { 1 } else { PortProto::ALL.len() as u32 };
        let claims =
            (self.workers > 1).then(|| PoolClaims::new(self.owners.of_pool(config), self.worker, arrays));
        Pool::new(config.clone(), claims, self.worker == 0)
    }

    /// Slot of a configured pool.
    pub(super) fn slot(&self, pool: PoolId) -> Option<u16> {
        self.slots.get(usize::from(pool.0)).copied()
    }
}
