//! Internal hosts with mappings in a pool.

use std::io;

use bytemuck::{Pod, Zeroable};

use super::config::MAX_POOL_ADDRESSES;
use super::index::{Buckets, Hasher, Index};
use super::store::Store;
use super::types::HostLocation;
use crate::arena::Arena;

/// An internal host, in one pool. Packed to half-words, since there are many.
#[repr(C, packed(2))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Host {
    /// Address of the host.
    pub(super) address: u32,
    /// External address of the host, as an index into the pool.
    pub(super) external: u16,
    /// Slot of the pool.
    pub(super) pool: u16,
    /// Number of mappings, at most [`Host::MAX_MAPPINGS`].
    pub(super) mappings: u16,
    /// Number of sessions that the host has opened.
    pub(super) sessions: u32,
    /// Location at which the host was last seen.
    pub(super) location: HostLocation,
}

const _: () = assert!(size_of::<Host>() == 22 && MAX_POOL_ADDRESSES <= 1 << u16::BITS);

impl Host {
    /// Maximum number of mappings of a host in a pool.
    pub(super) const MAX_MAPPINGS: u16 = u16::MAX;
}

/// What a pool needs to know of a host to give it ports.
#[derive(Debug)]
pub(super) struct PortHolder<'a> {
    /// Number of the host.
    pub(super) number: u32,
    /// External address of the host, as an index into the pool.
    pub(super) external: u32,
    /// First block of the host's list, plus one; 0 if the host has none.
    pub(super) blocks: &'a mut u32,
}

/// All hosts of a worker.
#[derive(Debug)]
pub(super) struct Hosts {
    store: Store<Host>,
    index: Index,
    /// [`PortHolder::blocks`] by number of the host. A host that is removed has no blocks. Pools without
    /// blocks neither read nor write it.
    blocks: Arena<u32>,
}

/// Hash of a host in a pool.
#[inline]
pub(super) fn hash(hasher: &Hasher, pool: u16, address: u32) -> u32 {
    hasher.hash(u64::from(address), u64::from(pool))
}

impl Hosts {
    /// Reserves memory for `capacity` hosts.
    ///
    /// # Errors
    /// The operating system's error if it cannot reserve the address space.
    pub(super) fn new(capacity: usize) -> io::Result<Hosts> {
        Ok(Hosts {
            store: Store::new(capacity)?,
            index: Index::new(capacity)?,
            blocks: Arena::new(capacity)?,
        })
    }

    /// Makes the system allocate the memory of the index and of the first hosts.
    pub(super) fn allocate(&mut self) {
        self.store.allocate_first();
        self.index.allocate_first();
    }

    /// Buckets of the index.
    pub(super) fn buckets(&self) -> Buckets<'_> {
        self.index.buckets()
    }

    /// Prefetches what the search for a host with this hash, or its removal, reads first.
    #[inline]
    pub(super) fn prefetch(&self, hash: u32) {
        self.index.prefetch(hash);
    }

    /// Prefetches a host.
    pub(super) fn prefetch_record(&self, number: u32) {
        self.store.prefetch(number);
    }

    /// The number of a host. `hash` is the hash of the host.
    #[inline]
    pub(super) fn find(&self, hash: u32, pool: u16, address: u32) -> Option<u32> {
        let is =
            |number| self.store.get(number).is_some_and(|host| host.address == address && host.pool == pool);
        self.index.find(hash, is)
    }

    /// Adds a host. It must not exist yet. None if there is no room.
    #[inline]
    pub(super) fn add(&mut self, hash: u32, host: Host) -> Option<u32> {
        let number = self.store.insert(host)?;
        self.blocks.request_next(number as usize);
        self.index.insert(hash, number);
        Some(number)
    }

    pub(super) fn remove(&mut self, hasher: &Hasher, number: u32) {
        if let Some(host) = self.store.get(number) {
            self.index.remove(hash(hasher, host.pool, host.address), number);
            self.store.remove(number);
        }
    }

    pub(super) fn get(&self, number: u32) -> Option<&Host> {
        self.store.get(number)
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Host> {
        self.store.get_mut(number)
    }

    /// A host, and its part in which its pool gives it ports.
    #[inline(always)]
    pub(super) fn with_ports_mut(&mut self, number: u32) -> Option<(&mut Host, PortHolder<'_>)> {
        let (host, blocks) = (self.store.get_mut(number)?, self.blocks.get_mut().get_mut(number as usize)?);
        let external = host.external.into();
        Some((host, PortHolder { number, external, blocks }))
    }
}
