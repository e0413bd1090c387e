//! Mappings: which end inside is which end outside.
//!
//! Theory of operation. A mapping is found by its inside (place of the pool, protocol, address, port), and by its outside,
//! while it serves new sessions; those of forwards through the configuration. It remembers whom the inside has sessions with, for address-dependent filtering:
//! one remote address, most have no more, stands in the record, the others in a table of their own with the mapping's
//! number.

use std::io;

use bytemuck::{Pod, Zeroable};

use super::config::Endpoint;
use super::index::{Hasher, Index, Store};

/// What a mapping is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MappingKind {
    /// Made for a host, whose number it has.
    Host(u32),
    /// A static forward: its place among the worker's forwards.
    Forward(u32),
    /// Of a protocol without ports: an address and nothing else.
    Portless,
}

/// A mapping.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Mapping {
    pub(super) internal: u32,
    pub(super) external: u32,
    pub(super) internal_port: u16,
    pub(super) external_port: u16,
    /// Sessions, and one more for a forward that is in the configuration.
    pub(super) holds: u32,
    /// A remote address, and how many sessions with it are counted here rather than in the table of remotes.
    pub(super) remote: u32,
    pub(super) remote_holds: u32,
    number: u32,
    /// Place of the pool; of no meaning for forwards.
    pub(super) pool: u16,
    /// Number of the protocol.
    pub(super) proto: u8,
    /// Lower bits: its kind. Upper: it serves nobody new.
    state: u8,
}

const _: () = assert!(size_of::<Mapping>() == 32);

const HOST: u8 = 0;
const FORWARD: u8 = 1;
const PORTLESS: u8 = 2;
const ENDED: u8 = 0x80;

impl Mapping {
    pub(super) fn new(
        proto: u8,
        internal: Endpoint,
        external: Endpoint,
        pool: u16,
        kind: MappingKind,
    ) -> Mapping {
        let (number, state) = match kind {
            MappingKind::Host(host) => (host, HOST),
            MappingKind::Forward(forward) => (forward, FORWARD),
            MappingKind::Portless => (0, PORTLESS),
        };
        Mapping {
            internal: internal.address,
            external: external.address,
            internal_port: internal.port,
            external_port: external.port,
            holds: 0,
            remote: 0,
            remote_holds: 0,
            number,
            pool,
            proto,
            state,
        }
    }

    /// The same as the first session holds it, with a remote address.
    pub(super) fn held_for(self, remote: u32) -> Mapping {
        Mapping { holds: 1, remote, remote_holds: 1, ..self }
    }

    pub(super) fn kind(&self) -> MappingKind {
        match self.state & !ENDED {
            HOST => MappingKind::Host(self.number),
            FORWARD => MappingKind::Forward(self.number),
            _ => MappingKind::Portless,
        }
    }

    /// Whether it was taken out of the configuration, or lost its outside to a forward.
    pub(super) fn has_ended(&self) -> bool {
        self.state & ENDED != 0
    }

    pub(super) fn inside(&self) -> Endpoint {
        Endpoint { address: self.internal, port: self.internal_port }
    }

    pub(super) fn outside(&self) -> Endpoint {
        Endpoint { address: self.external, port: self.external_port }
    }
}

/// Sessions of a mapping with a remote address.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct Remote {
    mapping: u32,
    address: u32,
    holds: u32,
}

/// All mappings of a worker.
#[derive(Debug)]
pub(super) struct Mappings {
    hasher: Hasher,
    store: Store<Mapping>,
    by_inside: Index,
    by_outside: Index,
    remotes: Store<Remote>,
    by_remote: Index,
}

fn number(end: Endpoint, proto: u8) -> u64 {
    (u64::from(end.address) << 32) | (u64::from(end.port) << 16) | u64::from(proto)
}

/// What distinguishes the hashes of the three tables.
const OUTSIDE: u64 = 1 << 32;

impl Mappings {
    /// Room for the mappings of `sessions` sessions, and for `forwards` forwards.
    ///
    /// # Errors
    /// The system's, if there is not as much address space.
    pub(super) fn new(hasher: Hasher, sessions: usize, forwards: usize) -> io::Result<Mappings> {
        Ok(Mappings {
            hasher,
            store: Store::new(sessions + forwards)?,
            by_inside: Index::new(sessions)?,
            by_outside: Index::new(sessions)?,
            remotes: Store::new(sessions)?,
            by_remote: Index::new(sessions)?,
        })
    }

    /// Has the system give the memory of what is read for each session.
    pub(super) fn touch(&mut self) {
        self.by_inside.touch();
        self.by_outside.touch();
    }

    pub(super) fn get(&self, id: u32) -> Option<&Mapping> {
        self.store.get(id)
    }

    /// How many there are, those of forwards included.
    pub(super) fn len(&self) -> usize {
        self.store.len()
    }

    /// What the mapping of an inside in a pool is looked for by.
    #[inline]
    pub(super) fn inside_hash(&self, pool: u16, proto: u8, inside: Endpoint) -> u32 {
        self.hasher.hash(number(inside, proto), u64::from(pool))
    }

    /// … and that with an outside.
    #[inline]
    pub(super) fn outside_hash(&self, proto: u8, outside: Endpoint) -> u32 {
        self.hasher.hash(number(outside, proto), OUTSIDE)
    }

    /// The slots of insides, and of outsides.
    pub(super) fn slots(&self) -> (&[u64], &[u64]) {
        (self.by_inside.slots(), self.by_outside.slots())
    }

    /// Asks for the memory of a mapping.
    pub(super) fn prefetch_record(&self, id: u32) {
        self.store.prefetch(id);
    }

