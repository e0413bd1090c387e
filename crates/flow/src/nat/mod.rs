//! Network address translation with pools of external addresses, and static forwards.
//!
//! Theory of operation. A *mapping* says that an end inside (protocol, address, port) is known outside as another end,
//! whoever it talks to: endpoint-independent mapping (RFC 4787 REQ-1). Sessions hold mappings: [`Nat::map`] and
//! [`Nat::map_inbound`] give a mapping to the session that is being opened, [`Nat::release`] takes it back when the session
//! has ended, and a mapping that no session holds is gone, its port free for others. So timeouts are those of sessions,
//! and nothing here needs a timer. Only forwards are held by the configuration itself.
//!
//! Each worker has a [`Nat`] of its own with mappings of the hosts and ports that are its own ([`NatConfig::opening_worker`],
//! [`NatConfig::owner_worker`] tell which); nothing is shared but the immutable [`NatConfig`]. When that changes
//! ([`Nat::adopt`]), pools that still say the same keep what they have given out. Mappings of others *end*: they serve
//! nobody new, their ports are given to nobody else while sessions hold them, and those sessions are told so when they
//! ask ([`Nat::is_live`]), which is when their next packet comes; nothing is walked.
//!
//! Parts: `config` what operators say, `place` which worker, `space` and `sheet` which ports are free, `blocks` blocks of
//! ports, `pool` which port a host gets, `hosts` and `mappings` what there is, `index` tables, `ahead` what a vector will want,
//! `events` what to tell.

mod adopt;
mod ahead;
mod blocks;
mod config;
mod events;
mod hosts;
mod index;
mod mappings;
mod open;
mod place;
mod pool;
mod sheet;
mod space;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;

use bytemuck::{Pod, Zeroable};

pub use ahead::NatPrefetcher;
pub use config::{
    Endpoint, Filtering, ForwardConfig, MAX_FORWARDS, MAX_POOL_ADDRESSES, MAX_POOLS, NatConfig, PoolConfig,
    PoolId, PortProto,
};
pub use events::{NatEvent, NatEventKind, PoolUsage, PortBlock};

use crate::Key;
use events::Events;
use hosts::Hosts;
use index::{Hasher, Random};
use mappings::{Mapping, Mappings, Nature};
use open::Asking;
use pool::{Pool, Wish};

/// Number of a mapping in its worker's [`Nat`]. Given out again after the mapping is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MappingId(pub u32);

/// Where a host inside is: what a frame to it needs.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct HostLocation {
    /// Its Ethernet address, or its router's.
    pub mac: [u8; 6],
    /// The port that its packets come in by.
    pub in_port: u16,
}

/// What the source of a session becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutboundMapping {
    /// The mapping, which the session now holds.
    pub id: MappingId,
    /// The new source address, as on the wire.
    pub address: [u8; 4],
    /// The new source port, or identifier of an ICMP query, as on the wire; zeros for protocols without ports.
    pub port: [u8; 2],
}

/// What the destination of a session from outside becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboundMapping {
    /// The mapping, which the session now holds.
    pub id: MappingId,
    /// The new destination address, as on the wire.
    pub address: [u8; 4],
    /// The new destination port, or identifier of an ICMP reply, as on the wire.
    pub port: [u8; 2],
    /// Where the host is, if it has been seen.
    pub inside: Option<HostLocation>,
}

/// Why a source is not translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NatError {
    /// To be dropped as `nat-exhausted`, and answered (RFC 5508 REQ-8).
    #[error("no external port is left for the host")]
    Exhausted,
    /// To be dropped as `nat-limit`, and answered likewise.
    #[error("the host has as many sessions as it may have")]
    Limit,
    /// To be dropped as `nat-failed`: not IPv4, a reply to an ICMP query that nobody made, or other ICMP.
    #[error("what cannot be translated by a pool")]
    Unsupported,
}

/// Why a packet from outside is let in to nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InboundError {
    /// To be dropped as `nat-unmapped`.
    #[error("nothing is mapped there")]
    Unmapped,
    /// To be dropped as `nat-filtered`.
    #[error("the pool's filtering lets nothing in from there")]
    Filtered,
}

/// NAT, as one worker has it.
#[derive(Debug)]
pub struct Nat {
    config: Arc<NatConfig>,
    worker: usize,
    workers: usize,
    hasher: Hasher,
    /// What ports follow from that are given out by chance.
    secret: u64,
    /// Pools by place, which mappings keep; those that are not in the configuration until their mappings have ended.
    pools: Vec<Option<Pool>>,
    /// Places by [`PoolId`].
    places: Vec<u16>,
    /// Whether there are pools that are not in the configuration: ports may then be taken that no sheet knows of.
    leftovers: bool,
    mappings: Mappings,
    hosts: Hosts,
    forwards: Vec<adopt::Forward>,
    events: Events,
}

