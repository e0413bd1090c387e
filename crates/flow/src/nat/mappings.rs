//! The mappings of a worker.
//!
//! # Theory of operation
//!
//! A mapping is indexed by its internal endpoint (slot of the pool, protocol, address, port) and, while it
//! serves new sessions, by its external endpoint. Mappings of forwards are found through the configuration
//! instead. The record of a mapping has the ports. The addresses and the pool are those of its host, or of
//! its forward, and the caller knows them ([`MappingEnds`]).
//!
//! For address-dependent filtering, a mapping also knows the remote addresses of its sessions. If all of its
//! sessions have the same one, as with most mappings, it is in the record. Otherwise, or if there are too
//! many sessions for the count beside it, all are in a table of their own, with the number of the mapping.
//! Forwards admit any address, and know none.

use std::io;

use bytemuck::{Pod, Zeroable};

use super::config::Endpoint;
use super::index::{Buckets, Hasher, Index};
use super::store::Store;

/// The kind of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MappingKind {
    /// Created for a host with this number.
    Host(u32),
    /// A static forward: its index in the worker's forwards.
    Forward(u32),
    /// A mapping of a protocol without ports: only an address.
    Portless {
        /// The internal address.
        address: u32,
        /// Slot of the pool.
        pool: u16,
    },
}

/// What a mapping is indexed by.
#[derive(Clone, Copy, Debug)]
pub(super) struct MappingEnds {
    /// Slot of the pool.
    pub(super) pool: u16,
    pub(super) inside: Endpoint,
    pub(super) outside: Endpoint,
}

/// A mapping.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Mapping {
    /// Number of the host, or index of the forward; without ports: the internal address.
    owner: u32,
    /// The remote address of all sessions. If the addresses are in the table of remotes: the number of
    /// sessions. For forwards, too, plus one for a forward that is configured.
    remote: u32,
    pub(super) internal_port: u16,
    /// External port; without ports: slot of the pool.
    external_port: u16,
    /// Number of sessions that have the remote address.
    holds: u16,
    /// IP protocol number.
    pub(super) proto: u8,
    /// Lower bits: the kind. Upper bits: [`ENDED`] and [`SEVERAL`].
    state: u8,
}

const _: () = assert!(size_of::<Mapping>() == 16);

const HOST: u8 = 0;
const FORWARD: u8 = 1;
const PORTLESS: u8 = 2;
/// The mapping has ended.
const ENDED: u8 = 0x80;
/// The remote addresses are in the table of remotes.
const SEVERAL: u8 = 0x40;

impl Mapping {
    /// A mapping between two ports. Without ports, they are ignored.
    pub(super) fn new(proto: u8, kind: MappingKind, internal_port: u16, external_port: u16) -> Mapping {
        let (owner, internal_port, external_port, state) = match kind {
            MappingKind::Host(host) => (host, internal_port, external_port, HOST),
            MappingKind::Forward(forward) => (forward, internal_port, external_port, FORWARD),
            MappingKind::Portless { address, pool } => (address, 0, pool, PORTLESS),
        };
        Mapping { owner, remote: 0, internal_port, external_port, holds: 0, proto, state }
    }

    /// The mapping as held by its first session, with a remote address.
    pub(super) fn held_for(self, remote: u32) -> Mapping {
        Mapping { holds: 1, remote, ..self }
    }

    pub(super) fn kind(&self) -> MappingKind {
        match self.state & !(ENDED | SEVERAL) {
            HOST => MappingKind::Host(self.owner),
            FORWARD => MappingKind::Forward(self.owner),
            _ => MappingKind::Portless { address: self.owner, pool: self.external_port },
        }
    }

    /// Whether the mapping was removed from the configuration or lost its external endpoint to a forward.
    pub(super) fn has_ended(&self) -> bool {
        self.state & ENDED != 0
    }

    /// External port; zero without ports.
    pub(super) fn external_port(&self) -> u16 {
        if self.is(PORTLESS) { 0 } else { self.external_port }
    }

    fn is(&self, kind: u8) -> bool {
        self.state & !(ENDED | SEVERAL) == kind
    }

