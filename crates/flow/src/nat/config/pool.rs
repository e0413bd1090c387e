//! Configuration of an address pool.

use std::net::Ipv4Addr;
use std::sync::Arc;

use super::error::{NatConfigError, check_host_address};
use super::types::{Filtering, MAX_POOL_ADDRESSES};

/// Ports that a host of a pool without a limit may have at least.
const DEFAULT_PORTS_MIN: u32 = 1024;

/// A pool of external addresses that internal hosts share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    name: Arc<str>,
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) ports: (u16, u16),
    block: Option<u16>,
    limit: Option<u32>,
    filtering: Filtering,
}

impl PoolConfig {
    /// All ports. Internal ports below 1024 get external ports below 1024; others get others (RFC 4787 REQ-3
    /// a).
    const ALL_PORTS: (u16, u16) = (1, 65535);

    /// Creates a pool with the addresses `first` to `last`, inclusive, with all ports, no blocks and no
    /// limit.
    ///
    /// # Errors
    /// No name; too many addresses or none; an address that is not a host's.
    pub fn new(name: &str, first: Ipv4Addr, last: Ipv4Addr) -> Result<PoolConfig, NatConfigError> {
        let (from, to) = (u32::from(first), u32::from(last));
        if name.is_empty() {
            return Err(NatConfigError::NoName);
        }
        if from > to {
            return Err(NatConfigError::AddressOrder { first, last });
        }
        if to - from >= MAX_POOL_ADDRESSES {
            return Err(NatConfigError::TooManyAddresses(u64::from(to - from) + 1));
        }
        for address in [first, last] {
            check_host_address(address)?;
        }
        Ok(PoolConfig {
            name: name.into(),
            first: from,
            last: to,
            ports: Self::ALL_PORTS,
            block: None,
            limit: None,
            filtering: Filtering::default(),
        })
    }

    /// Restricts the pool to the ports `low` to `high`, inclusive. The range holds for ICMP identifiers too.
    ///
    /// # Errors
    /// Port 0, an empty range, or a range smaller than a block.
    pub fn with_ports(self, low: u16, high: u16) -> Result<PoolConfig, NatConfigError> {
        if low == 0 {
            return Err(NatConfigError::PortZero);
        }
        if low > high {
            return Err(NatConfigError::PortOrder { low, high });
        }
        let pool = PoolConfig { ports: (low, high), ..self };
        match pool.block {
            Some(size) => pool.with_block(size),
            None => Ok(pool),
        }
    }

    /// Allocates ports to hosts in blocks of `size` consecutive ports.
    ///
    /// # Errors
    /// An empty block, or one that is larger than the range of ports.
    pub fn with_block(self, size: u16) -> Result<PoolConfig, NatConfigError> {
        let (low, high) = self.ports;
        if size == 0 {
            return Err(NatConfigError::EmptyBlock);
        }
        if u32::from(size) > self.ports_each() {
            return Err(NatConfigError::BlockTooLarge { size, low, high });
        }
        Ok(PoolConfig { block: Some(size), ..self })
    }

    /// Limits the sessions that an internal host may have open at a time. Only sessions from inside count.
    ///
    /// # Errors
    /// A limit of 0.
    pub fn with_limit(self, sessions: u32) -> Result<PoolConfig, NatConfigError> {
        if sessions == 0 {
            return Err(NatConfigError::ZeroLimit);
        }
        Ok(PoolConfig { limit: Some(sessions), ..self })
    }

    /// Sets the filtering.
    pub fn with_filtering(self, filtering: Filtering) -> PoolConfig {
        PoolConfig { filtering, ..self }
    }

    /// Name of the pool.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Name of the pool, as a shared string.
    pub(crate) fn shared_name(&self) -> Arc<str> {
        self.name.clone()
    }

    /// First and last address.
    pub fn addresses(&self) -> (Ipv4Addr, Ipv4Addr) {
        (self.first.into(), self.last.into())
    }

    /// Number of addresses.
    pub fn len(&self) -> u32 {
        self.last - self.first + 1
    }

    /// Always false: a pool has at least one address.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// First and last port.
    pub fn ports(&self) -> (u16, u16) {
        self.ports
    }

    /// Ports in a block; none if ports are allocated one by one.
    pub fn block(&self) -> Option<u16> {
        self.block
    }

    /// Maximum number of sessions of a host.
    pub fn limit(&self) -> Option<u32> {
        self.limit
    }

    /// The filtering.
    pub fn filtering(&self) -> Filtering {
        self.filtering
    }

    /// Number of ports of an address, over all workers.
    pub fn ports_each(&self) -> u32 {
        u32::from(self.ports.1) - u32::from(self.ports.0) + 1
    }

    /// Whether the pool contains an address.
    pub fn contains(&self, address: u32) -> bool {
        (self.first..=self.last).contains(&address)
    }

    /// The address with this index, from 0. An index past the end gives an address outside of the pool.
    pub(crate) fn nth(&self, index: u32) -> u32 {
        self.first.wrapping_add(index)
    }

    /// Index of an address of the pool.
    pub(crate) fn index_of(&self, address: u32) -> Option<u32> {
        self.contains(address).then(|| address - self.first)
    }

    /// Whether a pool with the configuration `old` can change to this one and keep all of its allocations.
    pub(crate) fn extends(&self, old: &PoolConfig) -> bool {
        self.last >= old.last && self.has_same_ports(old)
    }

    /// Whether another pool has the same ports, except for the number of its addresses.
    pub(crate) fn has_same_ports(&self, other: &PoolConfig) -> bool {
        self.name == other.name
            && self.first == other.first
            && self.ports == other.ports
            && self.block == other.block
    }

    /// Maximum number of ports of a host if the pool has no limit: half of the ports of an address (RFC 6888,
    /// REQ-4).
    pub(crate) fn default_ports(&self) -> u32 {
        (self.ports_each() / 2).max(DEFAULT_PORTS_MIN)
    }

    /// The first port of the first block.
    ///
    /// Blocks begin at port 1024 if at least one fits there. Their ports serve all internal ports, and a
    /// remote server may trust source ports below 1024.
    pub(crate) fn base(&self) -> u32 {
        let (low, high) = (u32::from(self.ports.0), u32::from(self.ports.1));
        match self.block {
            Some(size) if high + 1 >= low.max(1024) + u32::from(size) => low.max(1024),
            _ => low,
        }
    }
}
