//! The mappings of a worker.
//!
//! # Theory of operation
//!
//! A mapping is indexed by its internal endpoint (slot of the pool, protocol, address, port) and, while it
//! serves new sessions, by its external endpoint. Mappings of forwards are found through the configuration
//! instead. For address-dependent filtering, a mapping also knows the remote addresses of its sessions. If
//! all of its sessions have the same one, as with most mappings, it is in the record. Otherwise all are in a
//! table of their own, with the number of the mapping. Forwards admit any address, and know none.

use std::io;

use bytemuck::{Pod, Zeroable};

use super::config::Endpoint;
use super::index::{Hasher, Index, Store};

/// The kind of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MappingKind {
    /// Created for a host with this number.
    Host(u32),
    /// A static forward: its index in the worker's forwards.
    Forward(u32),
    /// A mapping of a protocol without ports: only an address.
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
    /// Number of sessions, plus one for a forward that is configured.
    pub(super) holds: u32,
    /// The remote address of all sessions. Meaningless for forwards, and if the addresses are in the table of
    /// remotes.
    remote: u32,
    number: u32,
    /// Slot of the pool. Meaningless for forwards.
    pub(super) pool: u16,
    /// IP protocol number.
    pub(super) proto: u8,
    /// Lower bits: the kind. Upper bits: [`ENDED`] and [`SEVERAL`].
    state: u8,
}

const _: () = assert!(size_of::<Mapping>() == 28);

const HOST: u8 = 0;
const FORWARD: u8 = 1;
const PORTLESS: u8 = 2;
/// The mapping has ended.
const ENDED: u8 = 0x80;
/// The remote addresses are in the table of remotes.
const SEVERAL: u8 = 0x40;

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
            number,
            pool,
            proto,
            state,
        }
    }

    /// The mapping as held by its first session, with a remote address.
    pub(super) fn held_for(self, remote: u32) -> Mapping {
        Mapping { holds: 1, remote, ..self }
    }

    pub(super) fn kind(&self) -> MappingKind {
        match self.state & !(ENDED | SEVERAL) {
            HOST => MappingKind::Host(self.number),
            FORWARD => MappingKind::Forward(self.number),
            _ => MappingKind::Portless,
        }
    }

    /// Whether the mapping was removed from the configuration or lost its external endpoint to a forward.
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

/// The sessions of a mapping with one remote address.
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

/// Separates the hashes of the three tables.
const OUTSIDE: u64 = 1 << 32;

impl Mappings {
    /// Reserves memory for the mappings of `sessions` sessions and `forwards` forwards.
    ///
    /// # Errors
    /// The operating system's error if it cannot reserve the address space.
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

    /// Makes the system allocate the memory that every new session needs.
    pub(super) fn allocate(&mut self) {
        self.store.allocate_first();
        self.by_inside.allocate();
        self.by_outside.allocate();
    }

    pub(super) fn get(&self, id: u32) -> Option<&Mapping> {
        self.store.get(id)
    }

    /// Number of mappings, including those of forwards.
    pub(super) fn len(&self) -> usize {
        self.store.len()
    }

    /// Hash of an internal endpoint in a pool.
    #[inline]
    pub(super) fn inside_hash(&self, pool: u16, proto: u8, inside: Endpoint) -> u32 {
        self.hasher.hash(number(inside, proto), u64::from(pool))
    }

    /// Hash of an external endpoint.
    #[inline]
    pub(super) fn outside_hash(&self, proto: u8, outside: Endpoint) -> u32 {
        self.hasher.hash(number(outside, proto), OUTSIDE)
    }

    /// Slots of the indexes of internal and of external endpoints.
    pub(super) fn slots(&self) -> (&[u64], &[u64]) {
        (self.by_inside.slots(), self.by_outside.slots())
    }

    /// Prefetches a mapping.
    pub(super) fn prefetch_record(&self, id: u32) {
        self.store.prefetch(id);
    }

    /// Prefetches what the removal of a mapping reads.
    #[inline]
    pub(super) fn prefetch_removal(&self, mapping: &Mapping) {
        let Mapping { pool, proto, .. } = *mapping;
        self.by_inside.prefetch_removal(self.inside_hash(pool, proto, mapping.inside()));
        self.by_outside.prefetch_removal(self.outside_hash(proto, mapping.outside()));
    }