    /// Whether another mapping has the same internal endpoint in the same pool.
    fn has_inside_of(&self, other: &Mapping) -> bool {
        let is_same_kind = (self.state ^ other.state) & !(ENDED | SEVERAL) == 0;
        is_same_kind
            && (self.owner, self.internal_port, self.proto) == (other.owner, other.internal_port, other.proto)
            && (!self.is(PORTLESS) || self.external_port == other.external_port)
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
        self.by_inside.allocate_first();
        self.by_outside.allocate_first();
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

    /// Buckets of the indexes of internal and of external endpoints.
    pub(super) fn buckets(&self) -> [Buckets<'_>; 2] {
        [self.by_inside.buckets(), self.by_outside.buckets()]
    }

    /// Prefetches a mapping.
    pub(super) fn prefetch_record(&self, id: u32) {
        self.store.prefetch(id);
    }

    /// Prefetches what the search for a mapping with these hashes, or its removal, reads first.
    #[inline]
    pub(super) fn prefetch(&self, inside: u32, outside: u32) {
        self.by_inside.prefetch(inside);
        self.by_outside.prefetch(outside);
    }

    /// Prefetches what the removal of a mapping with this protocol reads.
    #[inline]
    pub(super) fn prefetch_removal(&self, proto: u8, ends: &MappingEnds) {
        let inside = self.inside_hash(ends.pool, proto, ends.inside);
        self.prefetch(inside, self.outside_hash(proto, ends.outside));
    }

    /// The mapping with the internal endpoint of `sought`, whose hash is `hash`.
    #[inline]
    pub(super) fn at_inside(&self, hash: u32, sought: &Mapping) -> Option<u32> {
        self.by_inside.find(hash, |id| self.store.get(id).is_some_and(|m| m.has_inside_of(sought)))
    }

    /// The mapping of an external endpoint. `is_outside` returns whether a host has the external address.
    #[inline]
    pub(super) fn at_outside(
        &self,
        proto: u8,
        outside: Endpoint,
        is_outside: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        self.by_outside.find(self.outside_hash(proto, outside), |id| {
            self.store
                .get(id)
                .is_some_and(|m| m.external_port == outside.port && m.proto == proto && is_outside(m.owner))
        })
    }

    /// Adds a mapping. No other mapping may have its internal endpoint, whose hash is `inside`, or its
    /// external endpoint, whose hash is `outside`. None if there is no room.
    #[inline]
    pub(super) fn add(&mut self, mapping: Mapping, inside: u32, outside: u32) -> Option<u32> {
        let id = self.store.insert(mapping)?;
        self.by_inside.insert(inside, id);
        if !mapping.is(PORTLESS) {
            self.by_outside.insert(outside, id);
        }
        Some(id)
    }

    /// Adds the mapping of a forward. It is found through the configuration, since it serves all pools with
    /// its address. None if there is no room.
    pub(super) fn add_forward(&mut self, mapping: Mapping) -> Option<u32> {
        self.store.insert(mapping)
    }

    /// Ends a mapping: it is no longer found, and exists only for the sessions that hold it. `ends`: what it
    /// is indexed by; none for forwards.
    pub(super) fn end(&mut self, id: u32, ends: Option<&MappingEnds>) {
        let Some(mapping) = self.store.get_mut(id).filter(|mapping| !mapping.has_ended()) else { return };
        mapping.state |= ENDED;
        let proto = mapping.proto;
        if let Some(ends) = ends {
            let outside = self.outside_hash(proto, ends.outside);
            self.by_outside.prefetch(outside);
            self.by_inside.remove(self.inside_hash(ends.pool, proto, ends.inside), id);
            self.by_outside.remove(outside, id);
        }
    }

    /// Removes a mapping that no session holds. `ends` is as for [`Mappings::end`].
    pub(super) fn remove(&mut self, id: u32, ends: Option<&MappingEnds>) {
        self.end(id, ends);
        self.store.remove(id);
    }

    /// Holds the mapping of a forward for the configuration.
    pub(super) fn pin(&mut self, id: u32) {
        self.hold(id, 0);
    }

    /// Releases the mapping of a forward from the configuration. True if nothing holds it any more.
    pub(super) fn unpin(&mut self, id: u32) -> bool {
        self.unhold(id, 0)
    }

    /// Gives the mapping of a forward another index in the forwards.
    pub(super) fn renumber(&mut self, id: u32, number: u32) {
        if let Some(mapping) = self.store.get_mut(id) {
            mapping.owner = number;
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
        if mapping.is(FORWARD) {
            mapping.remote += 1;
            return;
        }
        if mapping.state & SEVERAL != 0 {
            mapping.remote += 1;
            return self.add_remote(id, remote, 1);
        }
        if mapping.holds == 0 {
            mapping.remote = remote;
        }
        if mapping.remote == remote && mapping.holds < u16::MAX {
            mapping.holds += 1;
            return;
        }
        let (first, others) = (mapping.remote, u32::from(mapping.holds));
        mapping.state |= SEVERAL;
        mapping.remote = others + 1;
        self.add_remote(id, first, others);
        self.add_remote(id, remote, 1);
    }

    /// Removes a session with a remote address from a mapping. True if nothing holds the mapping any more.
    pub(super) fn unhold(&mut self, id: u32, remote: u32) -> bool {
        let Some(mapping) = self.store.get_mut(id) else { return false };
        if mapping.is(FORWARD) {
            mapping.remote = mapping.remote.saturating_sub(1);
            return mapping.remote == 0;
        }
        if mapping.state & SEVERAL == 0 {
            mapping.holds = mapping.holds.saturating_sub(1);
            return mapping.holds == 0;
        }
        mapping.remote = mapping.remote.saturating_sub(1);
        let is_free = mapping.remote == 0;
        if is_free {
            mapping.state &= !SEVERAL;
            mapping.holds = 0;
        }
        self.remove_remote(id, remote);
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
