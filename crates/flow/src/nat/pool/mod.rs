//! The ports of a pool, as one worker gives them out.
//!
//! # Theory of operation
//!
//! Every worker may give out every port. With several workers, it claims a port before
//! ([`super::owners`]). If another worker has the port, the worker marks it as taken and searches on. A mark
//! is removed when the port is wanted again and nobody has it, or when all marks of an address are compared
//! with the claims because no port was found ([`Pool::refresh`]).
//!
//! A host keeps its first external address (RFC 4787 REQ-2, "paired"; strictly, as RFC 7857 section 4
//! requires). There it gets the first free port of this list: its own source port; for an odd UDP source
//! port, the port after the external port of the even port below (RFC 4787 section 4.2.3: RTP uses pairs); a
//! random port of the same parity (REQ-4); any random port. With blocks, only ports of the host's blocks
//! count. A new block is the one that contains the source port, if it is free. The random number is a keyed
//! hash of the internal endpoint (`PortPreference::random`), so that [`Pool::predict`] can know it
//! beforehand.

use super::config::{Endpoint, PoolConfig, PortProto};
use super::events::{Gate, PoolUsage};
use super::hosts::PortHolder;
use super::index::Hasher;
use super::owners::PoolClaims;

mod bitmap;
mod blocks;
mod space;
mod take;

use blocks::Blocks;
use space::{Lane, Space, within};

/// Ports of other workers that a search meets before all marks are compared with the claims.
const CLAIM_TRIES: u32 = 64;
/// Milliseconds between two comparisons of the same marks.
const REFRESH: u32 = 100;
/// Addresses whose marks are compared for one new host, besides the first choice.
const REFRESHED_AT_ONCE: u32 = 4;
/// Times of comparisons that are remembered.
const REFRESHES: usize = 16;

/// The ports of a pool, as one worker gives them out.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) config: PoolConfig,
    /// Whether the pool is configured. Otherwise it exists until its mappings have ended.
    pub(super) current: bool,
    /// Number of mappings of the pool.
    pub(super) mappings: u32,
    /// Usage figures.
    pub(super) counters: PoolCounters,
    /// Limits the rate of exhaustion reports.
    pub(super) gate: Gate,
    space: Space,
    blocks: Option<Blocks>,
    /// The claims of all workers; none with a single worker.
    claims: Option<PoolClaims>,
    /// Whether this worker reports the totals of the pool.
    has_totals: bool,
    /// The address whose marks were compared last.
    next_refresh: u32,
    /// When marks were compared with the claims, by a hash of address and protocol.
    refreshed: [Option<u32>; REFRESHES],
}

/// Usage figures of a pool.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PoolCounters {
    pub(super) ports: [u64; 3],
    pub(super) hosts: u64,
    pub(super) sessions: u64,
    pub(super) exhausted: u64,
    pub(super) limited: u64,
}

/// What determines the choice of a port.
#[derive(Clone, Copy, Debug)]
pub(super) struct PortPreference {
    pub(super) proto: PortProto,
    /// Source port of the host.
    pub(super) port: u16,
    /// What the random number is a hash of.
    pub(super) seed: u64,
    pub(super) hasher: Hasher,
}

impl PortPreference {
    /// A number that an attacker cannot predict. Only ports that are not preserved need it.
    fn random(&self) -> u64 {
        self.hasher.pseudorandom(self.seed)
    }

    /// The preference for one more port of the same endpoint.
    pub(super) fn next(self) -> PortPreference {
        PortPreference { seed: self.random(), ..self }
    }
}

/// A chosen port, and the ports of the block that the host got for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PortChoice {
    pub(super) port: u16,
    pub(super) block: Option<(u16, u16)>,
}

impl Pool {
    /// Creates the ports of a pool. `claims`: none with a single worker. `has_totals`: usage includes the
    /// totals of the pool, which one worker reports.
    pub(super) fn new(config: PoolConfig, claims: Option<PoolClaims>, has_totals: bool) -> Pool {
        let blocks = config.block().map(|size| Blocks::new(&config, size));
        let mut pool = Pool {
            current: true,
            mappings: 0,
            counters: PoolCounters::default(),
            gate: Gate::default(),
            space: Space::new(&config, blocks.as_ref().map(Blocks::each)),
            blocks,
            claims,
            has_totals,
            next_refresh: 0,
            refreshed: [None; REFRESHES],
            config: config.clone(),
        };
        pool.grow(config);
        pool
    }

