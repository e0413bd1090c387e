//! Records, the message in them, and its extensions.

use crate::cursor::Cursor;

/// Most bytes of a message. Greater ones are refused.
pub const MOST_HELLO: usize = 32 << 10;

/// Of a record (RFC 8446, 5.1).
pub(crate) const HANDSHAKE: u8 = 22;
pub(crate) const RECORD_HEADER: usize = 5;
const MOST_RECORD: usize = 1 << 14;
/// Of a handshake message (RFC 8446, 4).
const CLIENT_HELLO: u8 = 1;
const MESSAGE_HEADER: usize = 4;
/// The first byte of each version from SSL 3.0 on.
const MAJOR: u8 = 3;
/// Types of extensions (RFC 6066, 3; RFC 8446, 4.2; RFC 9849, 5).
const SERVER_NAME: u16 = 0;
const EARLY_DATA: u16 = 42;
const SUPPORTED_VERSIONS: u16 = 43;
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;
/// The type of names (RFC 6066, 3).
const HOST_NAME: u8 = 0;
/// Most bytes of a name (RFC 1035, 2.3.4).
const MOST_NAME: usize = 255;

/// What a client asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientHello<'a> {
    /// The name of the server as it was sent, without a dot at its end. None: the client names none.
    pub server_name: Option<&'a [u8]>,
    /// There is an encrypted message in this one, with another name. A client that has no key for it sends
    /// the same extension (RFC 9849, 6.2).
    pub has_ech: bool,
    /// It has the extension supported_versions, which clients of TLS 1.3 send (RFC 8446, 4.2.1). Only they
    /// may be asked for another ClientHello.
    pub offers_tls13: bool,
    /// Data may follow it before the server answers (RFC 8446, 4.2.10).
    pub has_early_data: bool,
    /// The position behind it in the bytes that it was read from.
    pub end: usize,
}

/// The state of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<'a> {
    /// At least so many bytes are needed, from the beginning of the connection on.
    Incomplete(usize),
    /// The message is complete.
    Complete(ClientHello<'a>),
}

/// Why the bytes are not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// The bytes do not begin with a record of a handshake.
    #[error("not TLS")]
    NotTls,
    /// The first message of the handshake is not a ClientHello.
    #[error("not a ClientHello")]
    OtherMessage,
    /// A length does not fit, a record of another type is in the message, or its last record has more.
    #[error("malformed ClientHello")]
    Malformed,
    /// The message is longer than [`MOST_HELLO`].
    #[error("ClientHello too long")]
    TooLong,
    /// There are two names (RFC 6066, 3).
    #[error("two server names")]
    TwoNames,
    /// The name is empty, too long, or has a byte that names of hosts do not have.
    #[error("invalid server name")]
    Name,
}

/// Reads the first bytes of a connection. The message is put together in `room`, which needs
/// [`MOST_HELLO`] bytes.
///
/// # Errors
/// See [`HelloError`].
pub fn read_client_hello<'a>(bytes: &[u8], room: &'a mut Vec<u8>) -> Result<Progress<'a>, HelloError> {
    room.clear();
    let (mut at, mut size) = (0, None);
    loop {
        let rest = bytes.get(at..).unwrap_or(&[]);
        let other = if at == 0 { HelloError::NotTls } else { HelloError::Malformed };
        let is_record = |header: &[u8]| {
            header.first().is_none_or(|&kind| kind == HANDSHAKE)
                && header.get(1).is_none_or(|&one| one == MAJOR)
        };
        let Some((header, rest)) = rest.split_first_chunk::<RECORD_HEADER>() else {
            let needed = at + RECORD_HEADER;
            return if is_record(rest) { Ok(Progress::Incomplete(needed)) } else { Err(other) };
        };
        let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if !is_record(header) || len == 0 || len > MOST_RECORD {
            return Err(other);
        }
        let mut payload = rest.get(..len).unwrap_or(rest);
        let missing = loop {
            let needed = size.unwrap_or(MESSAGE_HEADER) - room.len();
            let (part, behind) = payload.split_at(needed.min(payload.len()));
            room.extend_from_slice(part);
            payload = behind;
            if room.first().is_some_and(|&kind| kind != CLIENT_HELLO) {
                return Err(HelloError::OtherMessage);
            }
            if part.len() < needed {
                break needed - part.len();
            }
            if size.is_some() {
                let end = at + RECORD_HEADER + len;
                // A client sends nothing else before the server answers. It could be another ClientHello.
                if bytes.len().min(end) - payload.len() != end {
                    return Err(HelloError::Malformed);
                }
                return parse(room.get(MESSAGE_HEADER..).unwrap_or(&[]), end).map(Progress::Complete);
            }
            size = Some(message_size(room)?);
        };
        if rest.len() < len {
            return Ok(Progress::Incomplete(bytes.len() + missing.min(len - rest.len())));
        }
        at += RECORD_HEADER + len;
    }
}