    /// Asks for the memory that the removal of a mapping will look at.
    #[inline]
    pub(super) fn prefetch_removal(&self, mapping: &Mapping) {
        let Mapping { pool, proto, .. } = *mapping;
        self.by_inside.prefetch_removal(self.inside_hash(pool, proto, mapping.inside()));
        self.by_outside.prefetch_removal(self.outside_hash(proto, mapping.outside()));
    }

    /// The mapping of an inside in a pool; with its hash, which the caller has.
    #[inline]
    pub(super) fn at_inside(&self, hash: u32, pool: u16, proto: u8, inside: Endpoint) -> Option<u32> {
        self.by_inside.find(hash, |id| {
            self.store.get(id).is_some_and(|m| {
                m.internal == inside.address
                    && m.internal_port == inside.port
                    && m.proto == proto
                    && m.pool == pool
            })
        })
    }

    /// The mapping that has an outside.
    #[inline]
    pub(super) fn at_outside(&self, proto: u8, outside: Endpoint) -> Option<u32> {
        self.by_outside.find(self.outside_hash(proto, outside), |id| {
            self.store.get(id).is_some_and(|m| {
                m.external == outside.address && m.external_port == outside.port && m.proto == proto
            })
        })
    }

    /// Adds a mapping, whose inside, with that hash, and outside nothing else has. None: no room.
    #[inline]
    pub(super) fn add(&mut self, mapping: Mapping, inside: u32) -> Option<u32> {
        let outside = self.outside_hash(mapping.proto, mapping.outside());
        self.by_outside.prefetch(outside);
        let id = self.store.insert(mapping)?;
        self.by_inside.insert(inside, id);
        if mapping.state != PORTLESS {
            self.by_outside.insert(outside, id);
        }
        Some(id)
    }

    /// Adds a forward's, which is found through the configuration: it serves all pools that have its address. None: no room.
    pub(super) fn add_forward(&mut self, mapping: Mapping) -> Option<u32> {
        self.store.insert(mapping)
    }

    /// Makes a mapping serve nobody new: it is not found any more, and is there only for the sessions that have it.
    pub(super) fn end(&mut self, id: u32) {
        let Some(&mapping) = self.store.get(id).filter(|mapping| !mapping.has_ended()) else { return };
        let outside = self.outside_hash(mapping.proto, mapping.outside());
        self.by_outside.prefetch(outside);
        self.by_inside.remove(self.inside_hash(mapping.pool, mapping.proto, mapping.inside()), id);
        self.by_outside.remove(outside, id);
        if let Some(mapping) = self.store.get_mut(id) {
            mapping.state |= ENDED;
        }
    }

    /// Removes a mapping that nobody holds.
    pub(super) fn remove(&mut self, id: u32) {
        self.end(id);
        self.store.remove(id);
    }

    /// The configuration holds a forward's mapping.
    pub(super) fn pin(&mut self, id: u32) {
        if let Some(mapping) = self.store.get_mut(id) {
            mapping.holds += 1;
        }
    }

    /// It does no longer. True: nor does anybody else.
    pub(super) fn unpin(&mut self, id: u32) -> bool {
        let Some(mapping) = self.store.get_mut(id) else { return false };
        mapping.holds = mapping.holds.saturating_sub(1);
        mapping.holds == 0
    }

    /// Gives a forward's mapping another place among the forwards.
    pub(super) fn renumber(&mut self, id: u32, number: u32) {
        if let Some(mapping) = self.store.get_mut(id) {
            mapping.number = number;
        }
    }

    fn remote_hash(&self, id: u32, remote: u32) -> u32 {
        self.hasher.hash((u64::from(id) << 32) | u64::from(remote), OUTSIDE << 1)
    }

    fn find_remote(&self, id: u32, remote: u32) -> Option<u32> {
        self.by_remote.find(self.remote_hash(id, remote), |number| {
            self.remotes.get(number).is_some_and(|entry| entry.mapping == id && entry.address == remote)
        })
    }

    /// One more session holds a mapping, with a remote address.
    pub(super) fn hold(&mut self, id: u32, remote: u32) {
        let Some(mapping) = self.store.get_mut(id) else { return };
        mapping.holds += 1;
        if mapping.remote_holds == 0 {
            mapping.remote = remote;
        }
        if mapping.remote == remote {
            mapping.remote_holds += 1;
            return;
        }
        if let Some(number) = self.find_remote(id, remote) {
            if let Some(entry) = self.remotes.get_mut(number) {
                entry.holds += 1;
            }
        } else if let Some(number) = self.remotes.insert(Remote { mapping: id, address: remote, holds: 1 }) {
            self.by_remote.insert(self.remote_hash(id, remote), number);
        }
    }

    /// One session less holds a mapping. True: nobody does any more.
    pub(super) fn unhold(&mut self, id: u32, remote: u32) -> bool {
        let Some(mapping) = self.store.get_mut(id) else { return false };
        mapping.holds = mapping.holds.saturating_sub(1);
        let free = mapping.holds == 0;
        if mapping.remote == remote && mapping.remote_holds > 0 {
            mapping.remote_holds -= 1;
            return free;
        }
        let Some(number) = self.find_remote(id, remote) else { return free };
        if let Some(entry) = self.remotes.get_mut(number) {
            entry.holds -= 1;
            if entry.holds == 0 {
                self.by_remote.remove(self.remote_hash(id, remote), number);
                self.remotes.remove(number);
            }
        }
        free
    }

    /// Whether a session with a remote address holds the mapping.
    pub(super) fn has_remote(&self, id: u32, remote: u32) -> bool {
        let Some(mapping) = self.store.get(id) else { return false };
        (mapping.remote == remote && mapping.remote_holds > 0) || self.find_remote(id, remote).is_some()
    }
}
