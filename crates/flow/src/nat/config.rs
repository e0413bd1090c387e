//! What operators say about NAT: pools of external addresses, and static forwards.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Number of a pool in its [`NatConfig`]: its place in the order of names given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId(pub u16);

/// From whom packets to a mapped address and port are let in, besides those of sessions that there are (RFC 4787
/// section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Filtering {
    /// From anyone.
    EndpointIndependent,
    /// From addresses that the inside has a session with (RFC 4787 REQ-8: where security weighs more).
    #[default]
    AddressDependent,
    /// From nobody else.
    AddressAndPortDependent,
}

/// A protocol that has ports, or identifiers that do for ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PortProto {
    /// UDP.
    Udp = 0,
    /// TCP.
    Tcp = 1,
    /// ICMP queries: the identifier is the port.
    Icmp = 2,
}

impl PortProto {
    /// All of them; `ALL[i] as usize == i`.
    pub const ALL: [PortProto; 3] = [PortProto::Udp, PortProto::Tcp, PortProto::Icmp];

    /// The one with this number in the IPv4 header.
    pub fn of(number: u8) -> Option<PortProto> {
        match number {
            17 => Some(PortProto::Udp),
            6 => Some(PortProto::Tcp),
            1 => Some(PortProto::Icmp),
            _ => None,
        }
    }

    /// Its number in the IPv4 header.
    pub fn number(self) -> u8 {
        match self {
            PortProto::Udp => 17,
            PortProto::Tcp => 6,
            PortProto::Icmp => 1,
        }
    }

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            PortProto::Udp => "udp",
            PortProto::Tcp => "tcp",
            PortProto::Icmp => "icmp",
        }
    }
}

/// An external or internal end: address and port in host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    /// The address.
    pub address: u32,
    /// The port, or the identifier of ICMP queries.
    pub port: u16,
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", Ipv4Addr::from(self.address), self.port)
    }
}

/// Most addresses of one pool.
pub const MAX_POOL_ADDRESSES: u32 = 4096;
/// Most pools.
pub const MAX_POOLS: usize = 1024;
/// Most forwards.
pub const MAX_FORWARDS: usize = 65_536;
/// Ports that workers take turns in, when the pool has no blocks and is not tiny.
const CHUNK: u32 = 64;

/// A pool of external addresses, shared by the hosts inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    name: Arc<str>,
    first: u32,
    last: u32,
    ports: (u16, u16),
    block: Option<u16>,
    limit: Option<u32>,
    filtering: Filtering,
}

impl PoolConfig {
    /// All ports there are. Hosts' ports below 1024 get ports below 1024, others others (RFC 4787 REQ-3 a).
    const ALL_PORTS: (u16, u16) = (1, 65535);

