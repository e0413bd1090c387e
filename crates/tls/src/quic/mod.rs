//! The ClientHello in the first datagrams of a QUIC connection.
//!
//! Theory of operation. A QUIC client sends its ClientHello in CRYPTO frames of Initial packets (RFC 9001,
//! 4). Their keys come from the connection id that the client has chosen for its first packet (RFC 9001,
//! 5.2), so that each one on the path can read them. [`packets`] divides a datagram into its packets,
//! [`InitialKeys`] takes the protection off one, and [`CryptoStream`] puts the frames in order. A packet with
//! a wrong tag is ignored by a server, too.
//!
//! Versions 1 (RFC 9000) and 2 (RFC 9369) are known.

mod crypto_stream;
mod keys;
mod packet;
pub mod testing;
#[cfg(test)]
mod tests;

pub use crypto_stream::{CryptoStream, MOST_CRYPTO};
pub use keys::{InitialKeys, Opened};
pub use packet::{ConnectionId, Initial, LONG_HEADER, MOST_ID, Packet, Packets, Version, packets};

use crate::HelloError;

/// Why a packet is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuicError {
    /// A header or a frame does not fit in the datagram, or has a value that is not allowed.
    #[error("malformed QUIC packet")]
    Malformed,
    /// The packet was not protected with these keys.
    #[error("the packet has other keys")]
    OtherKeys,
    /// An Initial packet has a frame that belongs to other packets (RFC 9000, 12.4).
    #[error("a frame that Initial packets do not have")]
    Frame,
    /// The frames reach beyond [`MOST_CRYPTO`] bytes.
    #[error("too many bytes of a handshake")]
    TooLong,
    /// A frame repeats bytes with others in their place.
    #[error("a frame repeats bytes with others in their place")]
    Conflict,
    /// The message is wrong.
    #[error(transparent)]
    Hello(#[from] HelloError),
}
