//! Sessions that are opened from outside.

use super::config::{Endpoint, Filtering, PortProto};
use super::mappings::MappingKind;
use super::ownership::{destination, source};
use super::state::Nat;
use super::types::{InboundError, InboundMapping, MappingId};
use crate::Key;

impl Nat {
    /// Returns the internal endpoint for a packet from outside that opens a session, if the filtering admits
    /// it.
    ///
    /// The session then holds the mapping, and returns it with [`Nat::release`] and the same key. `key` is
    /// the key of the packet as received. It must be a [NAT
    /// destination](super::NatConfig::is_nat_destination) that this worker owns.
    ///
    /// # Errors
    /// [`InboundError`].
    pub fn map_inbound(&mut self, key: &Key) -> Result<InboundMapping, InboundError> {
        let (id, remote) = (self.admitted_mapping(key)?, source(key));
        self.mappings.hold(id, remote.address);
        let mapping = self.mappings.get(id).ok_or(InboundError::Unmapped)?;
        let (inside, _) = self.endpoints_of(mapping).ok_or(InboundError::Unmapped)?;
        let (address, port) = (inside.address.to_be_bytes(), inside.port.to_be_bytes());
        Ok(InboundMapping { id: MappingId(id), address, port, location: self.host_location(MappingId(id)) })
    }

    /// The internal address to which [`Nat::map_inbound`] would send a packet with this key; none if it would
    /// not admit the packet. Changes nothing. For forwards, the host may belong to another worker.
    pub fn inbound_address(&self, key: &Key) -> Option<[u8; 4]> {
        let proto = PortProto::of(key.proto).filter(|_| key.is_ip4())?;
        if let Some(n) = self.config.forward_at(proto, destination(key)) {
            return Some(self.config.forwards().get(n)?.internal().address.to_be_bytes());
        }
        let id = self.admitted_mapping(key).ok()?;
        let (inside, _) = self.endpoints_of(self.mappings.get(id)?)?;
        Some(inside.address.to_be_bytes())
    }

    /// Whether this worker has a mapping or forward for the destination of a packet. Filtering is not
    /// considered.
    pub fn is_mapped(&self, key: &Key) -> bool {
        self.live_mapping(key).is_ok()
    }

    /// The mapping for the destination of a packet, if the filtering admits the source.
    fn admitted_mapping(&self, key: &Key) -> Result<u32, InboundError> {
        let id = self.live_mapping(key)?;
        if self.admits(id, source(key).address) { Ok(id) } else { Err(InboundError::Filtered) }
    }

    /// The mapping for the destination of a packet.
    fn live_mapping(&self, key: &Key) -> Result<u32, InboundError> {
        let outside = destination(key);
        match PortProto::of(key.proto) {
            _ if !key.is_ip4() => return Err(InboundError::Unmapped),
            None => return Err(InboundError::Unmapped),
            // An ICMP query to an address of a pool is not for an internal host.
            Some(PortProto::Icmp) if key.asks != Key::BY_DESTINATION => return Err(InboundError::Unmapped),
            Some(_) => {}
        }
        let id = self.forward_mapping(key.proto, outside).or_else(|| self.at_outside(key.proto, outside));
        id.filter(|&id| self.is_live(MappingId(id))).ok_or(InboundError::Unmapped)
    }

    /// The mapping of the forward of an external endpoint, if this worker owns the internal host.
    fn forward_mapping(&self, proto: u8, outside: Endpoint) -> Option<u32> {
        let n = self.config.forward_at(PortProto::of(proto)?, outside)?;
        self.forwards.get(n)?.id
    }

    /// Whether the filtering of a mapping admits a remote address that has no session.
    fn admits(&self, id: u32, remote: u32) -> bool {
        let Some(mapping) = self.mappings.get(id) else { return false };
        if matches!(mapping.kind(), MappingKind::Forward(_)) {
            return true;
        }
        match self.pool_of_mapping(mapping).map(|pool| pool.config.filtering()) {
            Some(Filtering::EndpointIndependent) => true,
            Some(Filtering::AddressDependent) => self.mappings.has_remote(id, remote),
            // A packet from an address and port with a session is found in the session table.
            Some(Filtering::AddressAndPortDependent) | None => false,
        }
    }
}
