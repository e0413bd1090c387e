//! The second ClientHello of a client, behind a HelloRetryRequest.
//!
//! Theory of operation. A server of TLS 1.3 that cannot use the key of a ClientHello asks for another one
//! (RFC 8446, 4.1.4). The client must not change the name in it (4.1.2), but servers take the name that it
//! has. [`takes_hello`] tells whether a server has answered otherwise. [`read_second_hello`] reads what the
//! client sends in the meantime. A server passes over some records in front of the second ClientHello, and
//! those are passed over here. It refuses all other records there: so the first one of them tells that no
//! second ClientHello follows, or is an error.

use crate::parse::{HANDSHAKE, RECORD_HEADER};
use crate::{ClientHello, HelloError, Progress, read_client_hello};

/// Types of records (RFC 8446, 5.1).
const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const APPLICATION_DATA: u8 = 23;
/// The type of a handshake message (RFC 8446, 4).
const SERVER_HELLO: u8 = 2;
/// Where the random value of a ServerHello is, behind the headers of record and message and the version.
const RANDOM: std::ops::Range<usize> = 11..43;
/// The random value of a ServerHello that is a HelloRetryRequest (RFC 8446, 4.1.3).
pub const RETRY_RANDOM: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
    0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// What a client sends behind a ClientHello that was allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecondHello<'a> {
    /// Records in front of a second ClientHello, if there is one.
    NotYet,
    /// The bytes from this position on decide, and at least so many of them are needed.
    Incomplete(usize, usize),
    /// The second ClientHello.
    Complete(ClientHello<'a>),
    /// The client goes on without one, or its server refuses what it sends.
    None,
}

/// Whether the first bytes of a server are a ServerHello that is no HelloRetryRequest. False also if they are
/// too few to tell.
pub fn takes_hello(bytes: &[u8]) -> bool {
    let (Some(random), Some(&[record, _, _, high, low, message])) =
        (bytes.get(RANDOM), bytes.first_chunk::<{ RECORD_HEADER + 1 }>())
    else {
        return false;
    };
    let end = RECORD_HEADER + usize::from(u16::from_be_bytes([high, low]));
    record == HANDSHAKE && message == SERVER_HELLO && end >= RANDOM.end && random != RETRY_RANDOM
}

/// Reads what a client sends behind its first ClientHello, in order. `skip`: bytes that are passed over, up
/// to the end of a record. `has_early_data`: of the first ClientHello. The message is put together in `room`,
/// as in [`read_client_hello`].
///
/// # Errors
/// See [`HelloError`].
pub fn read_second_hello<'a>(
    bytes: &[u8],
    (skip, has_early_data): (&mut u32, bool),
    room: &'a mut Vec<u8>,
) -> Result<SecondHello<'a>, HelloError> {
    let mut at = 0;
    loop {
        let skipped = bytes.len().saturating_sub(at).min(*skip as usize);
        (at, *skip) = (at + skipped, *skip - skipped as u32);
        let rest = bytes.get(at..).unwrap_or(&[]);
        match rest.first() {
            None => return Ok(SecondHello::NotYet),
            Some(&HANDSHAKE) => {
                return match read_client_hello(rest, room) {
                    Ok(Progress::Complete(hello)) => {
                        Ok(SecondHello::Complete(ClientHello { end: at + hello.end, ..hello }))
                    }
                    Ok(Progress::Incomplete(needed)) => Ok(SecondHello::Incomplete(at, needed)),
                    Err(HelloError::OtherMessage) => Ok(SecondHello::None),
                    Err(error) => Err(error),
                };
            }
            // Without early data, they are encrypted with the keys of the handshake.
            Some(&APPLICATION_DATA) if !has_early_data => return Ok(SecondHello::None),
            Some(&(CHANGE_CIPHER_SPEC | ALERT | APPLICATION_DATA)) => {}
            Some(_) => return Err(HelloError::NotTls),
        }
        let Some(&[_, _, _, high, low]) = rest.first_chunk::<RECORD_HEADER>() else {
            return Ok(SecondHello::Incomplete(at, RECORD_HEADER));
        };
        *skip = RECORD_HEADER as u32 + u32::from(u16::from_be_bytes([high, low]));
    }
}

#[cfg(test)]
mod tests;