impl Nat {
    /// The NAT of `worker` of `workers`, which have the same `seed`, for as many sessions as the worker may have.
    ///
    /// # Errors
    /// The system's, if there is not as much address space.
    pub fn new(
        config: Arc<NatConfig>,
        sessions: usize,
        worker: usize,
        workers: usize,
        seed: u64,
    ) -> io::Result<Nat> {
        let hasher = Hasher::new(seed);
        let mut nat = Nat {
            config: Arc::default(),
            worker,
            workers,
            hasher,
            secret: Random::new(!seed ^ ((worker as u64) << 32)).next(),
            pools: Vec::new(),
            places: Vec::new(),
            leftovers: false,
            // One more than there are sessions: a mapping is made before its session is found to have no room.
            mappings: Mappings::new(hasher, sessions + 1, MAX_FORWARDS)?,
            hosts: Hosts::new(sessions + 1)?,
            forwards: Vec::new(),
            events: Events::new(),
        };
        nat.adopt(config);
        Ok(nat)
    }

    /// The configuration.
    pub fn config(&self) -> &Arc<NatConfig> {
        &self.config
    }

    /// What a port is picked by for an inside. Where chance has a say, it is a secret that it follows from, so that it can be
    /// known beforehand where the port will be looked for.
    fn wish(&self, proto: PortProto, source: Endpoint) -> Wish {
        let end = u64::from(source.address) << 32 | u64::from(source.port) << 16 | proto as u64;
        Wish { proto, port: source.port, random: Random::new(self.secret ^ end).next() }
    }

    /// Translates the source of a packet that opens a session, of a host that is this worker's. The session then holds the
    /// mapping, and gives it back by [`Nat::release`] with the same key.
    ///
    /// `key` is as the packet came in, but to whom it is really sent if its destination is translated as well: that is who
    /// is let in then. `inside` is where it came from, `now` is the worker's clock in milliseconds.
    pub fn map(
        &mut self,
        key: &Key,
        pool: PoolId,
        inside: HostLocation,
        now: u32,
    ) -> Result<OutboundMapping, NatError> {
        let pool = *self.places.get(usize::from(pool.0)).ok_or(NatError::Unsupported)?;
        let (source, remote) = (place::source(key), place::destination(key));
        let proto = asked_of(key)?;
        let asking = Asking { pool, source, remote: remote.address, inside, now };
        let hash = self.mappings.inside_hash(pool, key.proto, source);
        let known = self.mappings.at_inside(hash, pool, key.proto, source);
        let known = known.or_else(|| self.forward_from(pool, proto?, source));
        let (id, outside) = match (known, proto) {
            (Some(id), _) => (id, self.again(id, asking)?),
            (None, Some(proto)) => self.afresh(proto, asking, hash)?,
            (None, None) => self.portless(key.proto, asking, hash)?,
        };
        Ok(OutboundMapping {
            id: MappingId(id),
            address: outside.address.to_be_bytes(),
            port: outside.port.to_be_bytes(),
        })
    }

    /// Finds who inside a packet from outside is for that opens a session, if filtering lets it in. The session then
    /// holds the mapping, and gives it back by [`Nat::release`] with the same key.
    ///
    /// `key` is as the packet came in; NAT must [claim](NatConfig::is_nat_destination) it, and it must be this worker's.
    pub fn map_inbound(&mut self, key: &Key) -> Result<InboundMapping, InboundError> {
        let (id, remote) = (self.stands_for(key)?, place::source(key));
        self.mappings.hold(id, remote.address);
        let mapping = self.mappings.get(id).ok_or(InboundError::Unmapped)?;
        let (address, port) = (mapping.internal.to_be_bytes(), mapping.internal_port.to_be_bytes());
        Ok(InboundMapping { id: MappingId(id), address, port, inside: self.host_location(MappingId(id)) })
    }

    /// The address inside that [`Nat::map_inbound`] would send a packet with this key to; none, if it would let it in to
    /// nobody. Of a forward it is told whosever the host is. Changes nothing.
    pub fn inbound_address(&self, key: &Key) -> Option<[u8; 4]> {
        let proto = PortProto::of(key.proto).filter(|_| key.is_ip4())?;
        if let Some(n) = self.config.forward_at(proto, place::destination(key)) {
            return Some(self.config.forwards().get(n)?.internal().address.to_be_bytes());
        }
        let id = self.stands_for(key).ok()?;
        Some(self.mappings.get(id)?.internal.to_be_bytes())
    }

    /// Whether a mapping or forward of this worker's stands for where a packet goes, whoever may send there.
    pub fn is_mapped(&self, key: &Key) -> bool {
        self.standing(key).is_ok()
    }