    /// The mapping of an internal endpoint in a pool. `hash` is the endpoint's hash.
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

    /// The mapping of an external endpoint.
    #[inline]
    pub(super) fn at_outside(&self, proto: u8, outside: Endpoint) -> Option<u32> {
        self.by_outside.find(self.outside_hash(proto, outside), |id| {
            self.store.get(id).is_some_and(|m| {
                m.external == outside.address && m.external_port == outside.port && m.proto == proto
            })
        })
    }

    /// Adds a mapping. No other mapping may have its internal endpoint, whose hash is `inside`, or its
    /// external endpoint. None if there is no room.
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

    /// Adds the mapping of a forward. It is found through the configuration, since it serves all pools with
    /// its address. None if there is no room.
    pub(super) fn add_forward(&mut self, mapping: Mapping) -> Option<u32> {
        self.store.insert(mapping)
    }

    /// Ends a mapping: it is no longer found, and exists only for the sessions that hold it.
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

    /// Removes a mapping that no session holds.
    pub(super) fn remove(&mut self, id: u32) {
        self.end(id);
        self.store.remove(id);
    }

    /// Holds the mapping of a forward for the configuration.
    pub(super) fn pin(&mut self, id: u32) {
        if let Some(mapping) = self.store.get_mut(id) {
            mapping.holds += 1;
        }
    }

    /// Releases the mapping of a forward from the configuration. True if nothing holds it any more.
    pub(super) fn unpin(&mut self, id: u32) -> bool {
        let Some(mapping) = self.store.get_mut(id) else { return false };
        mapping.holds = mapping.holds.saturating_sub(1);
        mapping.holds == 0
    }

    /// Gives the mapping of a forward another index in the forwards.
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

    /// Counts sessions of a mapping with a remote address in the table of remotes.
    fn add_remote(&mut self, id: u32, remote: u32, holds: u32) {
        if let Some(number) = self.find_remote(id, remote) {
            if let Some(entry) = self.remotes.get_mut(number) {
                entry.holds += holds;
            }
        } else if let Some(number) = self.remotes.insert(Remote { mapping: id, address: remote, holds }) {
            self.by_remote.insert(self.remote_hash(id, remote), number);
        }
    }

    /// Counts a session less of a mapping with a remote address in the table of remotes.
    fn remove_remote(&mut self, id: u32, remote: u32) {
        let Some(number) = self.find_remote(id, remote) else { return };
        if let Some(entry) = self.remotes.get_mut(number) {
            entry.holds -= 1;
            if entry.holds == 0 {
                self.by_remote.remove(self.remote_hash(id, remote), number);
                self.remotes.remove(number);
            }
        }
    }

    /// Adds a session with a remote address to a mapping.
    pub(super) fn hold(&mut self, id: u32, remote: u32) {
        let Some(mapping) = self.store.get_mut(id) else { return };
        let others = mapping.holds;
        mapping.holds += 1;
        if matches!(mapping.kind(), MappingKind::Forward(_)) {
            return;
        }
        if others == 0 {
            mapping.remote = remote;
        }
        let first = mapping.remote;
        if mapping.state & SEVERAL == 0 {
            if first == remote {
                return;
            }
            mapping.state |= SEVERAL;
            self.add_remote(id, first, others);
        }
        self.add_remote(id, remote, 1);
    }

    /// Removes a session with a remote address from a mapping. True if nothing holds the mapping any more.
    pub(super) fn unhold(&mut self, id: u32, remote: u32) -> bool {
        let Some(mapping) = self.store.get_mut(id) else { return false };
        mapping.holds = mapping.holds.saturating_sub(1);
        let is_free = mapping.holds == 0;
        if mapping.state & SEVERAL != 0 {
            if is_free {
                mapping.state &= !SEVERAL;
            }
            self.remove_remote(id, remote);
        }
        is_free
    }

    /// Whether a session of the mapping has this remote address.
    pub(super) fn has_remote(&self, id: u32, remote: u32) -> bool {
        self.store.get(id).is_some_and(|mapping| match mapping.state & SEVERAL {
            0 => mapping.holds > 0 && mapping.remote == remote,
            _ => self.find_remote(id, remote).is_some(),
        })
    }
}
