//! Which worker has each external port: shared by the workers of an engine.
//!
//! # Theory of operation
//!
//! Every worker may give out every port of a pool. Before it does, it *claims* the port here, and it releases
//! the port when the mapping is gone. With port blocks, it claims and releases the block. So a port has one
//! worker at a time, and a packet from outside finds that worker without a session. Only sessions that are
//! opened, and their first replies, read the claims.
//!
//! A worker also has bitmaps of its own, in which it searches. They mark the ports of other workers that it
//! has met ([`super::pool`]). A mark may be out of date; then the worker compares its bitmap with the claims
//! again.
//!
//! The claims outlive a configuration: a pool that is removed and added again finds the ports that are still
//! in use.

use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};

use super::config::PoolConfig;

/// Nobody has the port.
const FREE: u8 = 0;
/// A forward has the port.
const FORWARD: u8 = u8::MAX;
/// Ports of a protocol of an address.
const PORTS: usize = 1 << 16;

/// The claims on the ports of all pools of an engine.
#[derive(Debug, Default)]
pub struct PortOwners(Mutex<Vec<(PoolConfig, Weak<PoolOwners>)>>);

impl PortOwners {
    /// The claims on the ports of a pool. Pools with the same name, first address, ports and blocks have the
    /// same claims.
    pub(super) fn of_pool(&self, pool: &PoolConfig) -> Arc<PoolOwners> {
        let mut pools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|(_, owners)| owners.strong_count() > 0);
        let known = pools.iter().find(|(other, _)| pool.has_same_ports(other));
        if let Some(owners) = known.and_then(|(_, owners)| owners.upgrade()) {
            return owners;
        }
        let owners = Arc::new(PoolOwners::default());
        pools.push((pool.clone(), Arc::downgrade(&owners)));
        owners
    }
}

/// The claims of one protocol of one address; memory is allocated with the first claim.
type Claims = OnceLock<Box<[AtomicU8]>>;

/// The claims on the ports of a pool: for each address, one array for each protocol, or one for the blocks.
#[derive(Debug, Default)]
pub(super) struct PoolOwners(RwLock<Vec<Arc<Claims>>>);

/// One worker's view of the claims on a pool.
#[derive(Debug)]
pub(super) struct PoolClaims {
    shared: Arc<PoolOwners>,
    /// A copy of the list of the shared value, which only grows.
    claims: Vec<Arc<Claims>>,
    /// The claim of this worker.
    mine: u8,
    /// Arrays for each address.
    each: u32,
}

impl PoolClaims {
    /// The view of a worker. `each`: arrays for each address.
    pub fn new(shared: Arc<PoolOwners>, worker: usize, each: u32) -> PoolClaims {
        PoolClaims { shared, claims: Vec::new(), mine: worker as u8 + 1, each }
    }

    /// Makes room for the addresses below `addresses`.
    pub fn grow(&mut self, addresses: u32) {
        let wanted = addresses as usize * self.each as usize;
        let mut shared = self.shared.0.write().unwrap_or_else(PoisonError::into_inner);
        if shared.len() < wanted {
            shared.resize_with(wanted, Arc::default);
        }
        self.claims.clone_from(&shared);
    }

    fn slot(&self, address: u32, array: u32, number: u32) -> Option<&AtomicU8> {
        let claims = self.claims.get((address * self.each + array) as usize)?;
        let numbers = claims.get_or_init(|| (0..PORTS).map(|_| AtomicU8::new(FREE)).collect());
        numbers.get(number as usize)
    }

    /// Claims a port or block. False if another worker or a forward has it.
    pub fn claim(&self, address: u32, array: u32, number: u32) -> bool {
        let Some(slot) = self.slot(address, array, number) else { return false };
        match slot.compare_exchange(FREE, self.mine, Acquire, Relaxed) {
            Ok(_) => true,
            Err(owner) => owner == self.mine,
        }
    }

    /// Claims a port for a forward, unless a worker has it.
    pub fn claim_for_forward(&self, address: u32, array: u32, number: u32) {
        if let Some(slot) = self.slot(address, array, number) {
            // Another worker may have done the same before.
            let _ = slot.compare_exchange(FREE, FORWARD, Acquire, Relaxed);
        }
    }

    /// Releases a port or block of this worker or of a forward.
    pub fn release(&self, address: u32, array: u32, number: u32) {
        let Some(slot) = self.slot(address, array, number) else { return };
        match slot.load(Relaxed) {
            owner if owner == self.mine => slot.store(FREE, Release),
            FORWARD => {
                // Another worker may have done the same before, and a third one may have the port now.
                let _ = slot.compare_exchange(FORWARD, FREE, Release, Relaxed);
            }
            _ => {}
        }
    }

    /// Whether nobody has a port or block.
    pub fn is_free(&self, address: u32, array: u32, number: u32) -> bool {
        self.slot(address, array, number).is_some_and(|slot| slot.load(Relaxed) == FREE)
    }

    /// The worker that has a port or block.
    pub fn owner(&self, address: u32, array: u32, number: u32) -> Option<usize> {
        // Unlike `slot`, this allocates nothing for a stranger's packet.
        let claims = self.claims.get((address * self.each + array) as usize)?.get()?;
        match claims.get(number as usize)?.load(Acquire) {
            FREE | FORWARD => None,
            owner => Some(usize::from(owner) - 1),
        }
    }
}