    /// Changes to a configuration that [extends](PoolConfig::extends) the present one.
    pub(super) fn grow(&mut self, config: PoolConfig) {
        if self.space.addresses() != config.len() {
            self.space.grow(config.len());
            if let Some(blocks) = &mut self.blocks {
                blocks.grow(config.len());
            }
            if let Some(claims) = &mut self.claims {
                claims.grow(config.len());
            }
        }
        self.config = config;
    }

    /// Usage of the pool.
    pub(super) fn usage(&self) -> PoolUsage {
        let (blocks, blocks_total) = self.blocks_taken_and_total();
        PoolUsage {
            pool: self.config.name().into(),
            hosts: self.counters.hosts,
            ports: self.counters.ports,
            ports_total: self.ports_total(),
            blocks,
            blocks_total,
            sessions: self.counters.sessions,
            exhausted: self.counters.exhausted,
            limited: self.counters.limited,
        }
    }

    /// Number of ports for each protocol.
    fn ports_total(&self) -> u64 {
        if !self.has_totals {
            return 0;
        }
        let each = match &self.blocks {
            Some(blocks) => self.space.whole(Lane::BLOCKS) * blocks.size(),
            None => {
                self.space.whole(Lane::of(PortProto::Udp, 0))
                    + self.space.whole(Lane::of(PortProto::Udp, u32::MAX))
            }
        };
        u64::from(each) * u64::from(self.config.len())
    }

    /// Number of blocks in use by this worker, and number of blocks.
    fn blocks_taken_and_total(&self) -> (u64, u64) {
        let Some(blocks) = &self.blocks else { return (0, 0) };
        let total = u64::from(self.space.whole(Lane::BLOCKS)) * u64::from(self.config.len());
        (blocks.taken(), if self.has_totals { total } else { 0 })
    }

    /// The index of an address for a new host: its first choice, or the next address with a suitable port
    /// left.
    pub(super) fn address_for(&mut self, host: u32, proto: PortProto, port: u16, now: u32) -> Option<u32> {
        let mut found = self.open_address(host, proto, port);
        // Marks of other workers' ports may be out of date: some addresses are looked at again.
        for n in 0..=REFRESHED_AT_ONCE {
            if found.is_some() {
                break;
            }
            let next = (self.next_refresh + 1) % self.config.len();
            let address = if n == 0 { self.config.number_for(host) } else { next };
            self.next_refresh = address;
            if self.refresh(address, proto, now) {
                found = self.open_address(host, proto, port);
            }
        }
        found
    }

    /// The worker that has a port of the pool.
    pub(super) fn owner(&self, outside: Endpoint, proto: PortProto) -> Option<usize> {
        let (address, port) = (self.config.index_of(outside.address)?, u32::from(outside.port));
        let claims = self.claims.as_ref()?;
        match &self.blocks {
            None => claims.owner(address, proto as u32, port),
            Some(blocks) => claims.owner(address, 0, blocks.around(port)?),
        }
    }

    fn open_address(&self, host: u32, proto: PortProto, port: u16) -> Option<u32> {
        let start = self.config.number_for(host);
        if self.blocks.is_some() {
            return self.space.open_address(Lane::BLOCKS, start);
        }
        if self.space.is_open(start, Lane::best(proto, port.into(), self.space.only_low())) {
            return Some(start);
        }
        let lanes = Lane::serving(proto, port.into(), self.space.only_low());
        lanes.into_iter().flatten().find_map(|lane| self.space.open_address(lane, start))
    }

    /// Prefetches what the release of an external endpoint reads.
    pub(super) fn prefetch_free(&self, outside: Endpoint, proto: PortProto) {
        if let Some(address) = self.config.index_of(outside.address) {
            self.space.prefetch(address, proto, outside.port.into());
        }
    }

    /// The external endpoint that a host will probably get.
    #[inline]
    pub(super) fn predict(&self, host: u32, preference: PortPreference) -> Option<Endpoint> {
        let number = self.config.number_for(host);
        let address = self.config.nth(number);
        let port = match self.blocks {
            None => pick_alone(&self.space, number, preference, || None)?,
            Some(_) => preference.port,
        };
        Some(Endpoint { address, port })
    }