    /// The mapping by which a packet from outside gets in.
    fn stands_for(&self, key: &Key) -> Result<u32, InboundError> {
        let id = self.standing(key)?;
        if self.lets_in(id, place::source(key).address) { Ok(id) } else { Err(InboundError::Filtered) }
    }

    fn standing(&self, key: &Key) -> Result<u32, InboundError> {
        let outside = place::destination(key);
        match PortProto::of(key.proto) {
            _ if !key.is_ip4() => return Err(InboundError::Unmapped),
            None => return Err(InboundError::Unmapped),
            // What asks a pool's address is for nobody inside.
            Some(PortProto::Icmp) if key.asks != Key::BY_DESTINATION => return Err(InboundError::Unmapped),
            Some(_) => {}
        }
        let id = self.forward_at(key.proto, outside).or_else(|| self.mappings.at_outside(key.proto, outside));
        id.filter(|&id| self.is_live(MappingId(id))).ok_or(InboundError::Unmapped)
    }

    /// The mapping of the forward of an external end, if its host inside is this worker's.
    fn forward_at(&self, proto: u8, outside: Endpoint) -> Option<u32> {
        let n = self.config.forward_at(PortProto::of(proto)?, outside)?;
        self.forwards.get(n)?.id
    }

    /// Whether a remote address of no session may send to a mapping.
    fn lets_in(&self, id: u32, remote: u32) -> bool {
        let Some(mapping) = self.mappings.get(id) else { return false };
        if matches!(mapping.nature(), Nature::Forward(_)) {
            return true;
        }
        match self
            .pools
            .get(usize::from(mapping.pool))
            .and_then(Option::as_ref)
            .map(|pool| pool.config.filtering())
        {
            Some(Filtering::EndpointIndependent) => true,
            Some(Filtering::AddressDependent) => self.mappings.knows(id, remote),
            // What comes from an address and port that there is a session with is found by that.
            Some(Filtering::AddressAndPortDependent) | None => false,
        }
    }

    /// Whether a mapping that a session holds is still what the configuration asks for. If not, the session is to end,
    /// and its packet to be treated as a new one.
    pub fn is_live(&self, id: MappingId) -> bool {
        let Some(mapping) = self.mappings.get(id.0).filter(|mapping| !mapping.has_ended()) else {
            return false;
        };
        matches!(mapping.nature(), Nature::Forward(_))
            || self
                .pools
                .get(usize::from(mapping.pool))
                .and_then(Option::as_ref)
                .is_some_and(|pool| pool.current)
    }

    /// Whether a mapping is a static forward's.
    pub fn is_forward(&self, id: MappingId) -> bool {
        self.mappings.get(id.0).is_some_and(|mapping| matches!(mapping.nature(), Nature::Forward(_)))
    }

    /// Where the host inside of a mapping is, if it has been seen.
    pub fn host_location(&self, id: MappingId) -> Option<HostLocation> {
        match self.mappings.get(id.0)?.nature() {
            Nature::Of(host) => Some(self.hosts.get(host)?.inside),
            Nature::Forward(n) => self.forwards.get(n as usize)?.inside,
            Nature::Portless => None,
        }
    }

    /// Says where the host inside of a mapping is, from a packet that it sent.
    pub fn learn(&mut self, id: MappingId, inside: HostLocation) {
        match self.mappings.get(id.0).map(Mapping::nature) {
            Some(Nature::Of(host)) => {
                if let Some(host) = self.hosts.get_mut(host) {
                    host.inside = inside;
                }
            }
            Some(Nature::Forward(n)) => {
                if let Some(forward) = self.forwards.get_mut(n as usize) {
                    forward.inside = Some(inside);
                }
            }
            Some(Nature::Portless) | None => {}
        }
    }

    /// Whether there are no mappings.
    pub fn is_empty(&self) -> bool {
        self.mappings.len() == 0
    }

    /// How many mappings there are; those of forwards are among them.
    pub fn mappings(&self) -> usize {
        self.mappings.len()
    }

    /// The next thing to tell the operator.
    pub fn event(&mut self) -> Option<NatEvent> {
        self.events.pop()
    }

    /// How many events came when too many waited.
    pub fn lost_events(&self) -> u64 {
        self.events.lost()
    }

    /// How much of each pool this worker uses, in the order of the configuration.
    pub fn usage(&self) -> Vec<PoolUsage> {
        let pools = self.places.iter().filter_map(|&place| self.pools.get(usize::from(place))?.as_ref());
        pools.map(Pool::usage).collect()
    }
}

/// The protocol of a packet from inside that asks for an answer; none: it has no ports.
fn asked_of(key: &Key) -> Result<Option<PortProto>, NatError> {
    match PortProto::of(key.proto) {
        _ if !key.is_ip4() => Err(NatError::Unsupported),
        Some(PortProto::Icmp) if key.asks != Key::BY_SOURCE => Err(NatError::Unsupported),
        proto => Ok(proto),
    }
}
