//! Packets and sessions as functions see them.

mod constant;
mod edit;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;

use mmb_flow::{Direction, FlowRef, Key, SessionId, Table};
use mmb_packet::{Kind, Meta, PacketBuf, TailSegments};

pub use constant::ConstantRewrite;

/// A packet in a chain.
#[derive(Debug)]
pub struct Packet<'a> {
    /// The contiguous beginning of the frame. A function that changes headers keeps checksums right:
    /// [`Packet::write_ip`] and [`Packet::write_l4`] do so.
    pub head: &'a mut [u8],
    /// The other segments of the frame. None if `head` is the whole frame.
    pub tail: Option<&'a dyn TailSegments>,
    /// The result of the parser.
    pub meta: &'a mut Meta,
    /// Length of the whole frame in bytes.
    pub len: u32,
    /// Bytes of payload of each segment of a large frame ([`mmb_packet::LargeFrame`]) but the last one. 0:
    /// the frame is an ordinary one.
    pub segment_size: u16,
    /// The port at which the packet came in.
    pub in_port: u16,
    /// Forward if the initiator of the session sent the packet.
    pub direction: Direction,
    /// The session of the packet.
    pub session: SessionId,
}

impl Packet<'_> {
    /// Returns session and direction.
    #[inline(always)]
    pub fn flow_ref(&self) -> FlowRef {
        FlowRef::new(self.session, self.direction)
    }

    /// Returns the lower eight TCP flags as in the header (RFC 9293, 3.1: FIN is the lowest bit). 0 if the
    /// packet is not TCP.
    #[inline(always)]
    pub fn tcp_flags(&self) -> u8 {
        match self.head.get(usize::from(self.meta.l4_off) + 13) {
            Some(&flags) if self.meta.kind.l4() == Kind::TCP => flags,
            _ => 0,
        }
    }

    /// Returns the frame from the transport header on, as far as it is contiguous.
    #[inline]
    pub fn l4(&self) -> &[u8] {
        self.head.get(usize::from(self.meta.l4_off)..).unwrap_or(&[])
    }

    /// Returns the number of bytes behind the transport header, up to the end of the IP packet. For protocols
    /// other than TCP and UDP, the bytes behind the IP header count.
    #[inline]
    pub fn l4_payload_len(&self) -> u32 {
        let headers = usize::from(self.meta.l4_off) + self.l4_header_len();
        u32::from(self.meta.end).saturating_sub(headers as u32)
    }

    /// Returns the length of the transport header. 0: it has none that is known.
    pub(crate) fn l4_header_len(&self) -> usize {
        match self.meta.kind.l4() {
            Kind::TCP => self.l4().get(12).map_or(0, |offset| usize::from(offset >> 4) * 4),
            Kind::UDP => 8,
            _ => 0,
        }
    }

    /// Iterates over all segments of the frame in order, without a copy. The first one is `head`.
    pub fn segments(&self) -> impl Iterator<Item = &[u8]> {
        let tail = self.tail;
        let rest = (0..).map_while(move |number| tail?.segment(number));
        std::iter::once(&*self.head).chain(rest)
    }

    /// Iterates over the payload of the transport protocol in order, without a copy. Padding behind the IP
    /// packet is left out. Slices are not empty.
    pub fn payload(&self) -> impl Iterator<Item = &[u8]> {
        let mut skip = usize::from(self.meta.l4_off) + self.l4_header_len();
        let mut left = self.l4_payload_len() as usize;
        self.segments()
            .map(move |segment| {
                let from = skip.min(segment.len());
                let to = (from + left).min(segment.len());
                (skip, left) = (skip - from, left - (to - from));
                &segment[from..to]
            })
            .filter(|slice| !slice.is_empty())
    }
}

/// A packet that is about to open a session.
pub struct OpeningPacket<'a> {
    /// The packet, before any translation and any chain.
    pub packet: &'a mut dyn PacketBuf,
    /// The result of the parser.
    pub meta: &'a mut Meta,
    /// The key of the packet.
    pub key: &'a Key,
    /// The port at which the packet came in.
    pub in_port: u16,
    /// Milliseconds of the worker's clock; wraps.
    pub now: u32,
    /// What the engine shall translate for the session.
    pub translation: TranslationRequest,
}

/// A translation that functions request for a session. Later functions of the chain overwrite earlier ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TranslationRequest {
    /// The source is translated to an address and port of this NAT pool.
    pub pool: Option<Arc<str>>,
    /// The destination is translated to this address, and to this port if there is one.
    pub destination: Option<(IpAddr, Option<u16>)>,
    /// The initial sequence number that a function has sent to the initiator in place of the responder (TCP).
    /// The engine translates the responder's sequence numbers to follow it.
    pub proxied_isn: Option<u32>,
    /// Most bytes of the initiator that go to the responder before the engine sees them: the function that
    /// sets `proxied_isn` sends them itself.
    pub early_bytes: u32,
}

/// A packet of a session that enters a chain, to read.
#[derive(Clone, Copy, Debug)]
pub struct PacketView<'a> {
    /// The contiguous beginning of the frame, as it came in.
    pub head: &'a [u8],
    /// The result of the parser.
    pub meta: &'a Meta,
    /// Forward if the initiator of the session sent the packet.
    pub direction: Direction,
}

/// A session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// The session's number at its worker.
    pub id: SessionId,
    /// The key of forward packets at the function's place: before or after translation.
    pub key: Key,
    /// The key of forward packets as they come in.
    pub ingress_key: Key,
    /// The key of forward packets as they go out.
    pub egress_key: Key,
    /// When the session began, in milliseconds of the worker's clock; wraps.
    pub created: u32,
    /// The time now, in milliseconds of the worker's clock; wraps.
    pub now: u32,
    /// The port at which the first packet came in.
    pub in_port: u16,
    /// Distinguishes the session from earlier and later ones with the same number.
    pub uid: u32,
    /// Packets so far, by direction.
    pub packets: [u64; 2],
    /// Bytes of frames so far, by direction.
    pub bytes: [u64; 2],
}

impl SessionInfo {
    /// A session of a table without translation.
    pub(crate) fn untranslated(table: &Table, id: SessionId, now: u32) -> SessionInfo {
        let flows =
            [Direction::Forward, Direction::Reverse].map(|direction| table.flow(FlowRef::new(id, direction)));
        let (key, common) = (flows[0].key(), table.session(id));
        let counts = flows.map(|flow| flow.counts());
        SessionInfo {
            id,
            key,
            ingress_key: key,
            egress_key: key,
            created: common.created,
            now,
            in_port: common.in_ports()[0],
            uid: table.uid(id),
            packets: counts.map(|(packets, _)| packets),
            bytes: counts.map(|(_, bytes)| bytes),
        }
    }
}
