//! Headers of packets (RFC 9000, 17; RFC 8999).

use super::QuicError;
use crate::cursor::Cursor;

/// Most bytes of a connection id of versions 1 and 2 (RFC 9000, 17.2).
pub const MOST_ID: usize = 20;
/// The bit of the first byte that packets behind the handshake do not have (RFC 8999, 5.1).
pub const LONG_HEADER: u8 = 0x80;

/// A version of QUIC whose Initial packets can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// RFC 9000.
    V1,
    /// RFC 9369.
    V2,
}

impl Version {
    fn of(number: u32) -> Option<Version> {
        match number {
            1 => Some(Version::V1),
            0x6b33_43cf => Some(Version::V2),
            _ => None,
        }
    }
}

/// A connection id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionId {
    bytes: [u8; MOST_ID],
    len: u8,
}

impl ConnectionId {
    /// Makes a connection id of at most [`MOST_ID`] bytes; None for more.
    pub fn new(id: &[u8]) -> Option<ConnectionId> {
        let mut bytes = [0; MOST_ID];
        bytes.get_mut(..id.len())?.copy_from_slice(id);
        Some(ConnectionId { bytes, len: id.len() as u8 })
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&[])
    }
}

/// An Initial packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Initial {
    /// Its version.
    pub version: Version,
    /// The connection id of its receiver.
    pub destination: ConnectionId,
    /// Its place in the datagram.
    pub range: std::ops::Range<usize>,
    /// Where the protected packet number begins in the datagram.
    pub number_at: usize,
}

/// A packet of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// An Initial packet.
    Initial(Initial),
    /// A packet with data in front of the handshake's end (0-RTT).
    Early,
    /// A packet of the handshake.
    Handshake,
    /// A server asks for another Initial packet, with a token.
    Retry,
    /// A server names the versions that it has.
    VersionNegotiation,
    /// A packet of a version that is not known. The rest of the datagram cannot be read.
    UnknownVersion(u32),
    /// A packet behind the handshake, or something else than QUIC. It takes the rest of the datagram.
    Short,
}

/// The packets of a datagram (RFC 9000, 12.2).
#[derive(Clone, Debug)]
pub struct Packets<'a> {
    datagram: &'a [u8],
    at: usize,
}

/// Iterates over the packets of a datagram. Behind an error there is none.
pub fn packets(datagram: &[u8]) -> Packets<'_> {
    Packets { datagram, at: 0 }
}

impl Iterator for Packets<'_> {
    type Item = Result<Packet, QuicError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.datagram.get(self.at..).filter(|rest| !rest.is_empty())?;
        let start = self.at;
        self.at = self.datagram.len();
        let packet = packet(rest, start).map_err(|_| QuicError::Malformed);
        Some(packet.map(|(packet, len)| {
            self.at = len.map_or(self.datagram.len(), |len| start + len);
            packet
        }))
    }
}

/// Reads the packet at the beginning of some bytes of a datagram, which begin at `start`. Returns its length
/// as well; None: it has all bytes.
fn packet(bytes: &[u8], start: usize) -> Result<(Packet, Option<usize>), crate::HelloError> {
    let mut cursor = Cursor(bytes);
    let first = cursor.number(1)? as u8;
    if first & LONG_HEADER == 0 {
        return Ok((Packet::Short, None));
    }
    // Clients may clear the bit that is fixed in RFC 9000 (RFC 9287, 3).
    let number = cursor.number(4)? as u32;
    if number == 0 {
        return Ok((Packet::VersionNegotiation, None));
    }
    let Some(version) = Version::of(number) else { return Ok((Packet::UnknownVersion(number), None)) };
    let destination = ConnectionId::new(cursor.vector(1)?.0).ok_or(crate::HelloError::Malformed)?;
    ConnectionId::new(cursor.vector(1)?.0).ok_or(crate::HelloError::Malformed)?;
    // RFC 9369, 3.2: version 2 numbers the types otherwise.
    let kind = match (version, first >> 4 & 3) {
        (Version::V1, kind) => kind,
        (Version::V2, kind) => kind.wrapping_sub(1) & 3,
    };
    if kind == 3 {
        return Ok((Packet::Retry, None));
    }
    if kind == 0 {
        // A token.
        cursor.variable_vector()?;
    }
    let len = cursor.variable()?;
    let len = usize::try_from(len).map_err(|_| crate::HelloError::Malformed)?;
    let header = bytes.len() - cursor.0.len();
    cursor.take(len)?;
    let packet = match kind {
        0 => {
            let (range, number_at) = (start..start + header + len, start + header);
            Packet::Initial(Initial { version, destination, range, number_at })
        }
        1 => Packet::Early,
        _ => Packet::Handshake,
    };
    Ok((packet, Some(header + len)))
}