/// Returns the bytes of a message with this header.
fn message_size(header: &[u8]) -> Result<usize, HelloError> {
    let len = header.get(1..MESSAGE_HEADER).unwrap_or(&[]);
    let size = MESSAGE_HEADER + len.iter().fold(0, |len, &byte| len << 8 | usize::from(byte));
    if size > MOST_HELLO { Err(HelloError::TooLong) } else { Ok(size) }
}

/// Reads a message from its beginning on. In QUIC there are no records around it (RFC 9001, 4.1.3).
///
/// # Errors
/// See [`HelloError`].
pub(crate) fn read_message(bytes: &[u8]) -> Result<Progress<'_>, HelloError> {
    if bytes.first().is_some_and(|&kind| kind != CLIENT_HELLO) {
        return Err(HelloError::OtherMessage);
    }
    let Some(header) = bytes.get(..MESSAGE_HEADER) else { return Ok(Progress::Incomplete(MESSAGE_HEADER)) };
    let size = message_size(header)?;
    match bytes.get(MESSAGE_HEADER..size) {
        Some(body) => parse(body, size).map(Progress::Complete),
        None => Ok(Progress::Incomplete(size)),
    }
}

/// Parses the body of a ClientHello (RFC 8446, 4.1.2), which ends at a position.
fn parse(message: &[u8], end: usize) -> Result<ClientHello<'_>, HelloError> {
    let mut message = Cursor(message);
    if message.number(2)? >> 8 != usize::from(MAJOR) {
        return Err(HelloError::Malformed);
    }
    message.take(32)?;
    let session = message.vector(1)?.0.len();
    let suites = message.vector(2)?.0.len();
    let compressions = message.vector(1)?.0.len();
    if session > 32 || suites == 0 || suites % 2 != 0 || compressions == 0 {
        return Err(HelloError::Malformed);
    }
    let mut hello = ClientHello { end, ..ClientHello::default() };
    if message.0.is_empty() {
        return Ok(hello);
    }
    let mut extensions = message.last_vector(2)?;
    while !extensions.0.is_empty() {
        let kind = extensions.number(2)? as u16;
        let data = extensions.vector(2)?;
        match kind {
            SERVER_NAME if hello.server_name.is_some() => return Err(HelloError::TwoNames),
            SERVER_NAME => hello.server_name = Some(server_name(data)?),
            ENCRYPTED_CLIENT_HELLO => hello.has_ech = true,
            SUPPORTED_VERSIONS => hello.offers_tls13 = true,
            EARLY_DATA => hello.has_early_data = true,
            _ => {}
        }
    }
    Ok(hello)
}

/// Reads a list of names with one entry.
fn server_name(mut data: Cursor<'_>) -> Result<&[u8], HelloError> {
    let mut list = data.last_vector(2)?;
    if list.number(1)? != usize::from(HOST_NAME) {
        return Err(HelloError::Malformed);
    }
    let name = list.vector(2)?.0;
    if !list.0.is_empty() {
        return Err(HelloError::TwoNames);
    }
    let name = name.strip_suffix(b".").unwrap_or(name);
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._".contains(byte);
    let is_valid = !name.is_empty() && name.len() <= MOST_NAME && name.iter().all(is_part);
    if is_valid { Ok(name) } else { Err(HelloError::Name) }
}

#[cfg(test)]
mod tests;
