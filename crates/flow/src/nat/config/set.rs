//! The set of all pools and forwards.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use super::error::NatConfigError;
use super::forward::ForwardConfig;
use super::pool::PoolConfig;
use super::types::{Endpoint, MAX_FORWARDS, MAX_POOLS, PoolId, PortProto};

/// All pools and forwards, checked against each other. Immutable and shared by all workers.
#[derive(Clone, Debug, Default)]
pub struct NatConfig {
    pools: Vec<PoolConfig>,
    forwards: Vec<ForwardConfig>,
    /// Lowest and highest external address.
    reach: Option<(u32, u32)>,
    /// First address, last address and number of each pool, sorted by address.
    ranges: Vec<(u32, u32, PoolId)>,
    /// Forwards by external and by internal endpoint, as indexes into `forwards`.
    by_external: HashMap<(PortProto, Endpoint), usize>,
    by_internal: HashMap<(PortProto, Endpoint), Vec<usize>>,
}

impl NatConfig {
    /// Checks pools and forwards against each other.
    ///
    /// # Errors
    /// Duplicate names or external endpoints; pools that share ports of an address; a forward to an address
    /// of a pool; too many pools or forwards.
    pub fn new(pools: Vec<PoolConfig>, forwards: Vec<ForwardConfig>) -> Result<NatConfig, NatConfigError> {
        if pools.len() > MAX_POOLS {
            return Err(NatConfigError::TooManyPools(pools.len()));
        }
        if forwards.len() > MAX_FORWARDS {
            return Err(NatConfigError::TooManyForwards(forwards.len()));
        }
        let mut config = NatConfig { pools, forwards, ..NatConfig::default() };
        config.check_pools()?;
        config.ranges =
            (0u16..).zip(&config.pools).map(|(n, pool)| (pool.first, pool.last, PoolId(n))).collect();
        config.ranges.sort_unstable();
        config.index_forwards()?;
        let pools = config.pools.iter().flat_map(|pool| [pool.first, pool.last]);
        let forwards = config.forwards.iter().map(|forward| forward.external.address);
        config.reach = pools.chain(forwards).fold(None, |reach, address| {
            let (lowest, highest) = reach.unwrap_or((address, address));
            Some((address.min(lowest), address.max(highest)))
        });
        Ok(config)
    }

    fn check_pools(&self) -> Result<(), NatConfigError> {
        for (n, pool) in self.pools.iter().enumerate() {
            for other in self.pools.iter().take(n) {
                if other.name() == pool.name() {
                    return Err(NatConfigError::DuplicatePool(pool.name().to_owned()));
                }
                let addresses = pool.first <= other.last && other.first <= pool.last;
                let ports = pool.ports.0 <= other.ports.1 && other.ports.0 <= pool.ports.1;
                if addresses && ports {
                    let (first, second) = (other.name().to_owned(), pool.name().to_owned());
                    return Err(NatConfigError::Overlap(first, second));
                }
            }
        }
        Ok(())
    }

    fn index_forwards(&mut self) -> Result<(), NatConfigError> {
        for (n, forward) in self.forwards.iter().enumerate() {
            let (proto, external, internal) = (forward.proto, forward.external, forward.internal);
            if let Some(pool) = self.pools.iter().find(|pool| pool.contains(internal.address)) {
                let address = Ipv4Addr::from(internal.address);
                return Err(NatConfigError::ForwardToPool { address, pool: pool.name().to_owned() });
            }
            if self.by_external.insert((proto, external), n).is_some() {
                return Err(NatConfigError::DuplicateForward { proto: proto.name(), external });
            }
            self.by_internal.entry((proto, internal)).or_default().push(n);
        }
        Ok(())
    }

    /// The pools, indexed by [`PoolId`].
    pub fn pools(&self) -> &[PoolConfig] {
        &self.pools
    }

    /// The forwards.
    pub fn forwards(&self) -> &[ForwardConfig] {
        &self.forwards
    }

    /// Whether there are neither pools nor forwards.
    pub fn is_empty(&self) -> bool {
        self.pools.is_empty() && self.forwards.is_empty()
    }

    /// The pool with this name.
    pub fn pool(&self, name: &str) -> Option<PoolId> {
        (0u16..).zip(&self.pools).find(|(_, pool)| pool.name() == name).map(|(n, _)| PoolId(n))
    }

    /// Whether an address lies between the lowest and the highest external address. A fast test that excludes
    /// most addresses.
    #[inline]
    pub(crate) fn is_in_reach(&self, address: u32) -> bool {
        self.reach.is_some_and(|(lowest, highest)| (lowest..=highest).contains(&address))
    }

    /// The pool that owns an external endpoint. Pools may share an address if their ports differ; ports of
    /// none of them belong to the first such pool.
    pub(crate) fn pool_at(&self, external: Endpoint) -> Option<PoolId> {
        let behind = self.ranges.partition_point(|range| range.0 <= external.address);
        let mut found = None;
        for &(_, _, id) in self.ranges.iter().take(behind) {
            let Some(pool) = self.pools.get(usize::from(id.0)).filter(|pool| pool.contains(external.address))
            else {
                continue;
            };
            if (pool.ports.0..=pool.ports.1).contains(&external.port) {
                return Some(id);
            }
            found = found.or(Some(id));
        }
        found
    }

    /// Index of the forward of an external endpoint in [`NatConfig::forwards`].
    pub(crate) fn forward_at(&self, proto: PortProto, external: Endpoint) -> Option<usize> {
        if self.forwards.is_empty() { None } else { self.by_external.get(&(proto, external)).copied() }
    }

    /// Indexes of the forwards to an internal endpoint.
    pub(crate) fn forwards_to(&self, proto: PortProto, internal: Endpoint) -> &[usize] {
        if self.forwards.is_empty() {
            &[]
        } else {
            self.by_internal.get(&(proto, internal)).map_or(&[], Vec::as_slice)
        }
    }
}