    /// Allocates a port of the address of a host. None if no permitted port is left. `below` returns
    /// the external port of the internal port below the source port. `now`: milliseconds.
    pub(super) fn pick(
        &mut self,
        host: &mut PortHolder<'_>,
        preference: PortPreference,
        below: impl Fn() -> Option<u16>,
        now: u32,
    ) -> Option<PortChoice> {
        let (address, proto) = (host.external, preference.proto);
        let picked = match self.pick_claimed(host, preference, &below) {
            Some(picked) => picked,
            None if self.refresh(address, proto, now) => self.pick_claimed(host, preference, &below)?,
            None => return None,
        };
        self.space.take(address, proto, picked.port.into());
        if let Some(ports) = self.counters.ports.get_mut(proto as usize) {
            *ports += 1;
        }
        Some(picked)
    }

    /// A port that this worker has claimed.
    fn pick_claimed(
        &mut self,
        host: &mut PortHolder<'_>,
        preference: PortPreference,
        below: impl Fn() -> Option<u16>,
    ) -> Option<PortChoice> {
        let (address, proto) = (host.external, preference.proto);
        if let Some(blocks) = &mut self.blocks {
            let claims = self.claims.as_ref();
            return pick_in_blocks((&mut self.space, blocks, claims), host, preference, below);
        }
        let Some(claims) = &self.claims else {
            let port = pick_alone(&self.space, address, preference, below)?;
            return Some(PortChoice { port, block: None });
        };
        let wanted = u32::from(preference.port);
        if self.space.is_taken(address, proto, wanted) && claims.is_free(address, proto as u32, wanted) {
            self.space.release(address, proto, wanted);
        }
        for _ in 0..CLAIM_TRIES {
            let port = pick_alone(&self.space, address, preference, &below)?;
            if claims.claim(address, proto as u32, port.into()) {
                return Some(PortChoice { port, block: None });
            }
            self.space.take(address, proto, port.into());
        }
        None
    }

    /// Marks exactly the ports of an address that other workers or forwards have. False if that was done a
    /// short time ago.
    fn refresh(&mut self, address: u32, proto: PortProto, now: u32) -> bool {
        let Some(claims) = &self.claims else { return false };
        let stamp = &mut self.refreshed[(address as usize * 3 + proto as usize) % REFRESHES];
        if stamp.is_some_and(|last| now.wrapping_sub(last) < REFRESH) {
            return false;
        }
        *stamp = Some(now);
        if let Some(blocks) = &self.blocks {
            for block in 0..blocks.each() {
                let is_taken = !claims.is_free(address, 0, block);
                if is_taken != self.space.is_block_taken(address, block) {
                    self.space.set_block(address, block, is_taken);
                }
            }
            return true;
        }
        for port in self.space.ports_of(proto) {
            match (claims.is_free(address, proto as u32, port), self.space.is_taken(address, proto, port)) {
                (true, true) => self.space.release(address, proto, port),
                (false, false) => self.space.take(address, proto, port),
                _ => {}
            }
        }
        true
    }

    /// Frees a port. With `forwarded`, a forward has taken over the port itself. Returns the ports of the
    /// block if the host lost it.
    pub(super) fn free_port(
        &mut self,
        host: &mut PortHolder<'_>,
        proto: PortProto,
        port: u16,
        forwarded: bool,
    ) -> Option<(u16, u16)> {
        let address = host.external;
        if !forwarded {
            self.space.release(address, proto, port.into());
            if let (Some(claims), None) = (&self.claims, &self.blocks) {
                claims.release(address, proto as u32, port.into());
            }
        }
        if let Some(ports) = self.counters.ports.get_mut(proto as usize) {
            *ports = ports.saturating_sub(1);
        }
        let blocks = self.blocks.as_mut()?;
        let block = blocks.around(port.into())?;
        let number = blocks.number(address, block);
        if !blocks.unuse_port(number, host.blocks) {
            return None;
        }
        self.space.set_block(address, block, false);
        if let Some(claims) = &self.claims {
            claims.release(address, 0, block);
        }
        Some(narrow(blocks.ports(block)))
    }

