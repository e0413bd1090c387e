//! Packets and sessions as functions see them.

use std::net::IpAddr;
use std::sync::Arc;

use mmb_flow::{Direction, FlowRef, Key, SessionId};
use mmb_packet::{Kind, Meta, PacketBuf};

/// A packet on its way through a chain.
#[derive(Debug)]
pub struct Packet<'a> {
    /// The contiguous beginning of the frame. Who changes headers keeps checksums right ([`mmb_packet::checksum`]).
    pub head: &'a mut [u8],
    /// What the parse found.
    pub meta: &'a mut Meta,
    /// Length of the whole frame in bytes.
    pub len: u32,
    /// The port by which it came in.
    pub in_port: u16,
    /// Whether the session's opener sent it, or the other side.
    pub direction: Direction,
    /// The session it belongs to.
    pub session: SessionId,
}

impl Packet<'_> {
    /// Session and direction.
    #[inline(always)]
    pub fn found(&self) -> FlowRef {
        FlowRef::new(self.session, self.direction)
    }

    /// The lower eight TCP flags, as they stand in the header (RFC 9293, 3.1: FIN is the lowest); 0 if it is not TCP.
    #[inline(always)]
    pub fn tcp_flags(&self) -> u8 {
        match self.head.get(usize::from(self.meta.l4_off) + 13) {
            Some(&flags) if self.meta.kind.l4() == Kind::TCP => flags,
            _ => 0,
        }
    }

    /// The frame from the transport header on, as far as it is contiguous.
    #[inline]
    pub fn l4(&self) -> &[u8] {
        self.head.get(usize::from(self.meta.l4_off)..).unwrap_or(&[])
    }

    /// Bytes behind the transport header, up to the end of the IP packet; of other protocols than TCP and UDP, those behind
    /// the IP header.
    #[inline]
    pub fn l4_payload_len(&self) -> u32 {
        let header = match self.meta.kind.l4() {
            Kind::TCP => self.l4().get(12).map_or(0, |offset| u32::from(offset >> 4) * 4),
            Kind::UDP => 8,
            _ => 0,
        };
        u32::from(self.meta.end).saturating_sub(u32::from(self.meta.l4_off) + header)
    }
}

/// A packet that is about to open a session.
pub struct OpeningPacket<'a> {
    /// The packet, with no translation and no chain applied to it.
    pub packet: &'a mut dyn PacketBuf,
    /// What its parse found.
    pub meta: &'a mut Meta,
    /// Its key.
    pub key: &'a Key,
    /// The port by which it came in.
    pub in_port: u16,
    /// Milliseconds; wraps.
    pub now: u32,
    /// What the functions want done for the session.
    pub translation: TranslationRequest,
}

/// What functions want done for a session: later ones on the way overwrite what earlier ones wish.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TranslationRequest {
    /// Its source is translated to an address and port of this NAT pool.
    pub pool: Option<Arc<str>>,
    /// Its destination is translated to this address, and port if there is one.
    pub destination: Option<(IpAddr, Option<u16>)>,
    /// The first sequence number that the opener has been told is the answering side's (TCP): the numbers of the side that
    /// really answers are translated to follow it.
    pub proxied_isn: Option<u32>,
}

/// The packet that shows a session, or one that it has already, to a chain.
#[derive(Clone, Copy, Debug)]
pub struct PacketView<'a> {
    /// Its contiguous beginning, as it came in.
    pub head: &'a [u8],
    /// What its parse found.
    pub meta: &'a Meta,
    /// Who sent it.
    pub direction: Direction,
}

/// A session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its number with its worker.
    pub id: SessionId,
    /// The key of its opener's packets where the function stands: before or after translation.
    pub key: Key,
    /// That key as the packets come in.
    pub ingress_key: Key,
    /// That key as they go out.
    pub egress_key: Key,
    /// When it began; milliseconds of the worker's clock, wraps.
    pub created: u32,
    /// The time, likewise.
    pub now: u32,
    /// The port by which its first packet came in.
    pub in_port: u16,
    /// Tells it from earlier and later sessions with the same number.
    pub uid: u32,
    /// Packets so far, by direction.
    pub packets: [u64; 2],
    /// Bytes of their frames.
    pub bytes: [u64; 2],
}
