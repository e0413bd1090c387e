//! Values that callers of NAT exchange with it.

use bytemuck::{Pod, Zeroable};

/// Number of a mapping in its worker's [`super::Nat`]. Numbers are reused after a mapping is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MappingId(pub u32);

/// Link-layer location of an internal host: what a frame to the host needs.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct HostLocation {
    /// Ethernet address of the host or of its router.
    pub mac: [u8; 6],
    /// Number of the port on which packets of the host arrive.
    pub in_port: u16,
}

impl HostLocation {
    /// The location of the host that has sent a frame.
    #[inline]
    pub fn of_frame(frame: &[u8], in_port: u16) -> HostLocation {
        // In one word: a load waits for stores of its parts.
        let word =
            frame.get(6..).and_then(<[u8]>::first_chunk::<8>).map_or(0, |bytes| u64::from_le_bytes(*bytes));
        bytemuck::cast((word & (u64::MAX >> u16::BITS) | u64::from(in_port.to_le()) << 48).to_le_bytes())
    }
}

/// The external endpoint of a session from inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutboundMapping {
    /// The mapping. The session now holds it.
    pub id: MappingId,
    /// New source address, in network byte order.
    pub address: [u8; 4],
    /// New source port or ICMP query identifier, in network byte order; zero for protocols without ports.
    pub port: [u8; 2],
}

/// The internal endpoint of a session from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboundMapping {
    /// The mapping. The session now holds it.
    pub id: MappingId,
    /// New destination address, in network byte order.
    pub address: [u8; 4],
    /// New destination port or ICMP identifier, in network byte order.
    pub port: [u8; 2],
    /// Location of the host, if it is known.
    pub location: Option<HostLocation>,
}

/// Why the source of a session cannot be translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NatError {
    /// Drop reason `nat-exhausted`. The sender gets an ICMP error (RFC 5508 REQ-8).
    #[error("no external port is left for the host")]
    Exhausted,
    /// Drop reason `nat-limit`. The sender gets an ICMP error.
    #[error("the host has reached its limit of sessions")]
    Limit,
    /// Drop reason `nat-failed`: not IPv4, an ICMP reply without a query, or another ICMP type.
    #[error("a pool cannot translate this packet")]
    Unsupported,
}

/// Why a packet from outside is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InboundError {
    /// Drop reason `nat-unmapped`.
    #[error("no mapping exists for the destination")]
    Unmapped,
    /// Drop reason `nat-filtered`.
    #[error("the filtering of the pool does not admit the source")]
    Filtered,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_location_of_a_host_is_the_source_of_its_frame() {
        let frame: [u8; 20] = std::array::from_fn(|at| at as u8);
        let location = HostLocation { mac: [6, 7, 8, 9, 10, 11], in_port: 0x1234 };
        assert_eq!(HostLocation::of_frame(&frame, 0x1234), location);
        assert_eq!(
            HostLocation::of_frame(&frame[..13], 5),
            HostLocation { in_port: 5, ..Default::default() }
        );
    }
}