    /// Reserves a port for a forward, or ends the reservation. Does nothing if the port is not in the pool.
    /// False if a host has the port.
    pub(super) fn reserve(&mut self, external: Endpoint, proto: PortProto, reserved: bool) -> bool {
        let Some(address) = self.config.index_of(external.address) else { return true };
        let port = u32::from(external.port);
        if !self.space.has(port) {
            return true;
        }
        // A block belongs to one worker, with its forwarded ports.
        let claims = self.claims.as_ref().filter(|_| self.blocks.is_none());
        match (reserved, self.space.is_free(address, proto, port)) {
            (true, true) => {
                self.space.take(address, proto, port);
                if let Some(claims) = claims {
                    claims.claim_for_forward(address, proto as u32, port);
                }
            }
            (false, false) => {
                self.space.release(address, proto, port);
                if let Some(claims) = claims {
                    claims.release(address, proto as u32, port);
                }
            }
            (true, false) => return false,
            (false, true) => {}
        }
        true
    }
}

/// A free port of an address of a pool without blocks.
fn pick_alone(
    space: &Space,
    address: u32,
    preference: PortPreference,
    below: impl Fn() -> Option<u16>,
) -> Option<u16> {
    if let Some(port) = fitting(space, address, preference, below, |_| true) {
        return Some(port);
    }
    let port = u32::from(preference.port);
    let lanes = Lane::serving(preference.proto, port, space.only_low());
    let random = preference.random();
    let found = lanes.into_iter().flatten().find_map(|lane| space.find_in(address, lane, random, port))?;
    u16::try_from(found).ok()
}

/// The source port itself, or the port after that of the port below, if it is free and `may` returns true.
fn fitting(
    space: &Space,
    address: u32,
    preference: PortPreference,
    below: impl Fn() -> Option<u16>,
    may: impl Fn(u32) -> bool,
) -> Option<u16> {
    let free = |port: u16| may(port.into()) && space.is_free(address, preference.proto, port.into());
    if free(preference.port) {
        return Some(preference.port);
    }
    if preference.proto != PortProto::Udp || preference.port.is_multiple_of(2) {
        return None;
    }
    below().filter(|even| even.is_multiple_of(2)).map(|even| even + 1).filter(|&odd| free(odd))
}

/// A free port of the host's blocks, otherwise of a new block.
fn pick_in_blocks(
    (space, blocks, claims): (&mut Space, &mut Blocks, Option<&PoolClaims>),
    host: &mut PortHolder<'_>,
    preference: PortPreference,
    below: impl Fn() -> Option<u16>,
) -> Option<PortChoice> {
    let PortHolder { number, external: address, .. } = *host;
    let its_own =
        |port| blocks.around(port).is_some_and(|block| blocks.has(number, blocks.number(address, block)));
    let mut found = fitting(space, address, preference, &below, its_own).map(u32::from);
    if found.is_none() {
        let searched = blocks.searched(*host.blocks);
        found =
            searched.filter_map(|block| random_of(space, address, preference, blocks.ports(block))).next();
    }
    if let Some(port) = found {
        blocks.use_port(blocks.number(address, blocks.around(port)?));
        return Some(PortChoice { port: u16::try_from(port).ok()?, block: None });
    }
    let around = blocks.around(preference.port.into());
    let random = preference.random();
    // Taken ports of a free block are forwarded. If all are, the other free blocks are tried in their order.
    let mut from = None;
    let (block, ports, port) = loop {
        let block = match from {
            None => space.find_block(address, blocks.each(), around, random)?,
            Some(from) => space.find_block_from(address, blocks.each(), from)?,
        };
        let ports = blocks.ports(block);
        let within = |port| (ports.0..=ports.1).contains(&port);
        let fitting = fitting(space, address, preference, &below, within).map(u32::from);
        let Some(port) = fitting.or_else(|| random_of(space, address, preference, ports)) else {
            from = Some(from.map_or(0, |_| block + 1));
            continue;
        };
        if claims.is_none_or(|claims| claims.claim(address, 0, block)) {
            break (block, ports, port);
        }
        space.set_block(address, block, true);
    };
    let whole = blocks.number(address, block);
    space.set_block(address, block, true);
    blocks.take(number, whole, host.blocks);
    blocks.use_port(whole);
    Some(PortChoice { port: u16::try_from(port).ok()?, block: Some(narrow(ports)) })
}

fn random_of(space: &Space, address: u32, preference: PortPreference, range: (u32, u32)) -> Option<u32> {
    space.find(address, preference.proto, range, within(range, preference.random()), preference.port.into())
}

/// Converts a range of ports to 16 bits.
fn narrow((first, last): (u32, u32)) -> (u16, u16) {
    (first as u16, last as u16)
}
