//! The bytes of the handshake, in order.

use super::QuicError;
use crate::cursor::Cursor;
use crate::parse::read_message;
use crate::{ClientHello, HelloError, Progress};

/// Most bytes of a handshake that are read. A ClientHello with keys for quantum computers has about 2000.
pub const MOST_CRYPTO: usize = 8192;

/// Types of frames (RFC 9000, 19).
const PADDING: u64 = 0;
const PING: u64 = 1;
const ACK: u64 = 2;
const ACK_ECN: u64 = 3;
const CRYPTO: u64 = 6;
const CONNECTION_CLOSE: u64 = 0x1c;

/// The bytes of CRYPTO frames at their places.
#[derive(Clone)]
pub struct CryptoStream {
    bytes: [u8; MOST_CRYPTO],
    /// A bit for each byte that has come.
    has: [u64; MOST_CRYPTO / 64],
}

impl std::fmt::Debug for CryptoStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CryptoStream").field("len", &self.in_order().len()).finish_non_exhaustive()
    }
}

impl Default for CryptoStream {
    fn default() -> Self {
        CryptoStream { bytes: [0; MOST_CRYPTO], has: [0; MOST_CRYPTO / 64] }
    }
}

impl CryptoStream {
    /// Forgets all bytes.
    pub fn clear(&mut self) {
        self.has.fill(0);
    }

    /// Whether no byte has come.
    pub fn is_empty(&self) -> bool {
        self.has.iter().all(|bits| *bits == 0)
    }

    /// Adds the CRYPTO frames of an Initial packet. Returns whether there were some.
    ///
    /// # Errors
    /// A frame is wrong, reaches too far, or has other bytes than an earlier one.
    pub fn add_frames(&mut self, frames: &[u8]) -> Result<bool, QuicError> {
        let (mut cursor, mut has_some) = (Cursor(frames), false);
        if frames.is_empty() {
            // RFC 9000, 12.4.
            return Err(QuicError::Malformed);
        }
        while !cursor.0.is_empty() {
            match cursor.variable().map_err(malformed)? {
                PADDING | PING => {}
                kind @ (ACK | ACK_ECN) => skip_ack(&mut cursor, kind).map_err(malformed)?,
                CRYPTO => {
                    let offset = cursor.variable().map_err(malformed)?;
                    let bytes = cursor.variable_vector().map_err(malformed)?;
                    self.add(offset, bytes)?;
                    has_some = true;
                }
                // The connection ends. Its reason follows.
                CONNECTION_CLOSE => return Ok(has_some),
                _ => return Err(QuicError::Frame),
            }
        }
        Ok(has_some)
    }

    fn add(&mut self, offset: u64, bytes: &[u8]) -> Result<(), QuicError> {
        let start = usize::try_from(offset).map_err(|_| QuicError::TooLong)?;
        let end = start.checked_add(bytes.len()).ok_or(QuicError::TooLong)?;
        let places = self.bytes.get_mut(start..end).ok_or(QuicError::TooLong)?;
        for ((at, place), &byte) in (start..).zip(places).zip(bytes) {
            let (word, bit) = (at / 64, 1 << (at % 64));
            let Some(bits) = self.has.get_mut(word) else { return Err(QuicError::TooLong) };
            if *bits & bit != 0 && *place != byte {
                return Err(QuicError::Conflict);
            }
            (*place, *bits) = (byte, *bits | bit);
        }
        Ok(())
    }

    /// Returns the bytes in front of the first one that has not come.
    fn in_order(&self) -> &[u8] {
        let full = self.has.iter().take_while(|bits| **bits == u64::MAX).count();
        let rest = self.has.get(full).map_or(0, |bits| bits.trailing_ones() as usize);
        self.bytes.get(..full * 64 + rest).unwrap_or(&self.bytes)
    }

    /// Reads the ClientHello that begins at a position, if it is complete: the first one at 0, and one behind
    /// a HelloRetryRequest at the end of that (RFC 9001, 4.7). Positions count from the first byte.
    ///
    /// # Errors
    /// See [`HelloError`]. A message that has no room is too long.
    pub fn hello(&self, from: usize) -> Result<Progress<'_>, QuicError> {
        match read_message(self.in_order().get(from..).unwrap_or(&[]))? {
            Progress::Incomplete(needed) if from + needed > MOST_CRYPTO => Err(QuicError::TooLong),
            Progress::Incomplete(needed) => Ok(Progress::Incomplete(from + needed)),
            Progress::Complete(hello) => {
                Ok(Progress::Complete(ClientHello { end: from + hello.end, ..hello }))
            }
        }
    }
}

fn malformed(_: HelloError) -> QuicError {
    QuicError::Malformed
}

/// Skips what follows the type of an ACK frame (RFC 9000, 19.3).
fn skip_ack(cursor: &mut Cursor<'_>, kind: u64) -> Result<(), HelloError> {
    cursor.variable()?;
    cursor.variable()?;
    let ranges = cursor.variable()?;
    cursor.variable()?;
    // Each range has two bytes at least, so that a frame bounds their number.
    for _ in 0..ranges {
        cursor.variable()?;
        cursor.variable()?;
    }
    if kind == ACK_ECN {
        for _ in 0..3 {
            cursor.variable()?;
        }
    }
    Ok(())
}
