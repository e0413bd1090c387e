//! Hosts inside that have mappings in a pool.

use std::io;

use bytemuck::{Pod, Zeroable};

use super::index::{Hasher, Index, Store};
use super::types::HostLocation;

/// A host inside, in one pool.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Host {
    /// Its address.
    pub(super) address: u32,
    /// The external address that it has, by its number in the pool.
    pub(super) external: u32,
    /// First block of its list, as one more than its number; 0: none.
    pub(super) blocks: u32,
    /// Its mappings, and the sessions that it has opened.
    pub(super) mappings: u32,
    pub(super) sessions: u32,
    /// Where it was seen last.
    pub(super) location: HostLocation,
    /// The place of the pool.
    pub(super) pool: u16,
    /// Always zero.
    pub(super) spare: u16,
}

const _: () = assert!(size_of::<Host>() == 32);

/// All hosts of a worker.
#[derive(Debug)]
pub(super) struct Hosts {
    store: Store<Host>,
    index: Index,
}

/// What a host is looked for by.
#[inline]
pub(super) fn hash(hasher: &Hasher, pool: u16, address: u32) -> u32 {
    hasher.hash(u64::from(address), u64::from(pool))
}

impl Hosts {
    /// Room for `capacity` hosts.
    ///
    /// # Errors
    /// The system's, if there is not as much address space.
    pub(super) fn new(capacity: usize) -> io::Result<Hosts> {
        Ok(Hosts { store: Store::new(capacity)?, index: Index::new(capacity)? })
    }

    /// Has the system give the memory in which hosts are looked for.
    pub(super) fn touch(&mut self) {
        self.index.touch();
    }

    /// The slots that hosts are looked for in.
    pub(super) fn slots(&self) -> &[u64] {
        self.index.slots()
    }

    /// Asks for the memory that the removal of a host with this hash will look at.
    #[inline]
    pub(super) fn prefetch_removal(&self, hash: u32) {
        self.index.prefetch_removal(hash);
    }

    /// Asks for the memory of a host.
    pub(super) fn prefetch_record(&self, number: u32) {
        self.store.prefetch(number);
    }

    /// The number of a host; with its hash, which the caller has.
    #[inline]
    pub(super) fn find(&self, hash: u32, pool: u16, address: u32) -> Option<u32> {
        let is =
            |number| self.store.get(number).is_some_and(|host| host.address == address && host.pool == pool);
        self.index.find(hash, is)
    }

    /// Adds a host that is not there. None: no room.
    #[inline]
    pub(super) fn add(&mut self, hash: u32, host: Host) -> Option<u32> {
        let number = self.store.insert(host)?;
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
}