    /// The pool `name` with the addresses from `first` to `last`, both included, all ports, no blocks and no limit.
    pub fn new(name: &str, first: Ipv4Addr, last: Ipv4Addr) -> Result<PoolConfig, String> {
        let (from, to) = (u32::from(first), u32::from(last));
        if name.is_empty() {
            return Err("a pool needs a name".into());
        }
        if from > to {
            return Err(format!("the addresses of a pool go upwards, and {last} is below {first}"));
        }
        if to - from >= MAX_POOL_ADDRESSES {
            let n = u64::from(to - from) + 1;
            return Err(format!("{n} addresses are more than the {MAX_POOL_ADDRESSES} that a pool may have"));
        }
        for address in [first, last] {
            usable(address)?;
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

    /// The same with the ports from `low` to `high` only, both included. They go for ICMP identifiers too.
    pub fn with_ports(self, low: u16, high: u16) -> Result<PoolConfig, String> {
        if low == 0 {
            return Err("port 0 is no port to send from".into());
        }
        if low > high {
            return Err(format!("the ports of a pool go upwards, and {high} is below {low}"));
        }
        let pool = PoolConfig { ports: (low, high), ..self };
        match pool.block {
            Some(size) => pool.with_block(size),
            None => Ok(pool),
        }
    }

    /// The same with ports given to hosts in blocks of `size` consecutive ones.
    pub fn with_block(self, size: u16) -> Result<PoolConfig, String> {
        let (low, high) = self.ports;
        if size == 0 {
            return Err("a block has at least one port".into());
        }
        if u32::from(size) > self.ports_each() {
            return Err(format!("a block of {size} ports does not fit into the ports {low}-{high}"));
        }
        Ok(PoolConfig { block: Some(size), ..self })
    }

    /// The same with at most `sessions` sessions at a time for each host inside (those it opened itself).
    pub fn with_limit(self, sessions: u32) -> Result<PoolConfig, String> {
        if sessions == 0 {
            return Err("a limit of no sessions lets nobody through; leave it out for no limit".into());
        }
        Ok(PoolConfig { limit: Some(sessions), ..self })
    }

    /// The same with this filtering.
    pub fn with_filtering(self, filtering: Filtering) -> PoolConfig {
        PoolConfig { filtering, ..self }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its name, shared.
    pub(crate) fn shared_name(&self) -> Arc<str> {
        self.name.clone()
    }

    /// First and last address.
    pub fn addresses(&self) -> (Ipv4Addr, Ipv4Addr) {
        (self.first.into(), self.last.into())
    }

    /// How many addresses.
    pub fn len(&self) -> u32 {
        self.last - self.first + 1
    }

    /// Never: a pool has an address.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// First and last port.
    pub fn ports(&self) -> (u16, u16) {
        self.ports
    }

    /// Size of the blocks that ports are given out in; none: one by one.
    pub fn block(&self) -> Option<u16> {
        self.block
    }

    /// Most sessions of each host.
    pub fn limit(&self) -> Option<u32> {
        self.limit
    }

    /// Who is let in.
    pub fn filtering(&self) -> Filtering {
        self.filtering
    }

    /// Ports of each address, whoever owns them.
    pub fn ports_each(&self) -> u32 {
        u32::from(self.ports.1) - u32::from(self.ports.0) + 1
    }

    /// Whether the address is one of the pool's.
    pub fn contains(&self, address: u32) -> bool {
        (self.first..=self.last).contains(&address)
    }

    /// The address with this number, from 0; beyond the end it is none of the pool's.
    pub(crate) fn nth(&self, index: u32) -> u32 {
        self.first.wrapping_add(index)
    }

    /// Number of an address of the pool.
    pub(crate) fn index_of(&self, address: u32) -> Option<u32> {
        self.contains(address).then(|| address - self.first)
    }

    /// Whether a pool with the other configuration can go on with this one: all that it has given out still holds.
    pub(crate) fn extends(&self, old: &PoolConfig) -> bool {
        self.name == old.name
            && self.first == old.first
            && self.last >= old.last
            && self.ports == old.ports
            && self.block == old.block
    }

    /// The first port of the first chunk. Blocks lie above 1023 if there is room for one there: their ports go to
    /// whatever a host sends from, and who is sent to may think much of low ones.
    pub(crate) fn base(&self) -> u32 {
        let (low, high) = (u32::from(self.ports.0), u32::from(self.ports.1));
        match self.block {
            Some(size) if high + 1 >= low.max(1024) + u32::from(size) => low.max(1024),
            _ => low,
        }
    }

    /// How many consecutive ports go to one worker before the next has its turn: a block, or 64, or fewer if else a
    /// worker could come away empty-handed.
    pub(crate) fn chunk(&self, workers: usize) -> u32 {
        let turns = 4 * workers.max(1) as u32;
        match self.block {
            Some(size) => u32::from(size),
            None => (self.ports_each() / turns).clamp(1, CHUNK).next_power_of_two().min(CHUNK),
        }
    }

    /// The worker that a port belongs to; ports outside of the pool's belong to the first.
    pub(crate) fn owner(&self, port: u16, workers: usize) -> usize {
        match u32::from(port).checked_sub(self.base()) {
            Some(behind) if workers > 1 && port <= self.ports.1 => {
                (behind / self.chunk(workers)) as usize % workers
            }
            _ => 0,
        }
    }
}

/// A static forward: an external address and port that always lead to the same inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ForwardConfig {
    proto: PortProto,
    external: Endpoint,
    internal: Endpoint,
}

impl ForwardConfig {
    /// The forward of a TCP or UDP port.
    pub fn new(
        proto: PortProto,
        external: (Ipv4Addr, u16),
        internal: (Ipv4Addr, u16),
    ) -> Result<ForwardConfig, String> {
        if proto == PortProto::Icmp {
            return Err("only TCP and UDP ports are forwarded".into());
        }
        for (address, port) in [external, internal] {
            usable(address)?;
            if port == 0 {
                return Err(format!("port 0 of {address} is no port to forward"));
            }
        }
        if external.0 == internal.0 {
            return Err(format!("a forward leads to another address than its own, {}", external.0));
        }
        let end = |(address, port): (Ipv4Addr, u16)| Endpoint { address: address.into(), port };
        Ok(ForwardConfig { proto, external: end(external), internal: end(internal) })
    }

    /// Its protocol.
    pub fn proto(&self) -> PortProto {
        self.proto
    }

    /// Where packets from the outside are sent to.
    pub fn external(&self) -> Endpoint {
        self.external
    }

    /// Where they end up.
    pub fn internal(&self) -> Endpoint {
        self.internal
    }
}

/// Refuses addresses that no host can have.
fn usable(address: Ipv4Addr) -> Result<(), String> {
    if address.octets()[0] == 0 || address.is_multicast() || address.is_broadcast() || address.is_loopback() {
        return Err(format!("{address} is not the address of a host"));
    }
    Ok(())
}

/// All pools and forwards, checked against each other. Immutable; shared by all workers.
#[derive(Clone, Debug, Default)]
pub struct NatConfig {
    pools: Vec<PoolConfig>,
    forwards: Vec<ForwardConfig>,
    /// The lowest and the highest address that is anybody's outside.
    reach: Option<(u32, u32)>,
    /// First and last address of each pool with its number, in order of addresses.
    ranges: Vec<(u32, u32, PoolId)>,
    /// Forwards by where packets are sent to, and by where they end up.
    by_external: HashMap<(PortProto, Endpoint), usize>,
    by_internal: HashMap<(PortProto, Endpoint), Vec<usize>>,
}

impl NatConfig {
    /// Checks pools and forwards against each other: names and external ends are unique, the ports of an address belong
    /// to one pool, and nothing inside is outside as well.
    pub fn new(pools: Vec<PoolConfig>, forwards: Vec<ForwardConfig>) -> Result<NatConfig, String> {
        if pools.len() > MAX_POOLS {
            return Err(format!("{} pools are more than the {MAX_POOLS} that there may be", pools.len()));
        }
        if forwards.len() > MAX_FORWARDS {
            return Err(format!(
                "{} forwards are more than the {MAX_FORWARDS} that there may be",
                forwards.len()
            ));
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

    fn check_pools(&self) -> Result<(), String> {
        for (n, pool) in self.pools.iter().enumerate() {
            for other in self.pools.iter().take(n) {
                if other.name == pool.name {
                    return Err(format!("there are two pools with the name {}", pool.name));
                }
                let addresses = pool.first <= other.last && other.first <= pool.last;
                let ports = pool.ports.0 <= other.ports.1 && other.ports.0 <= pool.ports.1;
                if addresses && ports {
                    return Err(format!(
                        "the pools {} and {} share addresses and ports",
                        other.name, pool.name
                    ));
                }
            }
        }
        Ok(())
    }

    fn index_forwards(&mut self) -> Result<(), String> {
        for (n, forward) in self.forwards.iter().enumerate() {
            let (proto, external, internal) = (forward.proto, forward.external, forward.internal);
            if let Some(pool) = self.pools.iter().find(|pool| pool.contains(internal.address)) {
                let address = Ipv4Addr::from(internal.address);
                return Err(format!(
                    "a forward leads inside, and {address} is an address of the pool {}",
                    pool.name
                ));
            }
            if self.by_external.insert((proto, external), n).is_some() {
                return Err(format!("there are two forwards of {} {external}", proto.name()));
            }
            self.by_internal.entry((proto, internal)).or_default().push(n);
        }
        Ok(())
    }

    /// The pools; [`PoolId`] is the place in here.
    pub fn pools(&self) -> &[PoolConfig] {
        &self.pools
    }

    /// The forwards.
    pub fn forwards(&self) -> &[ForwardConfig] {
        &self.forwards
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.pools.is_empty() && self.forwards.is_empty()
    }

    /// The pool with this name.
    pub fn pool(&self, name: &str) -> Option<PoolId> {
        (0u16..).zip(&self.pools).find(|(_, pool)| &*pool.name == name).map(|(n, _)| PoolId(n))
    }

    /// Whether an address may be anybody's outside: most are told by this alone.
    #[inline]
    pub(crate) fn reaches(&self, address: u32) -> bool {
        self.reach.is_some_and(|(lowest, highest)| (lowest..=highest).contains(&address))
    }

    /// The pool that an external end belongs to. An address may be shared by pools with other ports each; ports that
    /// are none's belong to the first of them.
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

    /// The forward of an external end, by its place in [`NatConfig::forwards`].
    pub(crate) fn forward_at(&self, proto: PortProto, external: Endpoint) -> Option<usize> {
        if self.forwards.is_empty() { None } else { self.by_external.get(&(proto, external)).copied() }
    }

    /// The forwards that lead to an internal end.
    pub(crate) fn forwards_to(&self, proto: PortProto, internal: Endpoint) -> &[usize] {
        if self.forwards.is_empty() {
            &[]
        } else {
            self.by_internal.get(&(proto, internal)).map_or(&[], Vec::as_slice)
        }
    }
}
